"""Commands that read recipes, and on which instance types they fit. They write locks, plans, images and manifests."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import toolkit
from toolkit import registry
from toolkit.cli.fleet import Discount, Parallel, Recipes, show_plan
from toolkit.cli.output import answer, exit_unless, next_step, say
from toolkit.cli.plan_text import plan_text
from toolkit.cli.table import paragraphs, table
from toolkit.errors import PlatformError, UsageError
from toolkit.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.api.fitting import Fits
    from toolkit.api.lock import Locked
    from toolkit.checks.run import Report


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
    ask: Annotated[
        bool,
        typer.Option(
            "--ask", help="Also ask the engine itself, if the recipe's version is installed here: half a minute."
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
    if account:
        from toolkit.platforms.sagemaker.account import account_findings  # brings boto3
    engines = [report.engine for report in map(run_checks, names)] if ask else []
    if engine := next((engine for engine in engines if engine and engine.can_be_asked), None):
        say(f"asking {engine.name}: its start takes half a minute, and what it says is kept")
    reports = [run_checks(name, account=account_findings if account else None, ask=ask) for name in names]
    if not as_json and all(reports):
        for name in {report.engine.name for report in reports if report.engine and report.engine.can_be_asked}:
            say(f"{name} is installed here, and says with --ask what it makes of this")
    ok, is_one = all(reports), len(reports) == 1
    document = reports[0].to_dict() if is_one else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    untrained = any(finding.code == NOT_TRAINED for finding in reports[0].findings)
    then = ("train" if untrained else "plan", names[0]) if is_one else ()
    answer(document, as_json, lambda: "\n".join(map(_report_text, reports)), yes=ok, then=then)


def plan(
    recipes: Recipes,
    baseline: Baseline = False,
    platform: PlatformName = None,
    form: Annotated[
        Literal["table", "json", "cloudformation", "ci-roles", "role-policy"],
        typer.Option(
            "--format",
            help="Output format. `json` is the same as --json; `cloudformation` is a template, and so is `ci-roles`: "
            "of two roles for GitHub Actions, of which one only plans and the other deploys. `role-policy` is what an "
            "execution role must be allowed to do.",
        ),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Save the plan to this file for `toolkit deploy --plan`, or the template without printing it."
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Also show each value that an update changes in a request; of a fleet, each recipe's plan.",
        ),
    ] = False,
    parallel: Parallel = 4,
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
    sign: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Sign the image and what lies beside it: cosign.key, with its password in COSIGN_PASSWORD, or "
            "awskms:///… and the like, for which cosign is needed.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Check what lies beside the image: its bill of materials and its provenance.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="With --verify: they must be signed with it. cosign.pub, or a URL."),
    ] = None,
    admin_template: Annotated[
        bool,
        typer.Option(
            "--admin-template",
            help="Print the CloudFormation template of the CodeBuild project that `codebuild` needs. Builds nothing.",
        ),
    ] = False,
    staging_template: Annotated[
        bool,
        typer.Option(
            "--staging-template",
            help="Print that of the CodeBuild project that `platform.staging: in-account` needs. Builds nothing.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Build the image of a recipe that has a `container`, and push it to ECR, unless ECR has it already."""
    from toolkit.api import images
    from toolkit.platforms.sagemaker.images import SEVERITIES

    if admin_template and staging_template:
        raise UsageError("--admin-template and --staging-template are two templates", hint="Print one at a time.")
    if admin_template or staging_template:
        _print_admin_template(recipe, staging=staging_template)
        return
    if key and not verify:
        raise UsageError("--key is for --verify", hint="To sign, write --sign KEY.")
    image = images.build(recipe, platform=platform, builder=builder, sign=sign)
    beside = {"verified": images.verify(recipe, platform=platform, key=key)} if verify else {}
    said = "".join(f"\n{kind} {digest}" for kind, digest in beside.get("verified", {}).items())
    if not scan:
        answer({"image": image, **beside}, as_json, lambda: image + said)
        next_step("deploy", recipe)
        return
    weaknesses = images.scan(recipe, platform=platform)
    text = ", ".join(f"{number} {severity.lower()}" for severity, number in weaknesses.items()) or "no vulnerabilities"
    answer(
        {"image": image, "findings": weaknesses, **beside}, as_json, lambda: f"{image}{said}\nECR's scan found: {text}"
    )
    exit_unless(not any(weaknesses.get(severity) for severity in SEVERITIES[: SEVERITIES.index(worst.upper()) + 1]))


def _print_admin_template(recipe: str, *, staging: bool) -> None:
    from toolkit.loading import load
    from toolkit.platforms.sagemaker.codebuild_project import template
    from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
    from toolkit.platforms.sagemaker.staging_job import project_of
    from toolkit.registry import open_platform

    loaded = load(recipe)
    account = open_platform("sagemaker", loaded.region).account()
    project = project_of(loaded, account) if staging else IMAGE_PROJECT
    if project is None:
        message = f"{recipe}: no job copies its models to S3"
        raise UsageError(message, hint="Write `staging: in-account` under `platform`, for models of the hub.")
    print(json.dumps(template(account, project), indent=2))  # noqa: T201
    deploy = f"aws cloudformation deploy --template-file FILE --stack-name {project.name} --region {account.region}"
    say(f"an administrator of account {account.id} runs: {deploy} --capabilities CAPABILITY_NAMED_IAM")


def lock(recipe: Recipe, as_json: Json = False) -> None:
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


_SHOWN = 10


def fit(
    recipe: Annotated[
        str, typer.Argument(help="A recipe, or a .lock.json file, which is sized with the engine's defaults.")
    ],
    instance: Annotated[
        list[str] | None, typer.Option("--instance", help="An instance type (repeatable). Default: all of them.")
    ] = None,
    sort: Annotated[
        Literal["price", "kv-price"],
        typer.Option(help="Cheapest first: by the price of the instance, or of a million tokens of KV cache."),
    ] = "price",
    every: Annotated[bool, typer.Option("--all", help="Print every type, not the first ten.")] = False,
    as_json: Json = False,
) -> None:
    """Show on which instance types a recipe's models fit, cheapest first, and how many requests they hold."""
    fits = toolkit.fit(recipe, instances=instance or (), sort=sort)
    document, then = {**fits.to_dict(), "recipe": recipe}, () if recipe.endswith(".lock.json") else ("plan", recipe)
    answer(document, as_json, lambda: _fit_text(fits, recipe, every or bool(instance)), yes=fits.ok, then=then)


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


def render(
    recipe: Recipe,
    form: Annotated[Literal["kubernetes"], typer.Option("--format", help="Output format.")] = "kubernetes",
    baseline: Baseline = False,
    part: Annotated[
        Literal["serve", "compile", "train", "benchmark", "rbac"],
        typer.Option(
            help="What to print: the serving manifests, the Job that compiles for Trainium, the Job that trains the "
            "recipe's head, the benchmark Job, or roles for your cluster's users."
        ),
    ] = "serve",
    out: Annotated[
        str, typer.Option(help="Folder to write all parts to, with kustomization.yaml; `-` prints one part.")
    ] = "-",
    helm: Annotated[
        bool, typer.Option("--helm", help="Write to --out a Helm chart of what serves, with values per environment.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a recipe as Kubernetes manifests. Needs neither a cluster nor AWS, and starts nothing."""
    from toolkit.api.export import render as make
    from toolkit.platforms.kubernetes.rules.jobs import wait_command
    from toolkit.platforms.kubernetes.rules.manifests import APPLY, files, text

    if helm:
        if part != "serve":
            hint = f"Leave out --helm and --out: toolkit render {shlex.quote(recipe)} --part {part}"
            raise UsageError(f"a chart has what serves, and no {part}", hint=hint)
        _write_chart(recipe, baseline, out, as_json)
        return
    parts = make(recipe, baseline=baseline, to_train=part == "train" and out == "-")
    if out == "-":
        if not parts.get(part):
            raise UsageError(f"{recipe} needs no {part} Job", hint=f"Remove --part {part}.")
        before = [*parts["namespace"], *parts["base"]] if part in ("serve", "compile") else []
        manifests = [*before, *parts[part]]
        answer({"manifests": manifests}, as_json, lambda: text(manifests).rstrip("\n"))
        return
    written = dict(files(parts))
    _write_files(Path(out), written)
    if as_json:
        answer({"out": out, "files": list(written)}, True, str)
    say(f"once, for all endpoints of its namespace: {APPLY} -k {out}/namespace")
    if "compile" in parts:
        say(f"compile first: {APPLY} -k {out}/compile")
        for job in parts["compile"]:
            say(f"then wait: {wait_command(job)}")
    say(f"serve: {APPLY} -k {out}")
    say(f"measure: {APPLY} -k {out}/benchmark")


def _write_chart(recipe: str, baseline: bool, out: str, as_json: bool) -> None:
    from toolkit.api.export import render as make
    from toolkit.loading import load
    from toolkit.platforms.kubernetes.rules.chart import chart, leftovers

    if out == "-":
        raise UsageError("a chart is a folder", hint="Add: --out DIR")
    loaded = load(recipe)
    parts = make(loaded, baseline=baseline)
    written = dict(chart(loaded, parts))
    try:
        before = leftovers(Path(out), written)
        _write_files(Path(out), written)
        for path in before:
            path.unlink()
            say(f"removed {path}: the recipe has it no more")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error}", hint="Choose another folder with --out.") from error
    if as_json:
        answer({"out": out, "files": list(written)}, True, str)
    (namespace,) = (item["metadata"]["name"] for item in parts["namespace"])
    say(f"once, for all endpoints of its namespace: kubectl create namespace {namespace}")
    say(f"serve: helm upgrade --install {loaded.name} {out} --namespace {namespace}")


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, given by relative path. Raises UsageError."""
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                hint = "Remove that link, or choose another folder."
                raise UsageError(f"{path.parent} leads out of {folder}", hint=hint)
            write_whole(path, content)
    except (OSError, PlatformError) as error:
        raise UsageError(f"cannot write {folder}: {error}", hint="Choose another folder with --out.") from error
