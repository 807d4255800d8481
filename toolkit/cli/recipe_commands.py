"""Commands about recipes: they read, and change nothing but a lock or plan file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.catalog import registry
from toolkit.cli.output import answer, exit_unless, say
from toolkit.cli.table import table
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.findings import Finding, Report
    from toolkit.planning.plan import Plan
    from toolkit.recipe.resolve import Recipe as CompleteRecipe

Recipe = Annotated[str, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Baseline = Annotated[bool, typer.Option("--baseline", help="Also the same endpoint without speculation.")]
if TYPE_CHECKING:
    _Platform = str
else:
    _Platform = Literal[registry.platforms()]
PlatformName = Annotated[_Platform | None, typer.Option("--platform", help="Another platform than the recipe's.")]

_REFRESH_SECONDS = 120.0


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (check, plan, build, recipes, lock, schema):
        app.command()(command)


def check(
    recipes: Annotated[list[str] | None, typer.Argument(help="Recipe files, or names from `toolkit recipes`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All recipes that come with the toolkit.")] = False,
    code: Annotated[str | None, typer.Option("--explain", help="Say what the code of a finding means.")] = None,
    account: Annotated[
        bool, typer.Option("--account", help="Also ask AWS: role, permissions, quotas, image, network. Only reads.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find what is wrong with a recipe and its models, before it costs anything."""
    from toolkit.checks.codes import explain
    from toolkit.checks.run import check as run_checks
    from toolkit.recipe.load import catalogue

    if code:
        meaning = explain(code)
        answer(meaning.to_dict(), as_json, lambda: str(meaning))
        return
    names = catalogue() if every else recipes or []
    if not names:
        raise UsageError("give a recipe, or --all", hint="See: toolkit recipes")
    reports = [run_checks(name, account=_account_check() if account else None) for name in names]
    ok = all(reports)
    one = reports[0].to_dict() if len(reports) == 1 else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    answer(one, as_json, lambda: "\n".join(_report_text(report) for report in reports))
    exit_unless(ok)


def _account_check() -> Callable[[CompleteRecipe], Iterable[Finding]]:
    from toolkit.platforms.sagemaker.account import account_findings  # brings boto3

    return account_findings


def plan(
    recipe: Recipe,
    baseline: Baseline = False,
    platform: PlatformName = None,
    form: Annotated[
        Literal["table", "json", "cloudformation"],
        typer.Option("--format", help="What to print: `json` is --json, `cloudformation` a template of all of it."),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(help="Save the plan, for `toolkit deploy --plan`; or the template, unprinted."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what deploying would make, change and remove, and why. Starts nothing."""
    from toolkit.api import plan as make

    if as_json and form != "table":
        raise UsageError(f"--json and --format {form} are two answers", hint="Give one of them.")
    if form == "cloudformation":
        _write_template(recipe, platform, baseline, out)
        return
    made = make(recipe, platform=platform, baseline=baseline)
    if out:
        made.save(out)
        option = f" --platform {platform}" if platform else ""
        say(f"saved; apply it: toolkit deploy --plan {out}{option}")
    answer(made.to_dict(), as_json or form == "json", lambda: plan_text(made))


def plan_text(made: Plan) -> str:
    """A plan as a table, with what it costs and what else there is to know."""
    actions = table(("verb", "kind", "name", "because it"), [(a.verb, a.kind, a.name, a.reason) for a in made.actions])
    return "\n".join([actions, "", f"{len(made.changes)} changes on {made.platform}, {made.cost}", *made.notes])


def _write_template(recipe: str, platform: str | None, baseline: bool, out: Path | None) -> None:
    from toolkit.api import template
    from toolkit.planning.resources import NO_ACCOUNT
    from toolkit.platforms.sagemaker.rules import RULES
    from toolkit.platforms.sagemaker.rules.cloudformation import STAGE_FIRST

    made = template(recipe, platform=platform, baseline=baseline)
    text = json.dumps(made, indent=2)
    if out:
        out.write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text)  # noqa: T201
    if NO_ACCOUNT in text:
        say(f"warning: without AWS credentials {NO_ACCOUNT} stands for your account: log in, and make it again")
    for line in RULES.template_losses(made):
        say(f"warning: {line}")
    for step in made["Metadata"][STAGE_FIRST]:
        say(f"before the stack, {step['what']}: {step['command']}")
    file = out or "FILE"
    say(f"then: aws cloudformation deploy --template-file {file} --stack-name NAME --capabilities CAPABILITY_NAMED_IAM")


def build(
    recipe: Recipe,
    platform: PlatformName = None,
    builder: Annotated[
        Literal["append", "docker", "buildah", "codebuild"] | None,
        typer.Option("--with", help="What builds it.  [default: the recipe's, else append, which needs no Docker]"),
    ] = None,
    scan: Annotated[
        bool, typer.Option("--scan", help="Wait for ECR's scan; exit code 1 where it found too much.")
    ] = False,
    worst: Annotated[
        Literal["critical", "high", "medium", "low"], typer.Option("--fail-on", help="What is too much for --scan.")
    ] = "critical",
    admin_template: Annotated[
        bool, typer.Option("--admin-template", help="Build nothing: print what an admin makes once for codebuild.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build the image of a recipe that has a `container`, and push it to ECR; nothing if it is there already."""
    from toolkit import api
    from toolkit.platforms.sagemaker.repository import SEVERITIES

    if admin_template:
        _print_admin_template(recipe)
        return
    image = api.build(recipe, platform=platform, builder=builder)
    if not scan:
        answer({"image": image}, as_json, lambda: image)
        return
    found = api.scan(recipe, platform=platform)
    text = ", ".join(f"{number} {severity.lower()}" for severity, number in found.items()) or "nothing"
    answer({"image": image, "findings": found}, as_json, lambda: f"{image}\nECR's scan found: {text}")
    exit_unless(not any(found.get(severity) for severity in SEVERITIES[: SEVERITIES.index(worst.upper()) + 1]))


def _print_admin_template(recipe: str) -> None:
    from toolkit.platforms import open_platform
    from toolkit.platforms.sagemaker.codebuild_project import PROJECT, template
    from toolkit.recipe.resolve import load

    account = open_platform("sagemaker", load(recipe).platform.region).account()
    print(json.dumps(template(account), indent=2))  # noqa: T201
    deploy = f"aws cloudformation deploy --template-file FILE --stack-name {PROJECT} --region {account.region}"
    say(f"an admin of {account.id} makes it: {deploy} --capabilities CAPABILITY_NAMED_IAM")


def recipes(as_json: Json = False) -> None:
    """List the recipes that come with the toolkit."""
    from toolkit.api import recipes as list_recipes

    found = list_recipes()
    rows = [
        (
            name,
            recipe.method,
            str(recipe.speculation.num_speculative_tokens if recipe.speculation else ""),
            recipe.description,
        )
        for name, recipe in found.entries
    ]
    answer(found.to_dict(), as_json, lambda: table(("recipe", "method", "K", "description"), rows))


def lock(
    recipe: Annotated[str | None, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")] = None,
    catalog: Annotated[bool, typer.Option("--catalog", help="Refresh prices and revisions of public heads.")] = False,
    prices: Annotated[
        bool, typer.Option("--prices", help="Refresh prices from AWS's public list; not tried on the real list so far.")
    ] = False,
    region: Annotated[str | None, typer.Option(help="Region of the prices.  [default: us-east-1]")] = None,
    as_json: Json = False,
) -> None:
    """Write the facts of both models beside the recipe, so that checks are the same everywhere. Never reads weights."""
    from toolkit.platforms import jumpstart_entries
    from toolkit.platforms.model_files import open_files
    from toolkit.platforms.sagemaker.rules.jumpstart import in_s3
    from toolkit.recipe.lock import write_lock
    from toolkit.recipe.resolve import load

    if [recipe is not None, catalog, prices].count(True) != 1:
        raise UsageError("give a recipe, --catalog or --prices", hint="See: toolkit recipes")
    if region and recipe is not None:
        raise UsageError("--region is for --prices and --catalog", hint="The recipe's own is platform.region.")
    if recipe is None:
        changed = _refresh_catalog(region, heads=catalog)
        answer({"changed": changed}, as_json, lambda: "\n".join(changed) or "nothing has changed")
        return
    loaded = load(recipe)
    path = write_lock(loaded, open_files, in_s3(loaded, jumpstart_entries(loaded)))
    answer({"lock": str(path)}, as_json, lambda: f"wrote {path}")


def _refresh_catalog(region: str | None, *, heads: bool) -> list[str]:
    import httpx

    from toolkit.catalog import lookup, refresh

    say("reading AWS's price list, which is large")
    with httpx.Client(follow_redirects=True, timeout=_REFRESH_SECONDS) as client:
        read = refresh.refresh if heads else refresh.refresh_prices
        try:
            return read(client, lookup.FOLDER, region=region or refresh.REGION)
        except OSError as error:
            hint = "Run it as who installed the toolkit, or from a copy of its repository."
            raise UsageError(f"the catalogue cannot be written: {error}", hint=hint) from error


def schema() -> None:
    """Print the JSON schema of recipes, for editors."""
    from toolkit.recipe.schema import json_schema

    print(json.dumps(json_schema(), indent=2))  # noqa: T201


def _report_text(report: Report) -> str:
    lines = [finding.line_for(report.recipe) for finding in report.findings]
    return "\n".join(lines) if lines else f"{report.recipe}: no findings"
