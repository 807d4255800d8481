"""Checkpoints of a training: everything that the next step depends on, in one file that is written whole or not at all.

A thread writes them while the training goes on, from a copy in the machine's memory.

speculators' checkpoints are in bfloat16 and not written atomically: after them, a training that was interrupted goes
another way than one that was not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Annotated, Any, Self
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch
from pydantic import Field
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

from toolkit import documents
from toolkit.errors import PlatformError, UsageError
from toolkit.memory import free_bytes
from toolkit.training.job import TrainingJob

FILE = "checkpoint.pt"
BEST = "best.pt"
_ANEW = f"Remove {FILE} and {BEST} from that folder to start anew; the target's answers stay."
_SHAPE_KEYS = ("method", "target_name", "layers", "depth", "draft_vocab_size")
# What each optimizer knows of a parameter, besides tensors of a single number, such as `step`.
_STATES: Mapping[type[Optimizer], set[str]] = {Muon: {"momentum_buffer"}, AdamW: {"exp_avg", "exp_avg_sq"}}
# All that zipfile, and torch's reading of what only pretends to be its file, may raise.
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, BadZipFile, EOFError, LookupError, MemoryError, OSError,
    RuntimeError, TypeError, UnpicklingError, ValueError,
)  # fmt: skip

# Of the memory that is free: others want some of it, too.
_SHARE = 0.8

Step = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Checkpoint:
    """State after `step` steps and `seconds`; `evaluations` are held-out acceptance lengths so far, by step.

    `drafted` is K, the draft tokens of a step, to which these belong; 0 in files of versions that did not walk.
    """

    __pydantic_config__ = {"extra": "forbid", "arbitrary_types_allowed": True}  # noqa: RUF012

    step: Step
    weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    evaluations: list[tuple[Step, Number]]
    seconds: Number
    drafted: Step = 0


class Writer:
    """Writes a folder's checkpoints, one at a time, while the training goes on; used as a context, whose end waits.

    Where one cannot be written the one before stays, and the next call raises why: PlatformError, as for a full disk.
    """

    def __init__(self, folder: Path, job: TrainingJob, free: Callable[[], int] = free_bytes) -> None:
        self._folder, self._job, self._free = folder, job, free
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._thread.shutdown()
        if kind is None:
            self.wait()

    def save(self, checkpoint: Checkpoint, *, best: bool, is_copy: bool = False) -> None:
        """Replace the checkpoint, and before it the best weights, if these are the best.

        What is no copy yet, which later steps leave as it is, is copied; where memory has no room for that, the
        training waits until all is written.
        """
        self.wait()
        if not is_copy and _bytes(checkpoint) > _SHARE * self._free():
            self._save(checkpoint, best)
        else:
            copy = checkpoint if is_copy else _copied(checkpoint)
            self._writing = self._thread.submit(self._save, copy, best)

    def wait(self) -> None:
        """Until all is written."""
        if self._writing is not None:
            self._writing.result()

    def require_written(self) -> None:
        """Raise what went wrong by now."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    def _save(self, checkpoint: Checkpoint, best: bool) -> None:
        if best:
            _write(self._folder / BEST, checkpoint.weights)
        _write(self._folder / FILE, {"job": _shape(self._job), **vars(checkpoint)})


def remove_unfinished(folder: Path) -> None:
    """What a killed process was writing. Raises PlatformError."""
    for left in chain.from_iterable(folder.glob(f".{name}.*") for name in (FILE, BEST)):
        try:
            left.unlink()
        except OSError as error:
            raise PlatformError(f"{left} cannot be removed: {error.strerror}", hint="Remove it yourself.") from error


def _bytes(checkpoint: Checkpoint) -> int:
    states = (state for one in checkpoint.optimizers for state in one["state"].values())
    tensors = chain(checkpoint.weights.values(), *(state.values() for state in states))
    return sum(tensor.nbytes for tensor in tensors)


def _copied(checkpoint: Checkpoint) -> Checkpoint:
    """Its state in the machine's memory, which no later step changes."""
    optimizers = [
        {**one, "state": {number: _copies(state) for number, state in one["state"].items()}}
        for one in checkpoint.optimizers
    ]
    return replace(checkpoint, weights=_copies(checkpoint.weights), optimizers=optimizers)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}


def load(
    folder: Path, job: TrainingJob, weights: Mapping[str, Tensor], optimizers: Sequence[Optimizer]
) -> Checkpoint | None:
    """The folder's checkpoint, None without one. Raises UsageError for a damaged one, or that of another head.

    `weights` and `optimizers` are those that it is for.
    """
    path = folder / FILE
    if (stored := _read(path)) is None:
        return None
    _require_job(path, stored.pop("job", None), job)
    try:
        found = documents.fit(Checkpoint, stored)
        _require_weights(found.weights, weights)
        if len(found.optimizers) != len(optimizers):
            raise documents.Unfit(f"it has {len(found.optimizers)} optimizers, not {len(optimizers)}")
        states = [_state(*pair) for pair in zip(found.optimizers, optimizers, strict=True)]
    except documents.Unfit as error:
        raise _damaged(path, error) from error
    return replace(found, optimizers=states)


def steps_done(folder: Path) -> int:
    """After how many steps the folder's checkpoint is; 0 without one. Raises UsageError for a damaged one."""
    step = (_read(folder / FILE) or {"step": 0}).get("step")
    if not isinstance(step, int):
        raise _damaged(folder / FILE, "it does not say after which step it is")
    return step


def _require_job(path: Path, found: Any, job: TrainingJob) -> None:
    wanted = _shape(job)
    try:
        settings = documents.fit(dict[str, str | int | None], found)
    except documents.Unfit as error:
        raise _damaged(path, f"`job`: {error}") from error
    for key in _SHAPE_KEYS:
        if settings.get(key) != wanted[key]:
            message = f"{path} is of another training: {key} is {settings.get(key)} there and {wanted[key]} here"
            raise UsageError(message, hint="Remove that folder to start anew, or undo the change.")


def _require_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise Unfit for weights that are not those of the head."""
    if odd := sorted(map(str, found.keys() ^ wanted.keys())):
        raise documents.Unfit(f"it {'has' if odd[0] in found else 'lacks'} the tensor `{odd[0]}`")
    for name, tensor in found.items():
        if not _is_like(tensor, wanted[name]):
            raise documents.Unfit(f"the tensor `{name}` has another shape or type, or numbers that are none")


def _is_like(tensor: Any, wanted: Tensor) -> bool:
    return (
        isinstance(tensor, Tensor)
        and (tensor.shape, tensor.dtype, tensor.layout) == (wanted.shape, wanted.dtype, torch.strided)
        and tensor.device.type == "cpu"
        and bool(tensor.isfinite().all())
    )


def _state(found: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """What the optimizer knew, with its settings as they are now. Raises Unfit for what it cannot go on from."""
    now = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = found.get("state")
    if not isinstance(states, dict) or not states.keys() <= set(range(len(parameters))):
        raise documents.Unfit("an optimizer's state is not of the head's parameters")
    named = _STATES.get(type(optimizer), set())
    for number, state in states.items():  # one that has no gradient has no state either
        whole = isinstance(state, dict) and named <= state.keys()
        if not whole or not all(_is_known(value, parameters[number]) for value in state.values()):
            raise documents.Unfit(f"an optimizer's state of parameter {number} is not whole")
    return {**now, "state": states}


def _is_known(value: Any, parameter: Tensor) -> bool:
    """Whether it is of the parameter's shape, or a single number."""
    return _is_like(value, parameter) or _is_like(value, torch.zeros(()))


def load_best(folder: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that did best, of a head that has the weights `wanted`. Raises UsageError."""
    path = folder / BEST
    best = _read(path)
    if best is None:
        raise UsageError(f"{path} is missing", hint=_ANEW)
    try:
        _require_weights(best, wanted)
    except documents.Unfit as error:
        raise _damaged(path, error) from error
    return best


def _shape(job: TrainingJob) -> dict[str, Any]:
    return {key: getattr(job, key) for key in _SHAPE_KEYS}


def _read(path: Path) -> dict[str, Any] | None:
    """What torch has saved in a file: an archive that is not packed, so that it takes no more memory than disk."""
    if not path.exists():
        return None
    try:
        with ZipFile(path) as archive:
            if any(part.compress_type != ZIP_STORED for part in archive.infolist()):
                raise BadZipFile("it is packed")
            if damaged := archive.testzip():  # torch would take it as it is
                raise BadZipFile(f"{damaged} is damaged")
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise _damaged(path, (str(error) or type(error).__name__).splitlines()[0]) from error
    if not isinstance(stored, dict):
        raise _damaged(path, "it holds no dictionary")
    return stored


def _damaged(path: Path, why: object) -> UsageError:
    return UsageError(f"{path} cannot be used: {why}", hint=_ANEW)


def _write(path: Path, content: dict[str, Any]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError
        reason = getattr(error.__context__ or error, "strerror", None) or str(error).splitlines()[0]
        hint = "The checkpoint before it is still there. Make room and start again: it continues there."
        raise PlatformError(f"{path} could not be written: {reason}", hint=hint) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
