"""The tiny heads: jobs of `toolkit.training`, as `toolkit train` starts them, on questions of the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.__main__ import run
from toolkit.training.card import REPORT
from toolkit.training.job import TrainingJob
from toolkit.training.plan import folder_revision
from tools.tiny.conversations import Conversation, Target, answered, conversation, general, lines

CONVERSATIONS = "conversations.jsonl"


@dataclass(frozen=True)
class HeadSettings:
    """A head, and how many conversations it learns from for how long."""

    method: Literal["p-eagle", "eagle3"]
    layers: int
    depth: int
    steps: int
    conversations: int
    batch_tokens: int = 1024
    learning_rate: float = 4e-3


def make_head(settings: HeadSettings, target: Path, scratch: Path, folder: Path) -> dict[str, object]:
    """Train a head for the target, and write it to the empty folder; its figures.

    Stopped, it goes on from the checkpoint in `scratch`.
    """
    data = scratch / CONVERSATIONS
    write_conversations(map(conversation, answered(general(settings.conversations), Target(target))), data)
    job = TrainingJob(
        name=f"tiny-{settings.method}",
        method=settings.method,
        target=str(target),
        target_name=target.name,
        target_revision=folder_revision(target),
        data=(str(data),),
        responses="keep",
        held_out=0.01,
        layers=settings.layers,
        depth=settings.depth,
        max_length=640,
        steps=settings.steps,
        batch_tokens=settings.batch_tokens,
        learning_rate=settings.learning_rate,
        dtype="float32",
        checkpoints=str(scratch / settings.method / "checkpoints"),
        work=str(scratch / "work"),
        head=str(folder),
    )
    run(job)
    report: dict[str, object] = json.loads((folder / REPORT).read_text())
    return {key: report[key] for key in ("acceptance_length", "acceptance_per_depth", "steps", "best_step")}


def write_conversations(found: Iterable[Conversation], path: Path) -> None:
    """One conversation a line; a file that has them already stays as it is, and so do the samples made of it."""
    content = lines(found)
    if not path.exists() or path.read_text() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
