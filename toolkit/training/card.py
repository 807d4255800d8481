"""The folder of a trained head: weights and config.json for the engine, report.json, and a model card."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.files import write_whole
from toolkit.recipe.content import CARD
from toolkit.training.engine import TrainingEngine
from toolkit.training.head import Head
from toolkit.training.job import TrainingJob
from toolkit.training.loop import Result
from toolkit.version import __version__

REPORT = "report.json"
_CARD = "\n".join(json.loads((Path(__file__).parent / "card.json").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Report:
    """What is known of a trained head, as report.json has it.

    `acceptance_per_depth` is the share of drafts that the target accepts up to each depth, on held-out data;
    `acceptance_length` the tokens of one step of the target that follow from it, at num_speculative_tokens.
    """

    method: str
    target: str
    target_revision: str | None
    depth: int
    layers: int
    num_speculative_tokens: int
    acceptance_length: float
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
    acceptance = result.held_out.acceptance
    return Report(
        method=job.method,
        target=job.target_name,
        target_revision=job.target_revision,
        depth=job.depth,
        layers=job.layers,
        num_speculative_tokens=job.num_speculative_tokens,
        acceptance_length=round(1 + sum(acceptance[: job.num_speculative_tokens]), 3),
        acceptance_per_depth=tuple(round(share, 4) for share in acceptance),
        held_out_loss=round(float(result.held_out.loss) / max(1, result.held_out.count), 4),
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


def write_head(head: Head, job: TrainingJob, report: Report, engine: TrainingEngine) -> Path:
    """Write the head to the job's folder `head`, all of it or nothing. Raises UsageError if that is not empty."""
    out = Path(job.head)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        exported, folder = Path(scratch) / "speculators", Path(scratch) / out.name
        head.bfloat16().save_pretrained(exported)  # type: ignore[operator]
        engine.convert(exported, folder)
        _name_target(folder / "config.json", job)
        write_whole(folder / REPORT, json.dumps(asdict(report), indent=2) + "\n")
        write_whole(folder / CARD, card(report, engine))
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"{out} is not empty", hint="Choose another folder, or remove this one.")
        folder.replace(out)
    return out


def _name_target(path: Path, job: TrainingJob) -> None:
    """config.json says for which target, and to which depth, the head was trained: `toolkit check` reads it there."""
    config = json.loads(path.read_text())
    config |= {"target_model": job.target_name, "target_revision": job.target_revision, "num_depths": job.depth}
    write_whole(path, json.dumps(config, indent=2) + "\n")


def card(report: Report, engine: TrainingEngine) -> str:
    """The model card, README.md, with every figure of the report."""
    revision = f", revision `{report.target_revision}`" if report.target_revision else ""
    parallel = report.method == "p-eagle"
    kind = "P-EAGLE (arXiv 2602.01469): all draft tokens from one pass" if parallel else "EAGLE-3 (arXiv 2503.01840)"
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
        (f"held-out acceptance length at K={report.num_speculative_tokens}", report.acceptance_length),
    ]
    return _CARD.format(
        **asdict(report),
        kind=kind,
        revision=revision,
        rows=_table(rows),
        depths=_table((depth, f"{share:.1%}") for depth, share in enumerate(report.acceptance_per_depth, start=1)),
        lengths=_table((step, f"{length:.2f}") for step, length in report.evaluations),
        engine=lookup.engine_title(),
        command=engine.serve_command(report.method, report.num_speculative_tokens),
    )


def _table(rows: Iterable[tuple[object, object]]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows)
