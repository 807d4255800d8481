"""`toolkit register`: a recipe as a version of a model in SageMaker's model registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import toolkit
from toolkit.cli.arguments import Json, Recipe, Yes
from toolkit.cli.output import answer, confirm, lines, say
from toolkit.cli.plan_text import plan_text

if TYPE_CHECKING:
    from toolkit.planning.plan import Plan


def register(
    recipe: Recipe,
    group: Annotated[str, typer.Option(help="The model package group; it is created if it does not exist.")],
    report: Annotated[
        Path | None, typer.Option(help="What was measured: a file that `toolkit prove … --json` wrote.")
    ] = None,
    status: Annotated[
        Literal["PendingManualApproval", "Approved", "Rejected"] | None,
        typer.Option(help="The version's approval.  [default of a new version: PendingManualApproval]"),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Register a recipe as a model version in SageMaker's model registry; `toolkit deploy ARN` deploys it from there.

    The weights, the recipe and its lock are copied to S3. A recipe that is registered already makes no new version.
    """

    def ask(plan: Plan) -> None:
        if not yes:
            say(plan_text(plan))
        confirm(f"Register this in {plan.account} {plan.region}?", yes)

    made = toolkit.register(recipe, group=group, report=report, status=status, approve=ask)
    rows = [
        ("version", f"{made.version} of {made.group}, {made.done}"),
        ("status", made.status),
        ("arn", made.arn),
        *([("training job", made.training_job)] if made.training_job else []),
    ]
    then = ("deploy", made.arn) if made.status == "Approved" else ()
    answer(made.to_dict(), as_json, lambda: lines(rows), then=then)
    if not then and not as_json:
        approve = f"aws sagemaker update-model-package --model-package-arn {made.arn} --model-approval-status Approved"
        say(f"Next: {approve}, then toolkit deploy {made.arn}")
