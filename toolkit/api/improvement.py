"""Improve the head of a live endpoint: train it on its own traffic, measure it beside the one that serves, promote it.

The endpoint is not touched until the new head has won: that is measured on an endpoint of its own, which is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolkit.api.context import RecipeLike
from toolkit.api.deployment import deploy
from toolkit.api.endpoint import Endpoint
from toolkit.api.handles import connect
from toolkit.api.measuring import bench
from toolkit.api.removal import destroy
from toolkit.api.training import TrainingRun, train
from toolkit.apply.progress import Progress, default_progress
from toolkit.display import card, facts
from toolkit.errors import UsageError
from toolkit.files import write_whole
from toolkit.measure.report import ArmReport, BenchReport
from toolkit.recipe.edit import with_speculation
from toolkit.recipe.resolve import Recipe, load
from toolkit.recipe.section import LONGEST_NAME
from toolkit.recipe.source import ModelSource
from toolkit.text import inert
from toolkit.training.conversations import Conversation, conversation_of, held_out
from toolkit.training.plan import section, training_key
from toolkit.training.sources import Objects, source_rows

_WORKLOAD = "held-out"
_MOST_PROMPTS = 200
_SUFFIX = "-next"


@dataclass(frozen=True)
class Steps:
    """The functions that `improve` is composed of."""

    train: Callable[..., TrainingRun] = train
    connect: Callable[..., Endpoint] = connect
    deploy: Callable[..., Endpoint] = deploy
    measure: Callable[..., BenchReport] = bench
    destroy: Callable[..., Any] = destroy


@dataclass(frozen=True)
class Improvement:
    """A new head against the one that serves. `promoted` says whether it serves now, `reason` why or why not.

    `speedup` is the new head's over the old one's with its 95 % interval, `acceptance` their acceptance lengths, the
    old one's first. Truthy if it was promoted.
    """

    recipe: str
    head: str
    promoted: bool
    reason: str
    speedup: tuple[float, float, float] | None = None
    acceptance: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        return self.promoted

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit improve --json`."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, a pair each."""
        found = [("head", self.head), ("promoted", f"{'yes' if self.promoted else 'no'}: {self.reason}")]
        if self.speedup:
            found.append(("speed", "{:.2f} times that of the head before ({:.2f}-{:.2f})".format(*self.speedup)))
        if self.acceptance:
            found.append(("acceptance length", "{:.2f}, now {:.2f}".format(*self.acceptance)))
        return found

    def __repr__(self) -> str:
        return inert("\n".join([f"<Improvement {self.recipe}>", *(f"  {name}: {text}" for name, text in self.rows())]))

    def _repr_html_(self) -> str:
        return card(self.recipe, facts(self.rows()))


def improve(
    recipe: RecipeLike,
    *,
    concurrency: Sequence[int] = (1,),
    seconds: float = 300.0,
    promote: bool = True,
    platform: str | None = None,
    progress: Progress | None = None,
    steps: Steps | None = None,
) -> Improvement:
    """Continue the head of a deployed recipe on the data of its `training`, and deploy it if it is surely faster.

    Both heads are measured by turns on the held-out part of the data, which neither training nor the head has seen. The
    new one is promoted (the recipe names it, and is deployed by its own `rollout`) if its speed is higher by the whole
    interval and its acceptance length is no lower; else all stays as it was. Raises UsageError, RecipeError,
    TrainingJobFailed, PlatformError.
    """
    progress, steps = progress or default_progress(), steps or Steps()
    loaded = load(recipe).with_platform(platform)
    candidate = _candidate(loaded)
    running = steps.connect(loaded, platform=platform)
    run = steps.train(candidate, progress=progress)
    with TemporaryDirectory(prefix="toolkit-") as folder:
        prompts = Path(folder) / f"{_WORKLOAD}.jsonl"
        _write_prompts(prompts, _held_out(loaded, Path(folder), running.platform.read_objects))
        try:
            trial = steps.deploy(replace(candidate, training=None), progress=progress)
            report = steps.measure(
                trial,
                baseline=running,
                workloads=[str(prompts)],
                concurrency=concurrency,
                seconds=seconds,
                progress=progress,
            )
        finally:
            steps.destroy(candidate, platform=candidate.platform.name, progress=progress)
    found = _judged(str(loaded.path), run.head, report)
    if not (found.promoted and promote):
        return replace(found, promoted=False)
    _promote(loaded, run.head, lambda: steps.deploy(loaded.path, platform=platform, progress=progress))
    return found


def _candidate(recipe: Recipe) -> Recipe:
    """The recipe with a head beside its own that continues from it. Raises UsageError."""
    training, head = section(recipe), recipe.drafter.folder if recipe.drafter else None
    if recipe.speculation is None or head is None or not (head / "config.json").is_file():
        hint = "Set `speculation.model` to the folder of a head; its copy in S3 is the toolkit's."
        raise UsageError(f"{recipe.path} has no head in a folder, which a new one could be put beside", hint=hint)
    continued = replace(recipe, training=training.model_copy(update={"start_from": str(head)}))
    base = head.name.partition("@")[0]
    new = ModelSource("folder", str(head.with_name(f"{base}@{training_key(continued)}")))
    name = f"{recipe.name[: LONGEST_NAME - len(_SUFFIX)].rstrip('-')}{_SUFFIX}"
    return replace(continued, name=name, speculation=replace(recipe.speculation, drafter=new))


def _held_out(recipe: Recipe, folder: Path, objects: Objects) -> list[Conversation]:
    """The conversations that the job has held out, as far as a measurement can ask them."""
    training = section(recipe)
    rows = (row for source in training.data for row in source_rows(source, folder / "downloads", objects))
    found = [one for location, row in rows if (one := conversation_of(row, location))]
    chosen = held_out({one.question for one in found}, training.held_out, training.seed)
    first = {one.question: one for one in reversed(found) if one.question in chosen}
    return list(first.values())[:_MOST_PROMPTS]


def _write_prompts(path: Path, conversations: Iterable[Conversation]) -> None:
    """What was asked up to the first answer; only this user may read the file."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as stream:  # noqa: PTH123
        for one in conversations:
            roles = [message["role"] for message in one.messages]
            asked = one.messages[: roles.index("assistant")] if "assistant" in roles else one.messages
            stream.write(json.dumps({"messages": [dict(message) for message in asked]}) + "\n")


def _judged(recipe: str, head: str, report: BenchReport) -> Improvement:
    """Better: faster by the whole interval at one load at least, surely slower at none, and accepted no less."""
    speedups = report.speedups
    if not report.complete or not speedups:
        return Improvement(recipe, head, False, "the measurement was not finished")
    best = max(speedups, key=lambda item: item.low)
    ratio, old, new = (best.ratio, best.low, best.high), *_acceptance(report.arms)
    lengths = (old, new) if old and new else None
    limit = max(1.0, report.noise.high if report.noise else 1.0)
    if any(item.high < 1 for item in speedups):
        reason = "it is surely slower at one load"
    elif best.low <= limit:
        reason = "it is not surely faster than the head before, or not by more than the noise"
    elif lengths and new < old:
        reason = "fewer of its drafts are accepted"
    else:
        return Improvement(recipe, head, True, "it is faster by the whole 95 % interval", ratio, lengths)
    return Improvement(recipe, head, False, reason, ratio, lengths)


def _acceptance(arms: Sequence[ArmReport]) -> tuple[float, float]:
    """Mean acceptance lengths of the head before and of the new one; 0 where it is not known."""

    def mean(of_baseline: bool) -> float:
        found = [arm.acceptance_length for arm in arms if (arm.arm == "baseline") == of_baseline]
        known = [length for length in found if length]
        return sum(known) / len(known) if known else 0.0

    return mean(True), mean(False)


def _promote(recipe: Recipe, head: str, roll_out: Callable[[], object]) -> None:
    """Name the head in the recipe, and deploy it. If that fails, the recipe's text is what it was."""
    before = recipe.path.read_text(encoding="utf-8")
    written = os.path.relpath(head, recipe.path.resolve().parent)
    named = written if written.startswith("..") else f"./{written}"
    write_whole(recipe.path, with_speculation(before, {"model": named}))
    try:
        roll_out()
    except BaseException:
        write_whole(recipe.path, before)
        raise
