"""`toolkit train`: make the head that a recipe names."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli.output import answer, confirm, exit_unless, next_step, say
from toolkit.cli.recipe_commands import Json, PlatformName, Recipe, plan_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.api.endpoint import Endpoint
    from toolkit.api.training import TrainingRun
    from toolkit.measure.report import BenchReport

# Of each arm, as `toolkit prove` takes.
_PROOF_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    app.command()(train)


def train(
    recipe: Recipe,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be created, and start nothing.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a head that lies where this one is to be put.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Return only when the head is trained.")] = True,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Then deploy it with its baseline, prove that it pays, and say so in its card."),
    ] = False,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            help="With --deploy: measure another endpoint beside it, a recipe, a name or a URL. May be repeated.",
            metavar="WHAT",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is billed.")] = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Train the head that a recipe's section `training` describes, and put it where `speculation.model` names it.

    Run it again to wait for a job that still runs, or to go on where one was interrupted.
    """
    from toolkit.api import jobs, measuring, training

    if arm and not deploy:
        raise typer.BadParameter("--arm is measured beside the served head: add --deploy")
    planned = training.train_plan(recipe, platform=platform)
    if dry_run:
        answer(planned.to_dict(), as_json, lambda: plan_text(planned))
        return
    measuring.require_arms(arm or (), platform=platform)
    cost = training.price(recipe, platform=platform)
    if cost and jobs.starts_job(planned):
        exit_unless(confirm(f"This starts {cost}. Go on?", yes))
    given = {"--overwrite": overwrite, "--deploy": deploy, "--yes": yes}
    arms = [part for one in arm or () for part in ("--arm", one)]
    options = [*(("--platform", platform) if platform else ()), *(option for option, on in given.items() if on), *arms]
    again = shlex.join(["toolkit", "train", recipe, *options])
    run = training.train(recipe, platform=platform, overwrite=overwrite, wait=wait or deploy, again=again)
    if deploy:
        _deploy(recipe, platform, run, arm or (), yes, as_json)
        return
    answer(run.to_dict(), as_json, lambda: _text(run))
    if run.head and not as_json:
        next_step("deploy", recipe, *(("--platform", platform) if platform else ()), "--baseline")


def _deploy(recipe: str, platform: str | None, run: TrainingRun, arms: Sequence[str], yes: bool, as_json: bool) -> None:
    """As `toolkit deploy RECIPE --baseline` does, with further arms; what is measured goes into the head's card."""
    from toolkit.api.served_card import write_served
    from toolkit.cli.endpoint_commands import approve_price, finish

    def prove(endpoint: Endpoint) -> BenchReport:
        seconds = _PROOF_SECONDS * (1 + len(arms))
        report = toolkit.bench(endpoint, arms=arms, concurrency=(1,), seconds=seconds, platform=platform)
        if report.complete:
            say(f"the figures are in {write_served(run, report, platform=platform)}")
        return report

    if not as_json:
        print(_text(run), end="\n\n")  # noqa: T201
    endpoint = toolkit.deploy(recipe, platform=platform, baseline=True, approve=None if yes else approve_price)
    finish(endpoint, as_json=as_json, also={"training": run.to_dict()}, prove=prove)


def _text(run: TrainingRun) -> str:
    return "\n".join(f"{name}: {text}" for name, text in run.rows())
