"""`toolkit compile`: compile the models for Trainium before their endpoint is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli.output import answer, next_step
from toolkit.cli.recipe_commands import Json, PlatformName, Recipe, plan_text

if TYPE_CHECKING:
    from toolkit.planning.plan import Action, Plan


def register(app: typer.Typer) -> None:
    app.command(name="compile")(compile_recipe)


def compile_recipe(
    recipe: Recipe,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Also compile the baseline: the same endpoint without speculation.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be created, and start nothing.")] = False,
    wait: Annotated[bool, typer.Option(help="Return only when it is compiled.")] = True,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Compile a recipe for Trainium in a SageMaker training job, before it is deployed. Skips what is compiled already.

    Run it again to wait for a job that is still running.
    """
    from toolkit.api.compilation import compile_plan

    if dry_run:
        planned = compile_plan(recipe, platform=platform, baseline=baseline)
        answer(planned.to_dict(), as_json, lambda: plan_text(planned, cost=False))
        return
    done = toolkit.compile(recipe, platform=platform, baseline=baseline, wait=wait)
    answer(done.to_dict(), as_json, lambda: _done_text(done, wait))
    if wait:
        next_step("deploy", recipe, "--baseline" if baseline else None)


def _done_text(done: Plan, waited: bool) -> str:
    return "\n".join(_job_text(action, waited) for action in done.actions if action.kind == "TrainingJob")


def _job_text(job: Action, waited: bool) -> str:
    address = job.request["CheckpointConfig"]["S3Uri"]
    if not waited and job.verb != "reuse":
        return f"{job.name} is compiling to {address}"
    return f"compiled: {address}\n  `toolkit destroy` keeps it. To remove it: aws s3 rm --recursive {address}"
