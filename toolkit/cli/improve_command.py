"""`toolkit improve`: a better head for a live endpoint, from its own traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.bench_command import counts_of
from toolkit.cli.durations import seconds_of
from toolkit.cli.endpoint_commands import Name
from toolkit.cli.output import answer, confirm, exit_unless, next_step, say
from toolkit.cli.recipe_commands import Json, PlatformName, plan_text

if TYPE_CHECKING:
    from toolkit.api.improvement import ImprovementPlan


def register(app: typer.Typer) -> None:
    app.command()(improve)


def improve(
    name: Name,
    concurrency: Annotated[str, typer.Option(help="Numbers of concurrent requests.", metavar="N,…")] = "1",
    time: Annotated[str, typer.Option(help="Measure both heads this long at most.", metavar="T")] = "5m",
    promote: Annotated[bool, typer.Option(help="Deploy the new head if it is better.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and what it costs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is billed.")] = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Continue a live endpoint's head on its traffic, measure it beside the old one, deploy it if it is better.

    The traffic is what the endpoint captures of its requests, else `training.data` of its recipe. Exit code 1 if the
    new head was not promoted. Run it again to go on where it was interrupted.
    """
    from toolkit.api import improvement

    loads, seconds = counts_of(concurrency), seconds_of(time)
    if dry_run:
        planned = improvement.improve_plan(name, platform=platform)
        answer(planned.to_dict(), as_json, lambda: _plan_text(planned))
        return
    approve = None if yes else _approve_price
    found = improvement.improve(
        name, concurrency=loads, seconds=seconds, promote=promote, platform=platform, approve=approve
    )
    answer(found.to_dict(), as_json, lambda: "\n".join(f"{key}: {text}" for key, text in found.rows()))
    exit_unless(bool(found) or not promote)
    if not as_json:
        next_step("prove" if promote else "deploy", name)


def _approve_price(planned: ImprovementPlan) -> None:
    """Ask before something is made that is billed."""
    say(_plan_text(planned))
    if planned.price:
        exit_unless(confirm(f"This starts {planned.price}. Go on?", yes=False))


def _plan_text(planned: ImprovementPlan) -> str:
    rows = "\n".join(f"{key}: {text}" for key, text in planned.rows())
    return f"{rows}\n\n{plan_text(planned.training, cost=False)}" if planned.training else rows
