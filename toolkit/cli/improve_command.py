"""`toolkit improve`: a better head for a live endpoint, from its own traffic."""

from __future__ import annotations

from typing import Annotated

import typer

from toolkit.cli.bench_command import counts_of
from toolkit.cli.durations import seconds_of
from toolkit.cli.output import answer, confirm, exit_unless, next_step
from toolkit.cli.recipe_commands import Json, PlatformName, Recipe


def register(app: typer.Typer) -> None:
    app.command()(improve)


def improve(
    recipe: Recipe,
    concurrency: Annotated[str, typer.Option(help="Numbers of concurrent requests.", metavar="N,…")] = "1",
    time: Annotated[str, typer.Option(help="Measure both heads this long at most.", metavar="T")] = "5m",
    promote: Annotated[bool, typer.Option(help="Deploy the new head if it is better.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is billed.")] = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Continue the head of a deployed recipe on its traffic, measure it beside the old one, deploy it if it is better.

    The traffic is `training.data` of the recipe, such as the prefix of the endpoint's data capture. Exit code 1 if the
    new head was not promoted.
    """
    from toolkit.api import improvement, training, tuning

    loads, seconds = counts_of(concurrency), seconds_of(time)
    costs = [training.price(recipe, platform=platform), tuning.price(recipe, platform=platform)]
    if any(costs):
        exit_unless(confirm(f"This starts {'; then '.join(filter(None, costs))}. Go on?", yes))
    found = improvement.improve(recipe, concurrency=loads, seconds=seconds, promote=promote, platform=platform)
    answer(found.to_dict(), as_json, lambda: "\n".join(f"{name}: {text}" for name, text in found.rows()))
    exit_unless(bool(found) or not promote)
    if not as_json:
        next_step("prove" if promote else "deploy", recipe)
