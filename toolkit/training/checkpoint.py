"""Checkpoints of a training: everything that the next step depends on, in one file that is written whole or not at all.

speculators' checkpoints are in bfloat16 and not written atomically: after them, a training that was interrupted goes
another way than one that was not.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolkit.errors import PlatformError, UsageError
from toolkit.training.job import TrainingJob

FILE = "checkpoint.pt"
BEST = "best.pt"
_SHAPE_KEYS = ("method", "target_name", "layers", "depth", "draft_vocab_size")


@dataclass(frozen=True)
class Checkpoint:
    """State after `step` steps and `seconds`; `evaluations` are held-out acceptance lengths so far, by step."""

    step: int
    weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    evaluations: list[tuple[int, float]]
    seconds: float


def save(folder: Path, job: TrainingJob, checkpoint: Checkpoint) -> None:
    """Replace the folder's checkpoint. Raises PlatformError, and then the one before is still there."""
    _write(folder / FILE, {"job": _shape(job), **vars(checkpoint)})


def load(folder: Path, job: TrainingJob) -> Checkpoint | None:
    """The folder's checkpoint, None without one. Raises UsageError for that of another head."""
    stored = _read(folder / FILE)
    if stored is None:
        return None
    found, wanted = stored.pop("job"), _shape(job)
    if found != wanted:
        key = next(key for key in _SHAPE_KEYS if found.get(key) != wanted[key])
        message = f"{folder / FILE} is of another training: {key} is {found.get(key)} there and {wanted[key]} here"
        raise UsageError(message, hint="Remove that folder to start anew, or undo the change.")
    return Checkpoint(**stored)


def save_best(folder: Path, weights: dict[str, Tensor]) -> None:
    """Keep the weights that did best on held-out data. Raises PlatformError."""
    _write(folder / BEST, weights)


def load_best(folder: Path) -> dict[str, Tensor]:
    """The weights that did best. Raises UsageError."""
    best = _read(folder / BEST)
    if best is None:
        raise UsageError(f"{folder / BEST} is missing", hint="Start the training again.")
    return best


def _shape(job: TrainingJob) -> dict[str, Any]:
    return {key: getattr(job, key) for key in _SHAPE_KEYS}


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        stored: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Remove it to start anew.") from error
    return stored


def _write(path: Path, content: dict[str, Any]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            torch.save(content, file)
        beside.replace(path)
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError
        reason = getattr(error.__context__ or error, "strerror", None) or str(error).splitlines()[0]
        hint = "The checkpoint before it is still there. Make room and start again: it continues there."
        raise PlatformError(f"{path} could not be written: {reason}", hint=hint) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
