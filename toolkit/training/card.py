"""The folder of a trained head: weights and config.json for the engine, report.json, and a model card."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speculators.models.mtp import MTPDraftModel
from torch import nn

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.files import write_whole
from toolkit.recipe.content import CARD
from toolkit.training.acceptance import Acceptance, acceptance_of, by_conversation, by_source
from toolkit.training.engine import TrainingEngine
from toolkit.training.head import Head
from toolkit.training.job import EAGLE_3_1, TrainingJob
from toolkit.training.loop import Result
from toolkit.training.mtp import write_block
from toolkit.version import __version__

REPORT = "report.json"
_KINDS = {
    "p-eagle": "P-EAGLE (arXiv 2602.01469): all draft tokens from one pass",
    "eagle3": "EAGLE-3 (arXiv 2503.01840)",
    "eagle3.1": "EAGLE-3.1 (arXiv 2605.09992): EAGLE-3 with norms on what it reads of the target and of itself",
    "dflash": "DFlash (arXiv 2602.06036): all draft tokens from one pass, each beside all others",
    "mtp": "The target's own block for drafting (multi-token prediction), trained on",
    "dspark": "DSpark (arXiv 2607.05147): all draft tokens from one pass, each corrected by the one before it. "
    "Engines draft with it on GPUs alone, where no head of this trainer has been served yet: unverified",
}
_CARD = "\n".join(json.loads((Path(__file__).parent / "card.json").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class SourceReport:
    """The held-out acceptance on one source of the data."""

    source: str
    acceptance_length: float
    acceptance_length_low: float | None
    acceptance_length_high: float | None
    conversations: int


@dataclass(frozen=True)
class Report:
    """What is known of a trained head, as report.json has it.

    `acceptance_length` is what an engine that drafts num_speculative_tokens would have on held-out answers, with its
    95 % interval over `held_out_conversations`; `acceptance_per_depth` the share of its steps in which each draft token
    is accepted; `by_source` the same of each source of the data, if there are several; `by_conversation` number, tokens
    and steps of each held-out conversation: with those of another head on the same data, they say which is better.
    """

    method: str
    target: str
    target_revision: str | None
    depth: int
    layers: int
    num_speculative_tokens: int
    acceptance_length: float
    acceptance_length_low: float | None
    acceptance_length_high: float | None
    held_out_conversations: int
    by_source: tuple[SourceReport, ...]
    by_conversation: tuple[tuple[int, int, int], ...]
    acceptance_per_depth: tuple[float, ...]
    held_out_loss: float
    evaluations: tuple[tuple[int, float], ...]
    steps: int
    best_step: int
    ended: str
    tokens: int
    seconds: float
    seed: int
    learning_rate: float
    batch_tokens: int
    toolkit: str


def report_of(job: TrainingJob, result: Result) -> Report:
    found, sources = acceptance_of(result.walks), by_source(result.walks)
    return Report(
        method=job.method,
        target=job.target_name,
        target_revision=job.target_revision,
        depth=job.depth,
        layers=job.layers,
        num_speculative_tokens=job.num_speculative_tokens,
        **_figures(found),
        held_out_conversations=found.conversations,
        by_source=tuple(
            SourceReport(source=name, conversations=one.conversations, **_figures(one))
            for name, one in sources.items()
            if len(sources) > 1
        ),
        by_conversation=tuple((one, *sums) for one, sums in by_conversation(result.walks).items()),
        acceptance_per_depth=tuple(round(share, 4) for share in found.per_depth),
        held_out_loss=round(result.loss, 4),
        evaluations=tuple((step, round(length, 3)) for step, length in result.evaluations),
        steps=result.steps,
        best_step=result.best_step,
        ended=result.ended,
        tokens=result.tokens,
        seconds=round(result.seconds),
        seed=job.seed,
        learning_rate=job.learning_rate,
        batch_tokens=job.batch_tokens,
        toolkit=__version__,
    )


def _figures(found: Acceptance) -> dict[str, Any]:
    low, high = (None if end is None else round(end, 3) for end in (found.low, found.high))
    length = round(found.length, 3)
    return {"acceptance_length": length, "acceptance_length_low": low, "acceptance_length_high": high}


def write_head(head: Head, job: TrainingJob, report: Report, engine: TrainingEngine) -> Path:
    """Write the head to the job's folder `head`, all of it or nothing. Raises UsageError if that is not empty."""
    out = Path(job.head)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        exported, folder = Path(scratch) / "speculators", Path(scratch) / out.name
        if isinstance(head, MTPDraftModel):
            write_block(head, folder)
        else:
            head.verifier_norm = head.verifier_lm_head = nn.Identity()  # type: ignore[assignment]  # not its own
            head.bfloat16().save_pretrained(exported)  # type: ignore[operator]
            engine.convert(exported, folder)
        _name_target(folder / "config.json", job)
        write_whole(folder / REPORT, json.dumps(asdict(report), indent=2) + "\n")
        write_whole(folder / CARD, card(report, _kind(head, report.method), engine))
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"{out} is not empty", hint="Choose another folder, or remove this one.")
        folder.replace(out)
    return out


def _name_target(path: Path, job: TrainingJob) -> None:
    """config.json says for which target, and to which depth, the head was trained: `toolkit check` reads it there."""
    config = json.loads(path.read_text())
    config |= {"target_model": job.target_name, "target_revision": job.target_revision, "num_depths": job.depth}
    write_whole(path, json.dumps(config, indent=2) + "\n")


def _kind(head: Head, method: str) -> str:
    """What the card calls such a head; one that is continued may have norms of which the job does not speak."""
    normed = method == "eagle3" and all(getattr(head.config, key) for key in EAGLE_3_1)
    return _KINDS["eagle3.1" if normed else method]


def card(report: Report, kind: str, engine: TrainingEngine) -> str:
    """The model card, README.md, with every figure of the report."""
    revision = f", revision `{report.target_revision}`" if report.target_revision else ""
    rows = [
        ("layers", report.layers),
        ("trained to depth", report.depth),
        ("steps", f"{report.steps}, best after {report.best_step}" + (f", ended: {report.ended}" * bool(report.ended))),
        ("tokens learned", report.tokens),
        ("tokens of a step", report.batch_tokens),
        ("learning rate", report.learning_rate),
        ("seed", report.seed),
        ("seconds", report.seconds),
        ("held-out loss", report.held_out_loss),
        (f"held-out acceptance length at K={report.num_speculative_tokens}", _length(report)),
        ("held-out conversations", report.held_out_conversations),
    ]
    return _CARD.format(
        **asdict(report),
        kind=kind,
        revision=revision,
        rows=_table(rows),
        sources=_sources(report.by_source),
        depths=_table((depth, f"{share:.1%}") for depth, share in enumerate(report.acceptance_per_depth, start=1)),
        lengths=_table((step, f"{length:.2f}") for step, length in report.evaluations),
        engine=lookup.engine_title(),
        command=engine.serve_command(report.method, report.num_speculative_tokens),
    )


def _length(found: Report | SourceReport) -> str:
    """`3.21 (3.05-3.38)`."""
    if found.acceptance_length_low is None or found.acceptance_length_high is None:
        return f"{found.acceptance_length:.2f}"
    low, high = found.acceptance_length_low, found.acceptance_length_high
    return f"{found.acceptance_length:.2f} ({low:.2f}-{high:.2f})"


def _sources(found: Sequence[SourceReport]) -> str:
    """A table of the sources of the data, nothing where there is one."""
    if not found:
        return ""
    rows = "\n".join(f"| {one.source} | {one.conversations} | {_length(one)} |" for one in found)
    return f"| source | held-out conversations | acceptance length |\n|---|---|---|\n{rows}\n\n"


def _table(rows: Iterable[tuple[object, object]]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows)
