"""Plan, deploy and roll back."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from toolkit.api.context import (
    RecipeLike,
    as_deployed,
    complete_recipe,
    exists,
    in_service,
    locked,
    place,
    recipe_or_none,
    record_of,
    where,
)
from toolkit.api.handles import found_handle, made_handle
from toolkit.apply.executor import complete, make, remove
from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.stages import expected_seconds
from toolkit.apply.waiter import wait_in_service, wait_settled
from toolkit.catalog.registry import platform_rules
from toolkit.checks.run import require
from toolkit.endpoint.handle import Endpoint
from toolkit.errors import EndpointNotFound, StalePlanError, UsageError
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import NO_ACCOUNT, Account, Observed, Resource
from toolkit.platforms import Platform, open_platform, open_readable
from toolkit.platforms.rules import PlatformRules
from toolkit.recipe.lock import download_seconds, load_seconds, pinned
from toolkit.recipe.resolve import Recipe, load

# SageMaker gives a container at most an hour to get healthy, and downloads weights before that.
_WAIT_SECONDS = 7200.0
# Until a cluster has told that the time for a rollout is up.
_MARGIN_SECONDS = 600.0


class DeploymentPlan(Plan):
    """A plan that knows how to apply itself."""

    def apply(self, *, wait: bool = True, progress: Progress | None = None) -> Endpoint:
        """Do what the plan says, if what runs is still what it was made from.

        Raises StalePlanError, ApplyError, EndpointFailed or WaitTimeout.
        """
        if self.account == NO_ACCOUNT:
            hint = f"Log in, and make it again: toolkit plan {self.recipe} --out plan.json"
            lacked = "a kubeconfig" if self.platform == "kubernetes" else "an AWS account"
            raise StalePlanError(f"this plan was made without {lacked}", hint=hint)
        platform = open_platform(self.platform, self.region)
        wanted = [Resource(a.kind, a.name, a.request) for a in self.actions if a.verb != "delete"]
        if platform.observe(wanted, self.endpoints).fingerprint() != self.fingerprint:
            again = f"toolkit plan {self.recipe} --out plan.json"
            raise StalePlanError(
                f"what runs now is not what this plan for {self.endpoints[0]} was made from", hint=f"Run: {again}"
            )
        recipe = as_deployed(load(self.recipe)) if Path(self.recipe).is_file() else None  # for what `prove` asks
        _apply(self, platform, recipe, wait, progress or default_progress())
        return made_handle(self, platform, recipe)


def plan(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> DeploymentPlan:
    """What `deploy` would do. Reads only; starts nothing. Raises RecipeError when a check finds an error.

    Without AWS credentials it is the plan for an account that holds nothing.
    """
    loaded = load(recipe).with_platform(platform)
    require(loaded)
    opened = open_readable(loaded.platform.name, place(loaded))
    if loaded.speculation and opened and not baseline:
        baseline = in_service(opened, loaded.baseline().name)  # one that is there is kept in step
    return _plan(*complete_recipe(loaded, opened), opened, baseline)


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
    with progress.stage(f"open platform {loaded.platform.name}"):
        opened = open_platform(loaded.platform.name, place(loaded))
    with progress.stage("plan"):
        exists = _settled(opened, loaded, progress)
        if loaded.speculation and (exists or baseline):
            twin = loaded.baseline()
            twin_exists = _settled(opened, twin, progress)
            baseline = baseline or (twin_exists and in_service(opened, twin.name))
            exists = exists or twin_exists
        filled, account = complete_recipe(loaded, opened)
        is_new = not exists and not filled.platform.component  # which may live elsewhere
        made = _plan(filled, account, opened, baseline, is_new=is_new)
    _apply(made, opened, filled, wait, progress)
    if wait and is_new:  # what an earlier try has left is looked for when that holds up nobody
        left = _plan(filled, account, opened, baseline)
        if left.changes:
            _apply(left, opened, filled, wait, progress)
    return made_handle(made, opened, filled)


def rollback(
    name: RecipeLike, *, platform: str | None = None, wait: bool = True, progress: Progress | None = None
) -> Endpoint:
    """Bring an endpoint back to what it ran before its last update. A rollback is an update too: again goes forward.

    Raises UsageError when there is nothing to go back to, EndpointNotFound, ApplyError, EndpointFailed or WaitTimeout.
    """
    recipe = recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = where(endpoint, recipe, platform, recipe.platform.region if recipe else None)
    if opened is None:
        raise EndpointNotFound(f"there is no endpoint {endpoint}: the local platform is not running")
    address = opened.address(endpoint)
    if opened.name == "kubernetes":
        raise UsageError(
            f"{endpoint} is on Kubernetes, where nothing is kept of an older recipe", hint="Deploy the older recipe."
        )
    made = platform_rules(opened.name).rollback(str(name), address, opened.observe((), [endpoint]))
    deployed = as_deployed(recipe) if recipe else None
    _apply(made, opened, deployed, wait, progress or default_progress())
    return found_handle(endpoint, opened, deployed)


def _settled(platform: Platform, recipe: Recipe, progress: Progress) -> bool:
    """Whether the recipe's endpoint is there, once AWS takes changes of it: none while another one is under way."""
    if platform.name == "kubernetes":  # which takes them at any time
        return exists(platform, recipe.name)
    return wait_settled(platform, platform_rules(platform.name).endpoint_name(recipe), _WAIT_SECONDS, progress)


def _plan(
    recipe: Recipe, account: Account, platform: Platform | None, baseline: bool, *, is_new: bool = False
) -> DeploymentPlan:
    """Of a recipe that is complete; with `is_new`, without a look at what making it tells of anyway."""
    arms = [recipe, recipe.baseline()] if recipe.speculation and baseline else [recipe]
    rules: PlatformRules = platform_rules(recipe.platform.name)
    resources = rules.desired(arms, account)
    names = [arm.name for arm in arms]
    observed = platform.observe(resources, () if is_new else names) if platform else Observed()
    prices = [rules.price_per_hour(arm) for arm in arms]
    made = make_plan(
        str(recipe.path.resolve()),
        rules,
        names,
        resources,
        observed,
        account=account,
        price_per_hour=None if None in prices else sum(price or 0.0 for price in prices),
        price_before=rules.price_now(observed),
        notes=tuple(rules.notes(recipe, account)),
    )
    return DeploymentPlan(**{item.name: getattr(made, item.name) for item in fields(made)})


def _apply(made: Plan, platform: Platform, recipe: Recipe | None, wait: bool, progress: Progress) -> None:
    platform_rules(made.platform).require_startable(made)
    name = made.endpoints[0]
    record = record_of(name)
    if (last := record.last()) and last.step != "done":
        progress.say(f"carrying on: last time, {last.verb} {last.kind} {last.name} was {last.step}")
    with platform.lease(name):
        make(made, platform, record, progress)
        if wait:
            with progress.stage("wait until in service"):
                expected = _expected_seconds(recipe) if recipe else {}
                wait_in_service(platform, made.configs, progress, wait_seconds(made), expected=expected)
            complete(made, platform, record, progress)
            remove(made, platform, record, progress)


def wait_seconds(made: Plan) -> float:
    """How long endpoints may take: on a cluster a Deployment says it, for each of the pods that an update starts."""
    wanted = [action.request["spec"] for action in made.actions if action.kind == "Deployment" and action.request]
    deadlines: list[float] = [spec.get("progressDeadlineSeconds", 0) * spec.get("replicas", 1) for spec in wanted]
    return max(_WAIT_SECONDS, max(deadlines, default=0.0) + _MARGIN_SECONDS)


def _expected_seconds(recipe: Recipe) -> dict[str, float]:
    """By stage of a container's start; nothing where the weights' size is not known, or they are on this machine."""
    size = pinned(recipe, locked(recipe)).weight_bytes
    if recipe.platform.name == "local" or not size:
        return {}
    return expected_seconds(download_seconds(size), load_seconds(recipe, size))
