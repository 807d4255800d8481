"""The hidden states of a window, written beside the samples. An engine reads them of the target, or transformers.

Where all of them fit the disk, one window has all steps, and they are computed once. Else the target computes those of
the first window, the head learns from them, and those of the next one take their place, again in every epoch. The head
learns the same samples in the same order either way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.files import write_whole
from toolkit.training.batches import plan_batches
from toolkit.training.chat import load_chat
from toolkit.training.engine import TrainingEngine
from toolkit.training.exact import PROBES
from toolkit.training.head import target_config
from toolkit.training.job import FINAL_TIMES, TrainingJob
from toolkit.training.launch import free_gpus, job_machines
from toolkit.training.loop import Data, evaluated
from toolkit.training.progress import Report, TrainingProgress
from toolkit.training.samples import (
    HELD_OUT,
    SHARD_TOKENS,
    STATES_DTYPES,
    TRAIN,
    Count,
    Pieces,
    Sample,
    Samples,
    content_digest,
    states_file,
    write_tensors,
)  # fmt: skip
from toolkit.training.states import Extractor, StateSource, load_target

_FILE = "window.json"
# Room that is left on the disk for checkpoints and logs, besides what an engine writes before it is read.
_SPARE_BYTES = 1024**3


@dataclass(frozen=True)
class _Stored:
    """The window whose states are complete, by its first step, and what decided all windows: a bound that was given, or
    what was free.
    """

    first: Count
    most_tokens: Count
    states_gb: float | None


def prepare_window(
    job: TrainingJob,
    layers: tuple[int, ...],
    step: int,
    report: Report,
    say: Callable[[str], None],
    engine: TrainingEngine | None = None,
) -> Window:
    """Have the hidden states on the disk that the step and those after it read. What is there already stays.

    Raises UsageError, and PlatformError for a full disk.
    """
    train, held_out = _samples(job)
    for left in Path(job.work).glob("states-*/"):  # of an engine that was killed
        shutil.rmtree(left)
    most_tokens = _most_tokens(job, layers, held_out)
    windows = windows_of(job, train, most_tokens)
    if len(windows) > 1 and job.states_gb is None and len(job_machines().hosts) > 1:
        hint = "Write training.states_gb: then all machines go through the same parts of the states."
        raise UsageError("the hidden states do not fit on the disks of the machines at once", hint=hint)
    window = next((one for one in windows if step < one.end), windows[-1])
    if step <= window.first:
        say(_told(job, layers, train, held_out, windows, window))
    _stored_file(job).unlink(missing_ok=True)
    folders = [Samples(train.folder, window.pieces), held_out]
    for samples in folders:
        _remove_behind(samples)
    _write(job, layers, folders, report, engine)
    free_gpus()
    write_whole(_stored_file(job), json.dumps(asdict(_Stored(window.first, most_tokens, job.states_gb))) + "\n")
    return window


def prepared_window(job: TrainingJob) -> tuple[Window, Data]:
    """The window whose states are on the disk, and its samples. Raises UsageError."""
    stored = _read_stored(job)
    if stored is None:
        hint = "Start the training again: it continues where it was interrupted."
        raise UsageError(f"the hidden states in {job.work} are not complete", hint=hint)
    train, held_out = _samples(job)
    window = next(one for one in windows_of(job, train, stored.most_tokens) if one.first == stored.first)
    return window, Data(Samples(train.folder, window.pieces), held_out)


def require_exact(job: TrainingJob, layers: tuple[int, ...], engine: TrainingEngine | None) -> None:
    """Raise UsageError for a target whose own words training would not learn. The target's memory is free again."""
    with _opened(job, layers, engine) as source:
        source.require_exact(_probes(job))
    del source
    free_gpus()


def _samples(job: TrainingJob) -> tuple[Samples, Samples]:
    work = Path(job.work)
    held_out = Samples(work / HELD_OUT)
    return Samples(work / TRAIN), Samples(held_out.folder, _held_out_pieces(held_out))


def _probes(job: TrainingJob) -> list[list[int]]:
    chat = load_chat(job.target, job.target_revision or "main")
    return [chat.encode(text) for text in PROBES]


def _told(
    job: TrainingJob, layers: tuple[int, ...], train: Samples, held_out: Samples, windows: list[Window], window: Window
) -> str:
    size = _token_bytes(job, layers) / 1e9
    here = sum(_tokens(one) for one in (Samples(train.folder, window.pieces), held_out))
    text = f"the hidden states take {here * size:,.2f} GB on the disk"
    if len(windows) == 1:
        return text
    number = windows.index(window) + 1
    return f"{text}, for steps {window.first + 1} to {window.end}: part {number} of {len(windows)}, as not all fit"


def _tokens(samples: Samples) -> int:
    lengths = samples.lengths
    return sum(lengths[index] for piece in samples.pieces for index in piece)


def _most_tokens(job: TrainingJob, layers: tuple[int, ...], held_out: Samples) -> int:
    """Of training samples, whose states may be on the disk at one time, besides those of held-out ones."""
    size = _token_bytes(job, layers)
    if job.states_gb is not None:
        return max(0, round(job.states_gb * 1e9) // size - _tokens(held_out))
    if (stored := _read_stored(job)) and stored.states_gb is None:
        return stored.most_tokens
    folders = [Path(job.work) / name for name in (TRAIN, HELD_OUT)]
    there = sum(path.stat().st_size for folder in folders for path in folder.glob("states-*"))
    room = shutil.disk_usage(job.work).free + there - _SPARE_BYTES - SHARD_TOKENS * size
    return max(0, room // size - _tokens(held_out))


def _token_bytes(job: TrainingJob, layers: tuple[int, ...]) -> int:
    """What the states of one token take on the disk."""
    hidden: int = target_config(job).hidden_size
    return (len(set(layers)) + 1) * hidden * _dtype(job).itemsize


def _dtype(job: TrainingJob) -> torch.dtype:
    """That of the stored states: the job's, or the target's own, by its config or by its weights."""
    found = (target_config(job).dtype or _weights_dtype(job)) if job.dtype == "auto" else job.dtype
    return found if isinstance(found, torch.dtype) else getattr(torch, str(found))


def _weights_dtype(job: TrainingJob) -> torch.dtype:
    """That of the first weights with a dtype that states may have; others are quantised."""
    for path in sorted(Path(job.target).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                if found := STATES_DTYPES.get(file.get_slice(name).get_dtype()):
                    return found
    return torch.float32


def _stored_file(job: TrainingJob) -> Path:
    return Path(job.work) / _FILE


def _read_stored(job: TrainingJob) -> _Stored | None:
    try:
        return documents.parse(_Stored, documents.read_file(_stored_file(job)))
    except (OSError, documents.Unfit):
        return None


def _remove_behind(samples: Samples) -> None:
    """Remove the files of another window that this one does not write anew."""
    wanted = {states_file(samples.folder, number) for number in range(len(samples.pieces))}
    for path in set(samples.folder.glob("states-*")) - wanted:
        path.unlink()


def _write(
    job: TrainingJob,
    layers: tuple[int, ...],
    folders: list[Samples],
    report: Report,
    engine: TrainingEngine | None,
) -> None:
    pieces = [(samples, number) for samples in folders for number in range(len(samples.pieces))]
    made_from = [_made_from(job, layers, engine, *piece) for piece in pieces]
    missing = {piece: found for piece, found in zip(pieces, made_from, strict=True) if not _is_done(*piece, found)}
    with ExitStack() as stack:
        if missing:
            source = stack.enter_context(_opened(job, layers, engine))
            source.require_exact(_probes(job))
        for done, piece in enumerate(pieces, 1):
            if piece in missing:
                _extract(source, *piece, missing[piece], _dtype(job))
            report(TrainingProgress("states", done, len(pieces)))


@contextmanager
def _opened(job: TrainingJob, layers: tuple[int, ...], engine: TrainingEngine | None) -> Iterator[StateSource]:
    """The target in the engine, or in transformers. Only who no longer holds it can free its memory (`free_gpus`)."""
    if not job.by_engine:
        yield Extractor(load_target(job.target, job.target_revision or "main", job.dtype), layers)
        return
    assert engine  # all but tests of transformers have one
    if why := engine.no_states(job):
        raise UsageError(f"the engine cannot give hidden states: {why}", hint="Write `states: transformers`.")
    with engine.states(job, layers) as source:
        yield source


def _extract(source: StateSource, samples: Samples, piece: int, made_from: dict[str, str], dtype: torch.dtype) -> None:
    states = source.states([sample.input_ids for sample in _of_piece(samples, piece)])
    if not (states.hidden_states.isfinite().all() and states.last_hidden_states.isfinite().all()):
        hint = "Give training.dtype: bfloat16 or float32; float16 overflows in some models."
        raise UsageError("the target's hidden states are not finite numbers", hint=hint)
    found = {"hidden_states": states.hidden_states, "last_hidden_states": states.last_hidden_states}
    path = states_file(samples.folder, piece)
    write_tensors(path, {name: tensor.to(dtype) for name, tensor in found.items()}, made_from)


def _of_piece(samples: Samples, piece: int) -> list[Sample]:
    return [samples[index] for index in samples.pieces[piece]]


def _is_done(samples: Samples, piece: int, made_from: dict[str, str]) -> bool:
    path = states_file(samples.folder, piece)
    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            return bool(file.metadata() == made_from)
    except (OSError, SafetensorError):  # damaged: it is made anew
        return False


def _made_from(
    job: TrainingJob, layers: tuple[int, ...], engine: TrainingEngine | None, samples: Samples, piece: int
) -> dict[str, str]:
    """What decides the states of a piece. Those that an earlier version had from transformers say the same."""
    tokens = [sample.input_ids for sample in _of_piece(samples, piece)]
    offsets = torch.tensor([0, *map(len, tokens)]).cumsum(0)
    by_engine = {"by": engine.version(), "flags": json.dumps(job.as_served)} if job.by_engine and engine else {}
    return {
        "target": job.target,
        "dtype": str(_dtype(job)),
        "layers": json.dumps(sorted(set(layers))),
        "samples": content_digest({"input_ids": torch.cat(tokens), "offsets": offsets}),
        **by_engine,
    }


@dataclass(frozen=True)
class Window:
    """Steps `first` to before `end`, and the samples whose states they read, in pieces of a file each."""

    first: int
    end: int
    pieces: Pieces


def windows_of(job: TrainingJob, train: Samples, most_tokens: int) -> list[Window]:
    """All windows of the job, none with more than so many tokens. Raises UsageError if a step alone has more."""
    batches, lengths = plan_batches(train.lengths, job), train.lengths
    if sum(lengths) <= most_tokens:
        return [Window(0, len(batches), train.shards)]
    windows: list[Window] = []
    first, tokens, here = 0, 0, set[int]()
    for step, batch in enumerate(batches):
        size = sum(lengths[index] for index in batch)
        if size > most_tokens:
            hint = "Raise training.states_gb or training.volume_gb, or lower training.batch_tokens."
            raise UsageError(f"a step reads hidden states of {size:,} tokens, and {most_tokens:,} fit", hint=hint)
        if tokens + size > most_tokens or not here.isdisjoint(batch):  # the next epoch has the same samples
            windows.append(Window(first, step, _pieces(batches[first:step], lengths)))
            first, tokens, here = step, 0, set()
        tokens += size
        here.update(batch)
    return [*windows, Window(first, len(batches), _pieces(batches[first:], lengths))]


def _held_out_pieces(held_out: Samples) -> Pieces:
    """The shards with the held-out samples that are evaluated: the first ones."""
    last = evaluated(held_out.lengths, FINAL_TIMES)[-1]
    return tuple(piece for piece in held_out.shards if piece[0] <= last)


def _pieces(batches: Sequence[Sequence[int]], lengths: Sequence[int]) -> Pieces:
    """The samples of some steps, so many at a time as are written at once: a step may have many times as many."""
    pieces: list[list[int]] = []
    tokens = SHARD_TOKENS
    for index in chain.from_iterable(batches):
        if tokens >= SHARD_TOKENS:
            pieces.append([])
            tokens = 0
        pieces[-1].append(index)
        tokens += lengths[index]
    return tuple(map(tuple, pieces))
