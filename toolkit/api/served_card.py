"""A head's model card: its section "Served", with what was measured of the head where it serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit.api.outside import OUTSIDE, Outside
from toolkit.api.training_run import TrainingRun
from toolkit.api.trials import circumstances
from toolkit.apply.progress import Progress, default_progress
from toolkit.files import write_whole
from toolkit.loading import load as load_recipe
from toolkit.measure.headline import comparable, headline, speedup_of
from toolkit.measure.measurement import ArmReport
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import between_arms_in_words, interval, load
from toolkit.recipe.content import CARD
from toolkit.recipe.recipe import Recipe

_SERVED = re.compile(r"^## Served$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_NOT_STATED = "the target's own dtype"


def write_served(
    run: TrainingRun,
    report: BenchReport,
    *,
    platform: str | None = None,
    progress: Progress | None = None,
    _outside: Outside = OUTSIDE,
) -> str:
    """Put what was measured of a trained head into its model card, in place of what was measured before; where it is.

    Raises PlatformError.
    """
    recipe = load_recipe(run.recipe, platform)
    assert recipe.drafter
    section = served_section(recipe, report)
    if (folder := recipe.drafter.folder) is not None:
        path = folder / CARD
        before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else run.card
        write_whole(path, with_served(before, section))
        return str(path)
    opened = _outside.open_trainer(recipe, None)
    with TemporaryDirectory(prefix="toolkit-") as scratch:
        write_whole(Path(scratch) / CARD, with_served(run.card, section))
        opened.put_head(Path(scratch), str(recipe.drafter), progress or default_progress())
    return f"{str(recipe.drafter).rstrip('/')}/{CARD}"


def with_served(card: str, section: str) -> str:
    """The card with this section in place of the one it has, or at its end."""
    if (match := _SERVED.search(card)) is None:
        return f"{card.rstrip()}\n\n{section}".lstrip()
    rest = card[match.end() :]
    return card[: match.start()] + section + (f"\n{rest}" if rest else "")


def served_section(recipe: Recipe, report: BenchReport) -> str:
    """The section: what was measured with what, and a row for each workload, load and arm."""
    speculation, made = recipe.speculation, circumstances(recipe)
    assert speculation
    dtype = recipe.engine.args.get("dtype", "auto")
    short = headline(report)
    lines = [
        "## Served",
        "",
        f"Measured by toolkit {made['toolkit']} on {made['date']}: {made['engine']},",
        f"{_NOT_STATED if dtype == 'auto' else dtype}, {made['hardware']}, {speculation.method} with",
        f"num_speculative_tokens {speculation.num_speculative_tokens}. Load: concurrent requests. Acceptance length:",
        "tokens of a step of the target. Speedup: output tokens per second over those of the target without",
        "speculation. In brackets: 95 % intervals.",
        "",
        f"{short.title}. {' '.join(short.sentences)}".strip(),
        "",
        "| workload | load | arm | acceptance length | speedup |",
        "|---|---|---|---|---|",
        *_rows(report),
    ]
    compared = [f"- {sentence}" for sentence in between_arms_in_words(report)] if comparable(report) else []
    return "\n".join([*lines, *(["", *compared] if compared else []), ""])


def _rows(report: BenchReport) -> Iterator[str]:
    """A line for each arm that drafts."""
    for arm in report.arms:
        if arm.acceptance_length is None:
            continue
        speedup = speedup_of(report, arm) if comparable(report) else None
        cells = (arm.workload, load(arm), arm.arm, _acceptance(arm), interval(speedup) if speedup else "")
        yield f"| {' | '.join(cell.replace('|', ' ') for cell in cells)} |"


def _acceptance(arm: ArmReport) -> str:
    if arm.acceptance_length_low is None or arm.acceptance_length_high is None:
        return f"{arm.acceptance_length:.2f}"
    return f"{arm.acceptance_length:.2f} ({arm.acceptance_length_low:.2f}-{arm.acceptance_length_high:.2f})"
