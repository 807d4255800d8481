"""`toolkit build`: a recipe's image, and the templates of what builds and copies in the account."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from toolkit.cli.arguments import Json, PlatformName, Recipe
from toolkit.cli.output import answer, exit_unless, next_step, say
from toolkit.errors import UsageError


def build(
    recipe: Recipe,
    platform: PlatformName = None,
    builder: Annotated[
        Literal["append", "docker", "buildah", "codebuild"] | None,
        typer.Option(
            "--with",
            help="The tool that builds.  [default: the recipe's `builder`, else append, which needs no Docker]",
        ),
    ] = None,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Wait for ECR's scan. Exit code 1 if it finds something as bad as --fail-on says."),
    ] = False,
    worst: Annotated[
        Literal["critical", "high", "medium", "low"],
        typer.Option("--fail-on", help="The lowest severity at which --scan fails."),
    ] = "critical",
    sign: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Sign the image, its bill of materials and its provenance with this key: a cosign.key file, whose "
            "password is in COSIGN_PASSWORD, or awskms:///… and the like, which need cosign.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Check the image's bill of materials and its provenance.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="With --verify: also check that this key signed them: cosign.pub, or a URL."
        ),
    ] = None,
    admin_template: Annotated[
        bool,
        typer.Option(
            "--admin-template",
            help="Build nothing; print the CloudFormation template of the CodeBuild project that `--with codebuild` "
            "needs.",
        ),
    ] = False,
    staging_template: Annotated[
        bool,
        typer.Option(
            "--staging-template",
            help="Build nothing; print the CloudFormation template of the CodeBuild project that `platform.staging: "
            "in-account` needs.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Build the image of a recipe with a `container` section, and push it to ECR, unless ECR has it already."""
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
