"""`toolkit compile`: what an endpoint on Trainium starts with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.output import answer
from toolkit.cli.recipe_commands import Json, PlatformName, Recipe
from toolkit.cli.table import table

if TYPE_CHECKING:
    from toolkit.planning.plan import Action, Plan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="compile")(compile_recipe)


def compile_recipe(
    recipe: Recipe,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Also for the same endpoint without speculation.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be made. Starts nothing.")] = False,
    wait: Annotated[bool, typer.Option(help="Return only when it is compiled.")] = True,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Compile for Trainium ahead of an endpoint, in a SageMaker training job; nothing if it is compiled already.

    Run it again to wait for a job that is under way.
    """
    from toolkit import api

    if dry_run:
        made = api.compile_plan(recipe, platform=platform, baseline=baseline)
        answer(made.to_dict(), as_json, lambda: _plan_text(made))
        return
    done = api.compile(recipe, platform=platform, baseline=baseline, wait=wait)
    answer(done.to_dict(), as_json, lambda: _done_text(done, wait))


def _plan_text(made: Plan) -> str:
    actions = table(("verb", "kind", "name", "because it"), [(a.verb, a.kind, a.name, a.reason) for a in made.actions])
    return "\n".join([actions, "", f"{len(made.changes)} changes on {made.platform}", *made.notes])


def _done_text(done: Plan, waited: bool) -> str:
    return "\n".join(_job_text(action, waited) for action in done.actions if action.kind == "TrainingJob")


def _job_text(job: Action, waited: bool) -> str:
    address = job.request["CheckpointConfig"]["S3Uri"]
    if not waited and job.verb != "reuse":
        return f"{job.name} compiles to {address}"
    return f"compiled: {address}\n  It stays when the endpoint goes. Remove it: aws s3 rm --recursive {address}"
