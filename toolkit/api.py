"""The public functions: each composes the stages of the one road with the platform of the recipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from toolkit.apply.executor import complete, make, remove
from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.stages import expected_seconds
from toolkit.apply.waiter import wait_in_service, wait_settled
from toolkit.checks.run import check, require
from toolkit.checks.workloads import read_prompts
from toolkit.endpoint.handle import Endpoint
from toolkit.endpoint.listing import Deployed
from toolkit.endpoint.prove import DEFAULT_PROMPTS
from toolkit.errors import ApplyError, EndpointNotFound, RecipeNotFound, StalePlanError, ToolkitError, UsageError
from toolkit.findings import Report
from toolkit.home import home
from toolkit.planning import cloudformation
from toolkit.planning.desired import desired
from toolkit.planning.hosting import endpoint_name, image_uri
from toolkit.planning.image import image
from toolkit.planning.notes import notes
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan, rollback_plan
from toolkit.planning.price import price_now, price_per_hour
from toolkit.planning.record import Record
from toolkit.planning.resources import NO_ACCOUNT, Account, Observed, Resource
from toolkit.platforms import (
    PLATFORMS,
    Platform,
    account_of,
    jumpstart_entries,
    open_platform,
    open_readable,
    open_running,
    regions,
)
from toolkit.recipe.jumpstart import filled_in
from toolkit.recipe.load import catalogue
from toolkit.recipe.lock import Lock, download_seconds, load_seconds, lock_path, pinned, read_lock
from toolkit.recipe.resolve import Recipe, load

__all__ = [
    "Catalogue",
    "DeploymentPlan",
    "Endpoint",
    "Report",
    "build",
    "check",
    "connect",
    "deploy",
    "destroy",
    "endpoints",
    "load",
    "plan",
    "recipes",
    "rollback",
]

RecipeLike = str | os.PathLike[str] | Recipe
_DEFAULT_PLATFORM = "local"
# SageMaker gives a container at most an hour to get healthy, and downloads weights before that.
_WAIT_SECONDS = 7200.0


class DeploymentPlan(Plan):
    """A plan that knows how to apply itself."""

    def apply(self, *, wait: bool = True, progress: Progress | None = None) -> Endpoint:
        """Do what the plan says, if what runs is still what it was made from.

        Raises StalePlanError, ApplyError, EndpointFailed or WaitTimeout.
        """
        if self.account == NO_ACCOUNT:
            hint = f"Log in, and make it again: toolkit plan {self.recipe} --out plan.json"
            raise StalePlanError("this plan was made without an AWS account", hint=hint)
        platform = open_platform(self.platform, self.region)
        wanted = [Resource(a.kind, a.name, a.request) for a in self.actions if a.verb != "delete"]
        if platform.observe(wanted, self.endpoints).fingerprint() != self.fingerprint:
            again = f"toolkit plan {self.recipe} --out plan.json"
            raise StalePlanError(
                f"what runs now is not what this plan for {self.endpoints[0]} was made from", hint=f"Run: {again}"
            )
        recipe = _as_deployed(load(self.recipe)) if Path(self.recipe).is_file() else None  # for what `prove` asks
        return _apply(self, platform, recipe, wait, progress or default_progress())


@dataclass(frozen=True)
class Catalogue(Sequence[Recipe]):
    """The recipes that come with the toolkit; shows itself as a table in a notebook."""

    entries: tuple[tuple[str, Recipe], ...]

    def __getitem__(self, index: Any) -> Any:
        return self.entries[index][1]

    def __len__(self) -> int:
        return len(self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Recipes by catalogue name."""
        return {name: recipe.to_dict() for name, recipe in self.entries}

    def __repr__(self) -> str:
        return "\n".join(f"{name:24} {recipe.description}" for name, recipe in self.entries)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{name}</code></td><td>{recipe.description}</td></tr>" for name, recipe in self.entries
        )
        return f"<table>{rows}</table>"


def recipes() -> Catalogue:
    """All recipes that come with the toolkit."""
    return Catalogue(tuple((name, load(name)) for name in catalogue()))


def plan(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> DeploymentPlan:
    """What `deploy` would do. Reads only; starts nothing. Raises RecipeError when a check finds an error.

    Without AWS credentials it is the plan for an account that holds nothing.
    """
    loaded = load(recipe).with_platform(platform)
    require(loaded)
    opened = open_readable(loaded.platform, loaded.region)
    return _plan(*_complete(loaded, opened), opened, baseline)


def template(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> dict[str, Any]:
    """All that `deploy` would make where there is nothing, as a CloudFormation template. Starts nothing.

    Raises RecipeError when a check finds an error, UsageError for a recipe that does not run on AWS.
    """
    loaded = load(recipe).with_platform(platform)
    if loaded.platform != "sagemaker":
        hint = "Write `platform: {name: sagemaker}`, or add: --platform sagemaker"
        raise UsageError(f"CloudFormation is AWS's, and {loaded.name} runs on platform `{loaded.platform}`", hint=hint)
    require(loaded)
    complete, account = _complete(loaded, open_readable(loaded.platform, loaded.region))
    arms = [complete, complete.baseline()] if baseline and complete.speculation else [complete]
    return cloudformation.template(desired(arms, account))


def deploy(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    baseline: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
) -> Endpoint:
    """Check, plan and apply; returns when the endpoint is in service, unless `wait` is off.

    `baseline` makes its twin without speculation too. Doing it again does nothing, or carries on where it was
    interrupted. Raises RecipeError, ApplyError, EndpointFailed or WaitTimeout.
    """
    progress = progress or default_progress()
    loaded = load(recipe).with_platform(platform)
    with progress.stage("check"):
        require(loaded)
    with progress.stage(f"open platform {loaded.platform}"):
        opened = open_platform(loaded.platform, loaded.region)
    with progress.stage("plan"):
        for arm in (loaded, loaded.baseline()):  # AWS takes no change while another one is under way
            wait_settled(opened, endpoint_name(arm), _WAIT_SECONDS, progress)
        filled, account = _complete(loaded, opened)
        made = _plan(filled, account, opened, baseline)
    return _apply(made, opened, filled, wait, progress)


def build(recipe: RecipeLike, *, builder: str | None = None, progress: Progress | None = None) -> str:
    """Build the image of a recipe that has a `container`, unless it is there; its address in ECR, with digest.

    `deploy` does it too. `builder` (append, docker, buildah, codebuild) goes over the recipe's. Raises UsageError for a
    recipe that needs no image of its own, ApplyError.
    """
    progress = progress or default_progress()
    loaded = load(recipe)
    require(loaded)
    if builder and loaded.container:
        loaded = replace(loaded, container=loaded.container.model_copy(update={"builder": builder}))
    opened = open_platform(loaded.platform, loaded.region)
    complete, account = _complete(loaded, opened)
    resources = list(
        {item.name: item for arm in (complete, complete.baseline()) for item in image(arm, account)}.values()
    )
    if not resources:
        hint = "Write `container: custom`, or its settings, to have one built."
        raise UsageError(f"{loaded.name} runs {image_uri(complete, account)} as it is: nothing is built", hint=hint)
    # Nothing but these is asked for, so that nothing else is taken for superseded.
    made = make_plan(str(loaded.path), loaded.platform, [loaded.name], resources, opened.observe(resources, ()))
    with opened.lease(loaded.name):
        make(made, opened, _record(loaded.name), progress)
    return opened.with_digest(image_uri(complete, account))


def scan(recipe: RecipeLike) -> dict[str, int]:
    """How many weaknesses ECR found in the recipe's image, by severity, the worst first; waits for its scan.

    Raises UsageError for a recipe without an image of its own, PlatformError for one that was not built or cannot be
    scanned.
    """
    loaded = load(recipe)
    opened = open_platform(loaded.platform, loaded.region)
    complete, account = _complete(loaded, opened)
    if not image(complete, account):
        raise UsageError(f"{loaded.name} has no image of its own to scan", hint="AWS scans and patches its own.")
    return opened.scan(image_uri(complete, account))


def connect(name: RecipeLike, *, platform: str | None = None, region: str | None = None) -> Endpoint:
    """The handle of an endpoint that exists, the toolkit's or not, by its name or recipe. Raises EndpointNotFound."""
    recipe = _recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = _where(endpoint, recipe, platform, region)
    if opened is None:
        raise EndpointNotFound(
            f"there is no endpoint {endpoint}: the local platform is not running", hint="Run: toolkit deploy RECIPE"
        )
    return _handle(endpoint, opened, _as_deployed(recipe) if recipe else None)


def endpoints(*, platform: str | None = None, all_regions: bool = False) -> list[Deployed]:
    """Every endpoint that the toolkit made: on this machine, and on AWS where there are credentials."""
    found: list[Deployed] = []
    for name in (platform,) if platform else PLATFORMS:
        for region in regions() if all_regions and name == "sagemaker" else (None,):
            if opened := open_readable(name, region):
                found += opened.endpoints()
    return found


def rollback(
    name: RecipeLike, *, platform: str | None = None, wait: bool = True, progress: Progress | None = None
) -> Endpoint:
    """Bring an endpoint back to what it ran before its last update. A rollback is an update too: again goes forward.

    Raises UsageError when there is nothing to go back to, ApplyError, EndpointFailed or WaitTimeout.
    """
    recipe = _recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = _where(endpoint, recipe, platform, recipe.region if recipe else None)
    if opened is None:
        raise EndpointNotFound(f"there is no endpoint {endpoint}: the local platform is not running")
    if "/" in opened.address(endpoint):
        raise UsageError(
            f"{endpoint} is an inference component, which AWS does not roll back", hint="Deploy the older recipe."
        )
    made = rollback_plan(str(name), opened.name, endpoint, opened.observe((), [endpoint]))
    return _apply(made, opened, _as_deployed(recipe) if recipe else None, wait, progress or default_progress())


def destroy(name: RecipeLike, *, platform: str | None = None, progress: Progress | None = None) -> Plan:
    """Remove an endpoint, its baseline and all that was made for them; returns the plan that was applied.

    Its actions are empty when there was nothing. `left` of the plan says what stays on purpose. Raises ApplyError.
    """
    recipe = _recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = _where(endpoint, recipe, platform, recipe.region if recipe else None)
    hosts = [endpoint_name(recipe)] if recipe else []
    names = tuple(dict.fromkeys((endpoint, f"{endpoint}-baseline", *hosts)))
    if opened is None:
        return make_plan(str(name), platform or _DEFAULT_PLATFORM, names, (), Observed())
    planned = _removal(str(name), opened, names)
    if planned.actions:
        with opened.lease(endpoint):
            planned = _removal(str(name), opened, names)  # what is there once nobody else changes it, bucket included
            remove(planned, opened, _record(endpoint), progress or default_progress())
        left = make_plan(str(name), opened.name, names, (), opened.observe((), names)).actions
        if still := ", ".join(f"{action.kind} {action.name}" for action in left if action.kind != "Bucket"):
            raise ApplyError(f"still there: {still}", hint="Run the same command again.")
        planned = _without_buckets_that_stay(planned, left)
    return planned


def _without_buckets_that_stay(planned: Plan, left: Sequence[Action]) -> Plan:
    """A bucket that is not empty cannot go: another's lease is in it, captured requests, or what others put there."""
    buckets = [action.name for action in left if action.kind == "Bucket"]
    told = [f"bucket {name}, in which there is more. Look: aws s3 ls --recursive s3://{name}" for name in buckets]
    actions = tuple(action for action in planned.actions if action.kind != "Bucket" or action.name not in buckets)
    return replace(planned, actions=actions, left=(*planned.left, *told))


def _removal(name: str, platform: Platform, endpoints: Sequence[str]) -> Plan:
    observed = platform.observe((), endpoints)
    made = make_plan(name, platform.name, endpoints, (), observed)
    there = observed.get("Endpoint", endpoints[0])
    # The bucket belongs to whatever is left.
    if there and there.ours and all(action.kind == "Bucket" for action in made.actions):
        users = ", ".join(there.endpoints)
        hint = "Destroy those: the last takes the endpoint along."
        raise UsageError(f"{there.name} is the endpoint of the inference components {users}", hint=hint)
    return made


def _plan(recipe: Recipe, account: Account, platform: Platform | None, baseline: bool) -> DeploymentPlan:
    """Of a recipe that `_complete` has completed."""
    if recipe.speculation and platform and not baseline:
        baseline = _in_service(platform, recipe.baseline().name)  # one that is there is kept in step
    arms = [recipe, recipe.baseline()] if recipe.speculation and baseline else [recipe]
    resources = desired(arms, account)
    names = [arm.name for arm in arms]
    observed = platform.observe(resources, names) if platform else Observed()
    prices = [price_per_hour(arm) for arm in arms]
    made = make_plan(
        str(recipe.path.resolve()),
        recipe.platform,
        names,
        resources,
        observed,
        account=account,
        price_per_hour=None if None in prices else sum(price or 0.0 for price in prices),
        price_before=price_now(recipe.platform, observed),
        notes=tuple(notes(recipe, account)),
    )
    return DeploymentPlan(**{item.name: getattr(made, item.name) for item in fields(made)})


def _complete(recipe: Recipe, platform: Platform | None) -> tuple[Recipe, Account]:
    """The recipe with what its lock and JumpStart fill in, and the account to plan for."""
    account = platform.account(recipe) if platform else account_of(recipe.platform, recipe.region)
    return pinned(filled_in(recipe, account.jumpstart), _locked(recipe)), account


def _as_deployed(recipe: Recipe) -> Recipe:
    """With JumpStart's K and instance type, if the caller may look: who may only invoke gets the recipe's own."""
    try:
        return filled_in(recipe, jumpstart_entries(recipe))
    except ToolkitError:
        return recipe


def _locked(recipe: Recipe) -> Lock | None:
    """The recipe's lock; one that cannot be read was a finding already."""
    try:
        return read_lock(lock_path(recipe))
    except ToolkitError:
        return None


def _apply(made: Plan, platform: Platform, recipe: Recipe | None, wait: bool, progress: Progress) -> Endpoint:
    name = made.endpoints[0]
    record = _record(name)
    if (last := record.last()) and last.step != "done":
        progress.say(f"carrying on: last time, {last.verb} {last.kind} {last.name} was {last.step}")
    with platform.lease(name):
        make(made, platform, record, progress)
        if wait:
            with progress.stage("wait until in service"):
                expected = _expected_seconds(recipe) if recipe else {}
                wait_in_service(platform, made.configs, progress, _WAIT_SECONDS, expected=expected)
            complete(made, platform, record, progress)
            remove(made, platform, record, progress)
    return _handle(name, platform, recipe)


def _where(endpoint: str, recipe: Recipe | None, platform: str | None, region: str | None) -> Platform | None:
    """The platform that holds the endpoint: the one that is named, the recipe's, this machine's, or AWS."""
    if platform or recipe:
        return open_running(platform or (recipe.platform if recipe else _DEFAULT_PLATFORM), region)
    here = open_running(_DEFAULT_PLATFORM)
    if here and (_exists(here, endpoint) or not open_readable("sagemaker", region)):
        return here
    return open_readable("sagemaker", region)


def _expected_seconds(recipe: Recipe) -> dict[str, float]:
    """By stage of a container's start; nothing where the weights' size is not known, or they are on this machine."""
    size = pinned(recipe, _locked(recipe)).weight_bytes
    if recipe.platform == "local" or not size:
        return {}
    return expected_seconds(download_seconds(size), load_seconds(recipe, size))


def _handle(name: str, platform: Platform, recipe: Recipe | None) -> Endpoint:
    address, twin = platform.address(name), f"{name}-baseline"
    baseline = platform.address(twin) if _in_service(platform, twin) else None
    expected = _published_acceptance(recipe) if recipe else {}
    try:
        workloads = {key: read_prompts(path) for key, path in recipe.workloads.items()} if recipe else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"a prompt set cannot be read: {error}", hint=f"See: toolkit check {name}") from error
    speculative = recipe is None or recipe.speculation is not None
    endpoint, _, component = address.partition("/")
    return Endpoint(
        endpoint,
        platform,
        destroy,
        baseline,
        speculative,
        workloads or DEFAULT_PROMPTS,
        expected,
        component or None,
        price_per_hour(recipe) if recipe else None,
    )


def _published_acceptance(recipe: Recipe) -> dict[str, float]:
    """Acceptance length by workload, as the recipe's evidence has it for the recipe's own K."""
    k = recipe.speculation.num_speculative_tokens if recipe.speculation else None
    return {
        item.workload: item.acceptance_length
        for item in recipe.evidence
        if item.acceptance_length and item.num_speculative_tokens in (None, k)
    }


def _exists(platform: Platform, endpoint: str) -> bool:
    try:
        platform.address(endpoint)
    except EndpointNotFound:
        return False
    return True


def _in_service(platform: Platform, endpoint: str) -> bool:
    try:
        return platform.status(platform.address(endpoint)).status == "InService"
    except EndpointNotFound:
        return False


def _record(endpoint: str) -> Record:
    return Record(home() / "records" / f"{endpoint}.jsonl")


def _recipe_or_none(name: RecipeLike) -> Recipe | None:
    """The recipe that `name` means, None when it can only be the name of an endpoint."""
    try:
        return load(name)
    except RecipeNotFound:
        if "/" in str(name) or str(name).endswith((".yaml", ".yml")):
            raise
        return None
