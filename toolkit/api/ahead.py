"""What is made before an endpoint, or in place of one: images, compiled code, templates and manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.api.context import RecipeLike, complete_recipe, locked, place, record_of
from toolkit.apply.executor import make
from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.training import Trainer, wait_completed
from toolkit.catalog.registry import platform_rules
from toolkit.checks.run import require
from toolkit.engines.arguments import builds
from toolkit.errors import UsageError
from toolkit.planning import artifacts
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Account, Observed
from toolkit.platforms import Platform, open_platform, open_readable, open_trainer
from toolkit.platforms.kubernetes.rules import manifests
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.kinds.image import image_uri
from toolkit.recipe.lock import pinned
from toolkit.recipe.resolve import Recipe, load
from toolkit.recipe.schema import ContainerSection


def template(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> dict[str, Any]:
    """All that `deploy` would make where there is nothing, as a CloudFormation template. Starts nothing.

    Raises RecipeError when a check finds an error, UsageError for a recipe that does not run on AWS, or compiles ahead.
    """
    loaded = load(recipe).with_platform(platform)
    if loaded.platform.name != "sagemaker":
        hint = "Write `platform: {name: sagemaker}`, or add: --platform sagemaker"
        raise UsageError(
            f"CloudFormation is AWS's, and {loaded.name} runs on platform `{loaded.platform.name}`", hint=hint
        )
    require(loaded)
    complete, account = complete_recipe(loaded, open_readable(loaded.platform.name, loaded.platform.region))
    arms = [complete, complete.baseline()] if baseline and complete.speculation else [complete]
    return RULES.template(RULES.desired(arms, account))


def render(recipe: RecipeLike, *, baseline: bool = False) -> dict[str, list[Mapping[str, Any]]]:
    """Manifests that serve the recipe on a cluster, by part: `base`, `serve`, `compile` and `benchmark`.

    `base` goes before `serve` and `compile`; what `compile` has runs before `serve` does. Needs no cluster. Raises
    RecipeError when a check finds an error, UsageError for what Kubernetes cannot do.
    """
    loaded = load(recipe).with_platform("kubernetes")
    require(loaded)
    complete = pinned(loaded, locked(loaded))
    return manifests.parts([complete, complete.baseline()] if baseline and complete.speculation else [complete])


def build(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    builder: str | None = None,
    progress: Progress | None = None,
) -> str:
    """Build the image of a recipe that has a `container`, unless it is there; its address in ECR, with digest.

    `deploy` does it too. `builder` (append, docker, buildah, codebuild) goes over the recipe's. Raises UsageError for a
    recipe that needs no image of its own, ApplyError.
    """
    progress = progress or default_progress()
    loaded = load(recipe).with_platform(platform)
    require(loaded)
    if builder and builds(loaded):
        section = loaded.container or ContainerSection()
        loaded = replace(loaded, container=section.model_copy(update={"builder": builder}))
    opened = open_platform(loaded.platform.name, place(loaded))
    complete, account = complete_recipe(loaded, opened)
    rules: AwsRules = platform_rules(loaded.platform.name)
    resources = rules.desired_image((complete, complete.baseline()), account) if builds(complete) else ()
    if not resources:
        hint = "Write `container: custom`, or its settings, to have one built."
        raise UsageError(f"{loaded.name} runs {image_uri(complete, account)} as it is: nothing is built", hint=hint)
    # Nothing but these is asked for, so that nothing else is taken for superseded.
    made = make_plan(str(loaded.path), rules, [loaded.name], resources, opened.observe(resources, ()))
    with opened.lease(loaded.name):
        make(made, opened, record_of(loaded.name), progress)
    return opened.with_digest(image_uri(complete, account))


def scan(recipe: RecipeLike, *, platform: str | None = None) -> dict[str, int]:
    """How many weaknesses ECR found in the recipe's image, by severity, the worst first; waits for its scan.

    Raises UsageError for a recipe without an image of its own, PlatformError for one that was not built or cannot be
    scanned.
    """
    loaded = load(recipe).with_platform(platform)
    opened = open_platform(loaded.platform.name, place(loaded))
    complete, account = complete_recipe(loaded, opened)
    if not builds(complete):
        raise UsageError(f"{loaded.name} has no image of its own to scan", hint="AWS scans and patches its own.")
    return opened.scan(image_uri(complete, account))


def compile_plan(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> Plan:
    """What `compile` would do. Reads only; without AWS credentials for an account that holds nothing."""
    loaded = _compilable(recipe, platform)
    opened = open_readable(loaded.platform.name, loaded.platform.region)
    return _compile_plan(*complete_recipe(loaded, opened), opened, baseline)


def compile(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    baseline: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Compile for Trainium, in a training job on the recipe's instance type; returns the plan that was applied.

    Done already, it does nothing; under way already, it waits for that. `baseline` compiles for its twin without
    speculation too. Raises UsageError for a recipe that does not compile ahead, RecipeError, ApplyError or
    TrainingJobFailed.
    """
    progress = progress or default_progress()
    with progress.stage("check"):
        loaded = _compilable(recipe, platform)
    opened = open_trainer(loaded.platform.region)
    with progress.stage("plan"):
        made = _compile_plan(*complete_recipe(loaded, opened), opened, baseline)
    if any(action.verb == "create" for action in made.changes):
        with opened.lease(loaded.name):
            make(made, opened, record_of(loaded.name), progress)
    jobs = {action.name: action.expected_seconds for action in made.changes if action.kind == "TrainingJob"}
    if wait and jobs:
        with progress.stage("wait until compiled"):
            options = f"{f' --platform {platform}' if platform else ''}{' --baseline' if baseline else ''}"
            _wait_compiled(opened, jobs, progress, f"toolkit compile {loaded.path}{options}")
    return made


def _compilable(recipe: RecipeLike, platform: str | None) -> Recipe:
    loaded = load(recipe).with_platform(platform)
    require(loaded)
    artifacts.require_compiles_ahead(loaded)
    platform_rules(loaded.platform.name).require_compilable(loaded)
    return loaded


def _compile_plan(recipe: Recipe, account: Account, platform: Platform | None, baseline: bool) -> Plan:
    """Of a recipe that is complete. What its endpoint has, and compiling does not need, is let be."""
    arms = [recipe, recipe.baseline()] if recipe.speculation and baseline else [recipe]
    resources = RULES.desired_compilation(arms, account)
    wanted = {(item.kind, item.name) for item in resources}
    observed = platform.observe(resources, [recipe.name]) if platform else Observed()
    return make_plan(
        str(recipe.path.resolve()),
        RULES,
        [recipe.name],
        resources,
        Observed(tuple(item for item in observed.existing if (item.kind, item.name) in wanted)),
        account=account,
        price_per_hour=None,
        notes=tuple(RULES.compilation_notes(recipe)),
    )


def _wait_compiled(platform: Trainer, jobs: Mapping[str, int], progress: Progress, again: str) -> None:
    """`again` is the command that waits for them once more."""
    try:
        wait_completed(platform, jobs, progress)
    except KeyboardInterrupt:
        for name in jobs:
            progress.say(
                f"{name} goes on, and bills. Wait again: {again}. "
                f"Stop it: aws sagemaker stop-training-job --training-job-name {name}"
            )
        raise
