"""`toolkit study`: AWS's study of speculative decoding on Trainium, as one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli.arguments import Json, PlatformName, YesToPrice, seconds_of
from toolkit.cli.bench_options import Html
from toolkit.cli.output import CutShort, answer, confirm, exit_unless, say
from toolkit.cli.plan_text import plan_text
from toolkit.cli.table import table, terminal_width

if TYPE_CHECKING:
    from toolkit.measure.study import StudyReport


def study(
    what: Annotated[
        str,
        typer.Argument(
            help="A recipe, or a model such as qwen3-32b, whose recipe for --hardware is taken.", metavar="WHAT"
        ),
    ],
    hardware: Annotated[
        str | None, typer.Option(help="The hardware of a model's recipe, such as trn2.", metavar="NAME")
    ] = None,
    time: Annotated[str, typer.Option(help="Measure both arms this long at most.", metavar="T")] = "30m",
    html: Html = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what both arms would create; start nothing.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave both arms in service, also after Ctrl-C.")] = False,
    yes: YesToPrice = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Repeat AWS's study of draft models on Trainium: both arms, eight classes of prompts, its table beside yours.

    Both arms are compiled, deployed, measured in turn and removed, also after Ctrl-C; run again, the study carries on
    from what was measured. Endpoints that were there before are not removed, nor are those that a killed study left:
    if they serve what the recipe says, they are measured as they are. Exit code 1 if a claim fails (speculation need
    not pay on every class), 3 if something of the arms may remain.
    """
    from toolkit.api import studying
    from toolkit.cli.bench_command import require_page, write_page

    recipe, seconds = studying.studied_recipe(what, hardware, platform), seconds_of(time)
    if dry_run:
        planned = toolkit.plan(recipe, baseline=True)
        answer(planned.to_dict(), as_json, lambda: plan_text(planned))
        return
    if html:
        require_page(html)
    if cost := studying.price(recipe):
        confirm(f"This starts {cost}. Go on?", yes)
    report = toolkit.study(recipe, seconds=seconds, keep=keep)
    answer(report.to_dict(), as_json, lambda: study_text(report))  # before what may fail
    if html:
        write_page(report, html)
    if report.remains:
        say(report.remains)
        raise typer.Exit(3)  # as what a platform refuses
    if report.report.interrupted:
        say("interrupted: what was measured is kept. The same command carries on.")
        raise CutShort
    exit_unless(report.ok)


def study_text(report: StudyReport, room: int | None = None) -> str:
    """The report as text, at most `room` characters wide; by default as wide as the terminal."""
    from toolkit.cli.report_text import wrapped
    from toolkit.measure.headline import headline
    from toolkit.measure.study import COLUMNS, LEGEND, PUBLISHED, SETTING, figure_rows, published, source_lines
    from toolkit.measure.wording import small_print

    room = terminal_width() if room is None else room
    short = headline(report.report)
    parts = (
        wrapped([f"{report.report.title}: {short.title}", *short.sentences], room),
        f"{LEGEND}\n{table(COLUMNS, [*report.rows()], room)}",
        f"{published().title}, {published().date}\n{table(PUBLISHED, figure_rows(), room)}",
        table(SETTING, report.setting_rows(), room),
        wrapped(report.notes(), room),
        "\n".join(source_lines()),  # whole, to be copied
        wrapped(small_print(report.report), room),
    )
    return "\n\n".join(parts)
