"""Commands that read recipes, and on which instance types they fit. They write lock files, saved plans and images."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import toolkit
from toolkit import registry
from toolkit.cli.output import answer, exit_unless, next_step, say
from toolkit.cli.table import paragraphs, table
from toolkit.errors import UsageError
from toolkit.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.api.fitting import Fits
    from toolkit.api.lock import Locked
    from toolkit.checks.run import Report
    from toolkit.findings import Finding
    from toolkit.planning.plan import Plan
    from toolkit.recipe.recipe import Recipe as CompleteRecipe


Recipe = Annotated[str, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Baseline = Annotated[
    bool, typer.Option("--baseline", help="Also include the baseline: the same endpoint without speculation.")
]
if TYPE_CHECKING:
    AnyPlatform = str
else:
    AnyPlatform = Literal[registry.platforms()]
PlatformName = Annotated[
    AnyPlatform | None, typer.Option("--platform", help="Use this platform instead of the recipe's.")
]


def register(app: typer.Typer) -> None:
    for command in (check, plan, fit, build, lock, schema):
        app.command()(command)


def check(
    recipes: Annotated[list[str] | None, typer.Argument(help="Recipe files, or names from `toolkit recipes`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Check all recipes that come with the toolkit.")] = False,
    code: Annotated[str | None, typer.Option("--explain", help="Explain the code of a finding.")] = None,
    account: Annotated[
        bool,
        typer.Option(
            "--account", help="Also check the AWS account: role, permissions, quotas, image, network. Read-only."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find errors in a recipe and its models before anything is created."""
    from toolkit.api.checking import check as run_checks
    from toolkit.checks.codes import explain
    from toolkit.checks.training import NOT_TRAINED
    from toolkit.recipe.known import catalogue

    if code:
        meaning = explain(code)
        answer(meaning.to_dict(), as_json, lambda: str(meaning))
        return
    names = catalogue() if every else recipes or []
    if not names:
        raise UsageError("give a recipe, or --all", hint="Such as: toolkit check tiny/p-eagle")
    reports = [run_checks(name, account=_account_check() if account else None) for name in names]
    ok = all(reports)
    one = reports[0].to_dict() if len(reports) == 1 else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    answer(one, as_json, lambda: "\n".join(_report_text(report) for report in reports))
    exit_unless(ok)
    if len(names) == 1 and not as_json:
        untrained = any(finding.code == NOT_TRAINED for finding in reports[0].findings)
        next_step("train" if untrained else "plan", names[0])


def _account_check() -> Callable[[CompleteRecipe], Iterable[Finding]]:
    from toolkit.platforms.sagemaker.account import account_findings  # brings boto3

    return account_findings


def plan(
    recipe: Recipe,
    baseline: Baseline = False,
    platform: PlatformName = None,
    form: Annotated[
        Literal["table", "json", "cloudformation"],
        typer.Option("--format", help="Output format. `json` is the same as --json; `cloudformation` is a template."),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Save the plan to this file for `toolkit deploy --plan`, or the template without printing it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what deploying would create, change and remove, and why. Starts nothing."""
    from toolkit.api.deployment import plan as make

    if as_json and form != "table":
        raise UsageError(f"--json cannot be combined with --format {form}", hint="Remove one of them.")
    if form == "cloudformation":
        _write_template(recipe, platform, baseline, out)
        return
    planned = make(recipe, platform=platform, baseline=baseline)
    if out:
        planned.save(out)
        option = f" --platform {platform}" if platform else ""
        say(f"saved; to apply it: toolkit deploy --plan {out}{option}")
    as_json = as_json or form == "json"
    answer(planned.to_dict(), as_json, lambda: plan_text(planned))
    if not (out or as_json):
        options = ("--platform", platform) if platform else ()
        if planned.changes:
            next_step("deploy", recipe, *options, "--baseline" if baseline else None)
        else:
            next_step("invoke", planned.endpoints[0], "Hello", *options)


def plan_text(plan: Plan, *, cost: bool = True) -> str:
    """A plan as a table, with what it costs, and its notes."""
    actions = table(("verb", "kind", "name", "reason"), [(a.verb, a.kind, a.name, a.reason) for a in plan.actions])
    summary = f"{plan.size} on {plan.platform}" + (f", {plan.cost}" if cost else "")
    return "\n".join([actions, "", paragraphs([summary, *plan.notes, *plan.unpinned_lines])])


def _write_template(recipe: str, platform: str | None, baseline: bool, out: Path | None) -> None:
    from toolkit.api.export import template
    from toolkit.planning.resources import NO_ACCOUNT
    from toolkit.platforms.sagemaker.rules import RULES
    from toolkit.platforms.sagemaker.rules.cloudformation import STAGE_FIRST, losses

    document = template(recipe, platform=platform, baseline=baseline)
    text = json.dumps(document, indent=2)
    if out:
        write_whole(out, f"{text}\n")
    else:
        print(text)  # noqa: T201
    if NO_ACCOUNT in text:
        say(f"warning: the template has {NO_ACCOUNT} in place of your account number: log in to AWS and run this again")
    for line in losses(document, RULES.kinds):
        say(f"warning: {line}")
    for step in document["Metadata"][STAGE_FIRST]:
        say(f"before you create the stack, provide {step['what']}: {step['command']}")
    file = out or "FILE"
    create = f"aws cloudformation deploy --template-file {file} --stack-name NAME --capabilities CAPABILITY_NAMED_IAM"
    say(f"then create the stack: {create}")


def build(
    recipe: Recipe,
    platform: PlatformName = None,
    builder: Annotated[
        Literal["append", "docker", "buildah", "codebuild"] | None,
        typer.Option(
            "--with", help="The tool that builds.  [default: the recipe's, or else append, which needs no Docker]"
        ),
    ] = None,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Wait for ECR's scan. Exit code 1 if it finds the severity of --fail-on or worse."),
    ] = False,
    worst: Annotated[
        Literal["critical", "high", "medium", "low"],
        typer.Option("--fail-on", help="Lowest severity at which --scan fails."),
    ] = "critical",
    admin_template: Annotated[
        bool,
        typer.Option(
            "--admin-template",
            help="Print the CloudFormation template of the CodeBuild project that `codebuild` needs. Builds nothing.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Build the image of a recipe that has a `container`, and push it to ECR, unless ECR has it already."""
    from toolkit.api.images import scan as read_scan
    from toolkit.platforms.sagemaker.images import SEVERITIES

    if admin_template:
        _print_admin_template(recipe)
        return
    image = toolkit.build(recipe, platform=platform, builder=builder)
    if not scan:
        answer({"image": image}, as_json, lambda: image)
        next_step("deploy", recipe)
        return
    weaknesses = read_scan(recipe, platform=platform)
    text = ", ".join(f"{number} {severity.lower()}" for severity, number in weaknesses.items()) or "no vulnerabilities"
    answer({"image": image, "findings": weaknesses}, as_json, lambda: f"{image}\nECR's scan found: {text}")
    exit_unless(not any(weaknesses.get(severity) for severity in SEVERITIES[: SEVERITIES.index(worst.upper()) + 1]))


def _print_admin_template(recipe: str) -> None:
    from toolkit.loading import load
    from toolkit.platforms.sagemaker.codebuild_project import PROJECT, template
    from toolkit.registry import open_platform

    account = open_platform("sagemaker", load(recipe).region).account()
    print(json.dumps(template(account), indent=2))  # noqa: T201
    deploy = f"aws cloudformation deploy --template-file FILE --stack-name {PROJECT} --region {account.region}"
    say(f"an administrator of account {account.id} runs: {deploy} --capabilities CAPABILITY_NAMED_IAM")


def lock(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")],
    as_json: Json = False,
) -> None:
    """Write the lock file: commits of both models, digests of images, and the facts that checks need.

    Reads headers of weights, never the whole. Says what it could not pin.
    """
    from toolkit.api.lock import lock as write
    from toolkit.loading import load

    locked = write(load(recipe))
    answer(locked.to_dict(), as_json, lambda: _lock_text(locked))
    next_step("plan", recipe)


def _lock_text(locked: Locked) -> str:
    pinned = [f"pinned: {what} at {version}" for what, version in locked.pinned.items()]
    return "\n".join([f"wrote {locked.path}", *pinned, *(f"not pinned: {line}" for line in locked.unpinned)])


def schema() -> None:
    """Print the JSON Schema of recipes, for editors."""
    from toolkit.recipe.assemble import json_schema
    from toolkit.registry import recipe_schema

    print(json.dumps(json_schema(recipe_schema()), indent=2))  # noqa: T201


def _report_text(report: Report) -> str:
    lines = [finding.line_for(report.recipe) for finding in report.findings]
    return paragraphs(lines or [f"{report.recipe}: no findings"])


Source = Annotated[
    str, typer.Argument(help="A recipe, or a .lock.json file, which is sized with the engine's defaults.")
]
Types = Annotated[
    list[str] | None, typer.Option("--instance", help="An instance type (repeatable). Default: all of them.")
]
Sort = Annotated[
    Literal["price", "kv-price"],
    typer.Option(help="Cheapest first: by the price of the instance, or of a million tokens of KV cache."),
]


_SHOWN = 10


def fit(
    recipe: Source,
    instance: Types = None,
    sort: Sort = "price",
    every: Annotated[bool, typer.Option("--all", help="Print every type, not the first ten.")] = False,
    as_json: Json = False,
) -> None:
    """Show on which instance types a recipe's models fit, cheapest first, and how many requests they hold."""
    fits = toolkit.fit(recipe, instances=instance or (), sort=sort)
    answer({**fits.to_dict(), "recipe": recipe}, as_json, lambda: _fit_text(fits, recipe, every or bool(instance)))
    exit_unless(fits.ok)
    if not as_json and not recipe.endswith(".lock.json"):
        next_step("plan", recipe)


def _fit_text(fits: Fits, recipe: str, whole: bool) -> str:
    """A table of the types that were sized, below it the others by reason; without `whole` of the first ones only."""
    if not whole and len(fits) > _SHOWN:
        fitting = sum(one.fits for one in fits)
        more = f"{max(fitting - _SHOWN, 0)} more fit, {len(fits) - max(fitting, _SHOWN)} do not"
        every = f"{more}. All of them: toolkit fit {shlex.quote(recipe)} --all"
        return f"{_fit_text(fits.first(_SHOWN), recipe, True)}\n{every}"
    from toolkit.api.fitting import COLUMNS, fit_cells

    tables = [table(COLUMNS, [fit_cells(one) for one in fits.sized])] if fits.sized else []
    return "\n".join([*tables, *fits.reasons(), *fits.notes])
