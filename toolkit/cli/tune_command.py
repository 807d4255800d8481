"""Commands that look for what is faster: the best setting (`tune`), a better head for a live endpoint (`improve`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.cli.arguments import Json, PlatformName, Recipe, YesToPrice, seconds_of
from toolkit.cli.bench_options import Prompts, WorkloadNames, counts_of, slo_of
from toolkit.cli.endpoint_commands import Name
from toolkit.cli.output import answer, confirm, lines, say
from toolkit.cli.plan_text import plan_text
from toolkit.cli.table import table, terminal_width

if TYPE_CHECKING:
    from toolkit.api.improvement import ImprovementPlan
    from toolkit.measure.tune_report import TuneReport


_RANGE = re.compile(r"(?P<first>\d+)-(?P<last>\d+)")
_MOST_K = 64


def tune(
    recipe: Recipe,
    k: Annotated[str, typer.Option("--k", help="Draft tokens per target step: 1-10, or 3,5,7.", metavar="K")] = "1-10",
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="Also measure this recipe of the same target. May be repeated.", metavar="RECIPE"),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--try", help="Also measure these methods, which need no drafter.", metavar="ngram,suffix"),
    ] = None,
    concurrency: Annotated[
        str,
        typer.Option(help="Numbers of concurrent requests. With several, a K by batch size is tried.", metavar="N,…"),
    ] = "1",
    slo: Annotated[
        str | None,
        typer.Option(
            help="Count only settings whose p90 is within these limits: seconds, or with `ms`.",
            metavar="ttft=…,tpot=…,e2e=…",
        ),
    ] = None,
    goal: Annotated[
        Literal["latency", "cost"],
        typer.Option("--for", help="The fastest setting, or the one with the cheapest tokens."),
    ] = "latency",
    prompts: Prompts = None,
    workload: WorkloadNames = None,
    time: Annotated[str, typer.Option(help="Measure each setting this long at most.", metavar="T")] = "60s",
    write: Annotated[
        bool, typer.Option("--write", help="Write the winner's K and its figures into the recipe. Comments stay.")
    ] = False,
    yes: YesToPrice = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Find the best K by measuring about half of them against the baseline, and compare other methods and recipes.

    Each setting is deployed, measured and removed; the best is measured once more when it is chosen. Ctrl-C removes
    what runs; the same command then carries on. Exit code 1 if nothing is better than the baseline.
    """
    from toolkit.api import tuning

    ks, loads, limits = _ks(k), counts_of(concurrency), slo_of(slo) if slo else None
    if cost := tuning.price(recipe, platform=platform):
        confirm(f"This starts {cost}. Go on?", yes)
    report = tuning.tune(
        recipe,
        k=ks,
        arms=arm or (),
        methods=[name.strip() for name in methods.split(",")] if methods else (),
        concurrency=loads,
        slo=limits,
        goal=goal,
        workloads=[*map(str, prompts or ()), *(workload or ())],
        seconds=seconds_of(time),
        write=write,
        platform=platform,
    )
    then = ("deploy", recipe) if write else ("tune", recipe, "--write")
    answer(report.to_dict(), as_json, lambda: tune_text(report), yes=report.ok, then=then)


def tune_text(report: TuneReport, room: int | None = None) -> str:
    """The report as text, at most `room` characters wide; by default as wide as the terminal."""
    from toolkit.cli.report_text import wrapped
    from toolkit.measure.tune_report import COLUMNS
    from toolkit.measure.wording import drop_empty_columns

    room = terminal_width() if room is None else room
    rows = [row.cells(report.winner) for row in report.rows]
    head, below = wrapped([f"{report.title}: {report.answer}"], room), wrapped(report.lines(), room)
    return "\n\n".join([head, table(*drop_empty_columns(COLUMNS, rows), room), below])


def _ks(text: str) -> tuple[int, ...]:
    """The K of `1-10`, or of `3,5,7`."""
    if span := _RANGE.fullmatch(text):
        first, last = int(span["first"]), int(span["last"])
        ks = tuple(range(first, min(last, _MOST_K + 1) + 1))
    else:
        ks = tuple(int(part) for part in text.split(",") if part.isdecimal())
    if not ks or min(ks) < 1 or max(ks) > _MOST_K or len(ks) < text.count(",") + 1:
        raise typer.BadParameter(f"{text!r} is not a choice of K from 1 to {_MOST_K}: write 1-10 or 3,5,7")
    return ks


def improve(
    name: Name,
    concurrency: Annotated[str, typer.Option(help="Numbers of concurrent requests.", metavar="N,…")] = "1",
    time: Annotated[str, typer.Option(help="Measure both heads this long at most.", metavar="T")] = "5m",
    promote: Annotated[bool, typer.Option(help="Deploy the new head if it is better.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and what it costs.")] = False,
    yes: YesToPrice = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Train a live endpoint's head further on its traffic, measure both heads, and deploy the new one if it is better.

    The traffic is the requests that the endpoint has captured, or else the recipe's `training.data`. Exit code 1 if the
    new head was not promoted. Run it again to go on where it was interrupted.
    """
    from toolkit.api import improvement

    loads, seconds = counts_of(concurrency), seconds_of(time)
    if dry_run:
        planned = improvement.improve_plan(name, platform=platform)
        answer(planned.to_dict(), as_json, lambda: _plan_text(planned))
        return
    approve = None if yes else _approve_price
    improved = improvement.improve(
        name, concurrency=loads, seconds=seconds, promote=promote, platform=platform, approve=approve
    )
    then = ("prove" if promote else "deploy", name)
    answer(improved.to_dict(), as_json, lambda: lines(improved.rows()), yes=bool(improved) or not promote, then=then)


def _approve_price(planned: ImprovementPlan) -> None:
    """Ask before something is made that is billed."""
    say(_plan_text(planned))
    if planned.price:
        confirm(f"This starts {planned.price}. Go on?", yes=False)


def _plan_text(planned: ImprovementPlan) -> str:
    rows = lines(planned.rows())
    return f"{rows}\n\n{plan_text(planned.training, cost=False)}" if planned.training else rows
