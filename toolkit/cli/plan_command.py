"""`toolkit plan`: as a table, as JSON, as a template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.cli.arguments import Baseline, Json, PlatformName
from toolkit.cli.fleet import PARALLEL, Discount, Parallel, Recipes, show_plan
from toolkit.cli.output import answer, say
from toolkit.cli.plan_text import plan_text
from toolkit.errors import UsageError
from toolkit.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping


def plan(
    recipes: Recipes,
    baseline: Baseline = False,
    platform: PlatformName = None,
    form: Annotated[
        Literal["table", "json", "cloudformation", "ci-roles", "role-policy"],
        typer.Option(
            "--format",
            help="Output format. `json` is the same as --json; `cloudformation` is a template of the endpoint; "
            "`ci-roles` is a template of two roles for GitHub Actions, one that only plans and one that deploys; "
            "`role-policy` is the policy that an execution role needs.",
        ),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Save the plan to this file, for `toolkit deploy --plan`; with --format, save the template instead."
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Also show each value that an update changes; with several recipes, show the plan of each.",
        ),
    ] = False,
    parallel: Parallel = PARALLEL,
    discount: Discount = 0.0,
    as_json: Json = False,
) -> None:
    """Show what deploying would create, change and remove, and why. Starts nothing."""
    from toolkit.api.deployment import plan as make
    from toolkit.api.fleet import is_fleet

    if as_json and form != "table":
        raise UsageError(f"--json cannot be combined with --format {form}", hint="Remove one of them.")
    if is_fleet(recipes):
        if out or form not in ("table", "json"):
            option = f"--format {form}" if form not in ("table", "json") else "--out"
            raise UsageError(f"{option} is for one recipe, and these are several", hint="Give them one by one.")
        show_plan(
            recipes,
            platform=platform,
            baseline=baseline,
            parallel=parallel,
            verbose=verbose,
            discount=discount,
            as_json=as_json or form == "json",
        )
        return
    (recipe,) = recipes
    if form == "cloudformation":
        _write_template(recipe, platform, baseline, out)
        return
    if form == "ci-roles":
        _write_roles(recipe, platform, out)
        return
    if form == "role-policy":
        _write_policy(recipe, platform, baseline, out)
        return
    planned = make(recipe, platform=platform, baseline=baseline, discount_percent=discount)
    if out:
        planned.save(out)
        option = f" --platform {platform}" if platform else ""
        say(f"saved; to apply it: toolkit deploy --plan {out}{option}")
    options = ("--platform", platform) if platform else ()
    deploy = ("deploy", recipe, *options, "--baseline" if baseline else None)
    then = deploy if planned.changes else ("invoke", planned.endpoints[0], "Hello", *options)
    answer(
        planned.to_dict(),
        as_json or form == "json",
        lambda: plan_text(planned, verbose=verbose),
        then=() if out else then,
    )


def _write_template(recipe: str, platform: str | None, baseline: bool, out: Path | None) -> None:
    from toolkit.api.export import template
    from toolkit.platforms.sagemaker.rules import RULES
    from toolkit.platforms.sagemaker.rules.cloudformation import STAGE_FIRST, losses

    document = template(recipe, platform=platform, baseline=baseline)
    _print_template(document, out)
    for line in losses(document, RULES.kinds):
        say(f"warning: {line}")
    for step in document["Metadata"][STAGE_FIRST]:
        say(f"before you create the stack, provide {step['what']}: {step['command']}")
    file = out or "FILE"
    create = f"aws cloudformation deploy --template-file {file} --stack-name NAME --capabilities CAPABILITY_NAMED_IAM"
    say(f"then create the stack: {create}")


def _write_roles(recipe: str, platform: str | None, out: Path | None) -> None:
    from toolkit.api.export import ci_roles

    _print_template(ci_roles(recipe, platform=platform), out)
    create = (
        f"aws cloudformation deploy --template-file {out or 'FILE'} --stack-name NAME --capabilities CAPABILITY_IAM"
    )
    say(f"then create the stack: {create} --parameter-overrides Repository=OWNER/NAME")


def _write_policy(recipe: str, platform: str | None, baseline: bool, out: Path | None) -> None:
    from toolkit.api.export import role_policy

    _print_template(role_policy(recipe, platform=platform, baseline=baseline), out)
    put = f"aws iam put-role-policy --role-name ROLE --policy-name toolkit --policy-document file://{out or 'FILE'}"
    say(f"SageMaker (sagemaker.amazonaws.com) must be allowed to assume the role; to attach the policy: {put}")


def _print_template(document: Mapping[str, object], out: Path | None) -> None:
    from toolkit.planning.resources import NO_ACCOUNT

    text = json.dumps(document, indent=2)
    if out:
        write_whole(out, f"{text}\n")
    else:
        print(text)  # noqa: T201
    if NO_ACCOUNT in text:
        say(f"warning: the template has {NO_ACCOUNT} in place of your account number: log in to AWS and run this again")
