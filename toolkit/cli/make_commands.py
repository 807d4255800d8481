"""Commands that make what an endpoint starts with: a trained head, compiled models, a head of another tool's."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit import registry
from toolkit.cli.arguments import Json, PlatformName, Recipe, YesToPrice
from toolkit.cli.fleet import Discount
from toolkit.cli.output import answer, confirm, lines, next_step, say
from toolkit.cli.plan_text import plan_text
from toolkit.cli.table import paragraphs, table
from toolkit.engines import registry as engine_registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.api.endpoint import Endpoint
    from toolkit.api.training_run import TrainingRun
    from toolkit.findings import Finding
    from toolkit.measure.report import BenchReport
    from toolkit.planning.plan import Action
    from toolkit.recipe.facts import ModelFacts
    from toolkit.training.engine import TrainingEngine


DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be created, and start nothing.")]

_PROOF_SECONDS = 60.0
"""Seconds of measuring for each arm, as `toolkit prove` takes."""


def train(
    recipe: Recipe,
    dry_run: DryRun = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the head that is already there.")] = False,
    wait: Annotated[bool, typer.Option(help="Return only when the head is trained.")] = True,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            help="Train one head of each of these methods, on the same data and equally long, and say which is best.",
            metavar="METHOD,…",
        ),
    ] = None,
    take: Annotated[
        str | None,
        typer.Option(
            "--take",
            help="With --compare: put this method's head, or the `best` one, where the recipe names it, and write its "
            "method into the recipe.",
            metavar="METHOD",
        ),
    ] = None,
    deploy: Annotated[
        bool,
        typer.Option(
            "--deploy", help="Then deploy it with its baseline, prove it, and write the result into the head's card."
        ),
    ] = False,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            help="With --deploy: also measure this endpoint: a recipe, a name or a URL. May be repeated.",
            metavar="WHAT",
        ),
    ] = None,
    yes: YesToPrice = False,
    platform: PlatformName = None,
    discount: Discount = 0.0,
    as_json: Json = False,
) -> None:
    """Train the head that a recipe's section `training` describes, and put it where `speculation.model` names it.

    Run it again to wait for a job that still runs, or to go on where one was interrupted.
    """
    from toolkit.api import jobs, measuring, training

    if arm and not deploy:
        raise typer.BadParameter("--arm is measured beside the served head: add --deploy")
    methods = None if compare is None else [method.strip() for method in compare.split(",") if method.strip()]
    if deploy and methods and not take:
        raise typer.BadParameter("--compare leaves all heads in their job: add --take best, or leave out --deploy")
    planned = training.train_plan(recipe, platform=platform, compare=methods, take=take, discount_percent=discount)
    if dry_run:
        answer(planned.to_dict(), as_json, lambda: plan_text(planned))
        return
    measuring.require_arms(arm or (), platform=platform)
    cost = training.price(recipe, platform=platform, discount_percent=discount)
    if cost and jobs.starts_job(planned):
        heads = f", for heads of {', '.join(methods)}" if methods else ""
        confirm(f"This starts {cost}{heads}. Go on?", yes)
    there = ("--platform", platform) if platform else ()
    comparing = ("--compare", ",".join(methods)) if methods else ()
    given = {"--overwrite": overwrite, "--deploy": deploy, "--yes": yes}
    arms = [part for one in arm or () for part in ("--arm", one)]
    taking = ("--take", take) if take else ()
    options = [*there, *comparing, *taking, *(option for option, on in given.items() if on), *arms]
    again = shlex.join(["toolkit", "train", recipe, *options])
    run = training.train(
        recipe, platform=platform, compare=methods, take=take, overwrite=overwrite, wait=wait or deploy, again=again
    )
    if deploy:
        _deploy(recipe, platform, run, arm or (), yes, as_json)
        return
    then: Sequence[str] = ("deploy", recipe, *there, "--baseline") if run.head else ()
    if run.comparison and run.comparison.pays and not run.head:
        then = ("train", recipe, *there, *comparing, "--take", run.best)
    answer(run.to_dict(), as_json, lambda: _run_text(run), then=then)


def _run_text(run: TrainingRun) -> str:
    """What came of it, and of heads that were compared the table and which to take."""
    from toolkit.api.head_comparison import COLUMNS, NOTE
    from toolkit.measure.wording import drop_empty_columns

    found = lines(run.rows())
    if run.comparison is None:
        return found
    columns, rows = drop_empty_columns(COLUMNS, [head.cells() for head in run.comparison.heads])
    return "\n\n".join([found, table(columns, rows), paragraphs([NOTE, run.comparison.verdict])])


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
        print(_run_text(run), end="\n\n")  # noqa: T201
    endpoint = toolkit.deploy(recipe, platform=platform, baseline=True, approve=None if yes else approve_price)
    finish(endpoint, as_json=as_json, also={"training": run.to_dict()}, prove=prove)


def compile_(
    recipe: Recipe,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Also compile the baseline: the same endpoint without speculation.")
    ] = False,
    dry_run: DryRun = False,
    wait: Annotated[bool, typer.Option(help="Return only when it is compiled.")] = True,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Compile in a SageMaker training job before a recipe is deployed. Skips what is compiled already.

    For Trainium, and for GPUs where the recipe has `engine: {warm_start: true}`.

    Run it again to wait for a job that is still running.
    """
    from toolkit.api.jobs import compile_plan

    if dry_run:
        planned = compile_plan(recipe, platform=platform, baseline=baseline)
        answer(planned.to_dict(), as_json, lambda: plan_text(planned, cost=False))
        return
    done = toolkit.compile(recipe, platform=platform, baseline=baseline, wait=wait)
    jobs = [action for action in done.actions if action.kind == "TrainingJob"]
    answer(done.to_dict(), as_json, lambda: "\n".join(_job_text(job, wait) for job in jobs))
    if wait:
        next_step("deploy", recipe, "--baseline" if baseline else None)


def _job_text(job: Action, waited: bool) -> str:
    address = job.request["CheckpointConfig"]["S3Uri"]
    if not waited and job.verb != "reuse":
        return f"{job.name} is compiling to {address}"
    return f"compiled: {address}\n  `toolkit destroy` keeps it. To remove it: aws s3 rm --recursive {address}"


def convert(
    head: Annotated[
        Path, typer.Argument(help="Folder of the exported head (SpecForge, NeMo AutoModel or speculators).")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write. The exported head is not changed.")],
    target: Annotated[
        Path | None, typer.Option(help="Folder of the target model, to check that the head fits it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Convert a head that was trained with another tool into a folder that the engine loads."""
    from toolkit.checks.run import Report
    from toolkit.recipe.model_files import read_folder

    engine: TrainingEngine = engine_registry.training_engine()
    converted = engine.convert(head, out, target=target)
    findings = check_head(read_folder(target), read_folder(out), converted.method) if target else ()
    report = Report(str(out), findings)
    document = {
        "out": str(converted.out),
        "format": converted.format,
        "changes": list(converted.changes),
        "findings": [asdict(finding) for finding in findings],
    }
    said = [
        f"{converted.out}: {converted.method} head, converted from {converted.format}",
        *(f"  {change}" for change in converted.changes or ("no changes were needed",)),
        *(finding.line_for(report.recipe) for finding in findings),
    ]
    answer(document, as_json, lambda: "\n".join(said), yes=report.ok, then=("new", str(target)) if target else ())


def check_head(target: ModelFacts, head: ModelFacts, method: str) -> tuple[Finding, ...]:
    """The findings of `toolkit check` on this pair of models, for a recipe with method `p-eagle` or `eagle3`."""
    from toolkit.checks.models import check_pair
    from toolkit.loading import complete
    from toolkit.recipe.facts import Lock
    from toolkit.recipe.load import LoadedRecipe

    file = registry.recipe_schema().model_validate(
        {
            "name": "convert",
            "target": {"model": "./target"},
            "speculation": {"method": method, "model": "./head", "num_speculative_tokens": 1},
            "engine": {"version": "0.32.0"},
            "platform": {"name": "local"},
        }
    )
    recipe, models = complete(LoadedRecipe(file, Path("recipe.yaml"), {})), Lock(target, head)
    findings = (*recipe.engine_rules.check(recipe, models), *check_pair(recipe, models))
    return tuple(finding for finding in findings if finding.code.startswith("pair."))
