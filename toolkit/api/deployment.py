"""Plan, deploy and roll back. `deploy` is the road of the package's docstring: check, plan, apply, sweep, endpoint."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.api.context import (
    arms_of,
    complete_recipe,
    deployed_recipe,
    find_platform,
    find_unpinned,
    in_service,
    load_named,
    open_for,
    open_for_plan,
    recipe_file,
    recipe_or_none,
    record_of,
    record_on,
)
from toolkit.apply.progress import Progress, Silent, default_progress
from toolkit.checks.catalogue import current_day, old_facts, update_command
from toolkit.checks.run import require
from toolkit.errors import EndpointFailed, EndpointNotFound, StalePlanError, UsageError
from toolkit.findings import Finding
from toolkit.home import cache
from toolkit.loading import RecipeLike, load, on_platform
from toolkit.planning.kinds import configs
from toolkit.planning.plan import WARNING, Plan, differences, same_scope, unapproved
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import NO_ACCOUNT, Account, Existing, Observed, Resource
from toolkit.planning.retention import stays_in_words
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.starts import MeasuredStart, expected_seconds, start_notes, what_starts
from toolkit.registry import endpoint_name, open_platform, rules_of, session_of

if TYPE_CHECKING:
    from toolkit.api.endpoint import Endpoint
    from toolkit.planning.record import Record
    from toolkit.platforms.rules import AwsSession, Platform

# SageMaker allows a container at most an hour to become healthy, and downloads weights before that.
_WAIT_SECONDS = 7200.0
_MOST_SHOWN = 5


@dataclass(frozen=True, repr=False)
class DeploymentPlan(Plan):
    """A plan that knows how to apply itself, with the AWS session that it was made with."""

    session: AwsSession | None = field(default=None, compare=False)

    def apply(self, *, wait: bool = True, progress: Progress | None = None) -> Endpoint:
        """Do what the plan says, if what runs is still what it was made from.

        Raises StalePlanError, ApplyError, EndpointFailed or WaitTimeout.
        """
        from toolkit.api.handles import planned_endpoint

        again = f"toolkit plan {self.recipe} --out plan.json"
        if self.account == NO_ACCOUNT:
            without = session_of(self.platform).account_name
            raise StalePlanError(f"this plan was made without {without}", hint=f"Log in, and make it again: {again}")
        platform = open_platform(self.platform, self.region, self.session)
        wanted = [Resource(a.kind, a.name, a.request) for a in self.actions if a.verb != "delete"]
        before = platform.observe(wanted, self.endpoints)
        if before.fingerprint() != self.fingerprint:
            raise self._stale(again)

        def unchanged() -> Plan:
            now = platform.observe(wanted, self.endpoints)
            if _without_home(now) != _without_home(before):
                raise self._stale(again)
            return self

        loaded = load(self.recipe, self.platform) if Path(self.recipe).is_file() else None
        recipe = deployed_recipe(loaded, self.session) if loaded else None  # for what `prove` asks
        _apply(self, platform, recipe, wait, progress or default_progress(), unchanged)
        return planned_endpoint(self, platform, recipe)

    def _stale(self, again: str) -> StalePlanError:
        message = f"what runs now is not what this plan for {self.endpoints[0]} was made from"
        return StalePlanError(message, hint=f"Run: {again}")


def _without_home(observed: Observed) -> list[Existing]:
    """Without what a lease is kept in, which is made for it."""
    return [item for item in observed.existing if item.kind not in ("Bucket", "Namespace")]


@dataclass(frozen=True)
class _Deployment:
    """A complete recipe on its way to an account; `is_new` where that has no endpoint of it yet.

    `warnings` are those of its check.
    """

    recipe: Recipe
    account: Account
    with_baseline: bool
    warnings: Sequence[Finding]
    is_new: bool = False

    @property
    def arms(self) -> list[Recipe]:
        return arms_of(self.recipe, self.with_baseline)


def plan(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    baseline: bool = False,
    session: AwsSession | None = None,
    discount_percent: float = 0.0,
) -> DeploymentPlan:
    """What `deploy` would do. Reads only; starts nothing. Raises RecipeError when a check finds an error.

    `recipe` may also be the ARN of a registered version, or of its group, as for `deploy`.

    `discount_percent` is your discount on the list prices, such as a savings plan's. `session` is a boto3.Session, or a
    Session of the SageMaker SDK, to use instead of the environment's. Without AWS credentials it is the plan for an
    account in which there is nothing yet.
    """
    loaded = replace(load_named(recipe, platform, session), discount_percent=discount_percent)
    warnings = require(loaded).warnings
    opened = open_for_plan(loaded, session)
    if loaded.speculation and opened and not baseline:
        baseline = in_service(opened, loaded.baseline().name)  # one that exists is kept in step
    return replace(_plan(_Deployment(*complete_recipe(loaded, opened), baseline, warnings), opened), session=session)


def deploy(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    baseline: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
    approve: Callable[[Plan], object] | None = None,
    session: AwsSession | None = None,
    discount_percent: float = 0.0,
) -> Endpoint:
    """Check, plan and apply; returns when the endpoint is in service, unless `wait` is off.

    `recipe` may also be the ARN of an approved version in SageMaker's model registry (see `register`), or of its group,
    which means the newest approved version of it.

    `approve` gets the plan before anything changes, and raises to stop; `discount_percent` is your discount on its
    prices. `baseline` also makes the same endpoint without speculation. Called again, it does nothing, or carries on
    where it was interrupted. `session` is a boto3.Session, or a Session of the SageMaker SDK, to use instead of the
    environment's: its region, its credentials and, if SageMaker can assume it, its role.

    Raises RecipeError, ApplyError, EndpointFailed or WaitTimeout.
    """
    from toolkit.api.handles import planned_endpoint

    progress = progress or default_progress()
    loaded = replace(load_named(recipe, platform, session), discount_percent=discount_percent)
    with progress.stage("check"):
        warnings = require(loaded).warnings
    with progress.stage(f"open platform {loaded.platform.name}"):
        opened = open_for(loaded, session)
    with progress.stage("plan"):
        deployment = _prepare(loaded, warnings, opened, baseline, progress)
        plan = _plan(deployment, opened)
    for warning in plan.warnings:
        progress.say(warning)
    if approve:
        approve(plan)
    # Of a new endpoint, making a resource that exists is refused.
    _apply(
        plan,
        opened,
        deployment.recipe,
        wait,
        progress,
        lambda: plan if deployment.is_new else _plan(deployment, opened),
    )
    if wait and deployment.is_new:
        _sweep(deployment, opened, progress)
    return planned_endpoint(plan, opened, deployment.recipe)


def rollback(
    name: RecipeLike,
    *,
    platform: str | None = None,
    wait: bool = True,
    progress: Progress | None = None,
    session: AwsSession | None = None,
) -> Endpoint:
    """Return an endpoint to what it ran before its last update. A second rollback undoes the first.

    `session` is an AWS session to use instead of the environment's.

    Raises UsageError when there is nothing to go back to, EndpointNotFound, ApplyError, EndpointFailed or WaitTimeout.
    """
    from toolkit.api.handles import existing_endpoint
    from toolkit.api.listing import unknown_endpoint

    recipe = recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = find_platform(endpoint, recipe, platform, None, session)
    if opened is None:
        raise unknown_endpoint(endpoint, ": the local platform is not running", recipe_file(recipe))
    rules = rules_of(opened.name)
    if rules.parts.rollback is None:
        raise UsageError(f"platform `{opened.name}` has no rollback", hint="Deploy the older recipe.")
    try:
        address = opened.address(endpoint)
    except EndpointNotFound as error:
        if session is not None:
            raise  # which names are like it, only the environment's own account would be asked
        raise unknown_endpoint(endpoint, recipe=recipe_file(recipe)) from error
    back = rules.parts.rollback

    def plan_now() -> Plan:
        return back(recipe_file(recipe), opened.name, address, opened.observe((), [endpoint]))

    plan = plan_now()
    deployed = deployed_recipe(recipe, session) if recipe else None
    progress = progress or default_progress()
    for note in plan.notes:
        progress.say(note)
    _apply(plan, opened, deployed, wait, progress, plan_now)
    return existing_endpoint(endpoint, opened, deployed)


def _prepare(
    recipe: Recipe, warnings: Sequence[Finding], platform: Platform, baseline: bool, progress: Progress
) -> _Deployment:
    """What is to be deployed, once the platform takes changes of it. A baseline that serves is kept in step."""
    exists = platform.exists_settled(endpoint_name(recipe), progress)
    if recipe.speculation and (exists or baseline):
        twin = recipe.baseline()
        twin_exists = platform.exists_settled(endpoint_name(twin), progress)
        baseline = baseline or (twin_exists and in_service(platform, twin.name))
        exists = exists or twin_exists
    complete_one, account = complete_recipe(recipe, platform)
    # An inference component may exist on an endpoint of another name.
    return _Deployment(
        complete_one,
        account,
        baseline,
        warnings,
        not exists and getattr(complete_one.platform, "inference_component", None) is None,
    )


def _plan(deployment: _Deployment, platform: Platform | None) -> DeploymentPlan:
    """Compare the wanted resources with the existing ones.

    A new endpoint's own resources are not read first: creating one fails if it exists.
    """
    recipe, arms = deployment.recipe, deployment.arms
    rules = rules_of(recipe.platform.name)
    resources = rules.desired(arms, deployment.account)
    names = [arm.name for arm in arms]
    observed = platform.observe(resources, () if deployment.is_new else names) if platform else Observed()
    price_now = rules.parts.price_now
    prices = [arm.price_per_hour for arm in arms]
    notes = [*recipe.chosen_notes(), *rules.notes(recipe, deployment.account)]
    notes += (f"{WARNING}{finding.sentence}" for finding in deployment.warnings)
    desired = {resource.kind for resource in resources}
    if stays := stays_in_words([kind.kept_as for kind in rules.kinds if kind.kind in desired and kind.kept_as]):
        notes.append(stays)
    if outdated := old_facts(recipe, current_day()):
        notes.append(f"Catalogue: {outdated}. To renew prices, heads and images: {update_command(recipe)}")
    plan = make_plan(
        recipe_file(recipe),
        rules,
        names,
        resources,
        observed,
        account=deployment.account,
        price_per_hour=None if None in prices else sum(price or 0.0 for price in prices),
        price_before=recipe.discounted(price_now(observed, recipe.region)) if price_now else None,
        notes=notes,
    )
    if configs(replace(plan, actions=tuple(plan.changes)), rules.kinds):
        record = record_of(recipe.name, rules.name, deployment.account, Silent())
        last = record.last_start(what_starts(recipe))
        plan = replace(plan, notes=(*plan.notes, *_of_another(plan, record), *start_notes(recipe, last)))
    if recipe.candidate:  # a trial removes nothing, so that all can be as it was before
        plan = replace(plan, actions=tuple(action for action in plan.actions if action.verb != "delete"))
    unpinned = tuple(find_unpinned(recipe, deployment.account))
    return DeploymentPlan(**{**vars(plan), "unpinned": unpinned, "discount_percent": recipe.discount_percent})


def _of_another(plan: Plan, record: Record) -> Iterator[str]:
    """That the endpoint which the plan changes was deployed from another recipe, which may have its name by mistake.

    A registered version is a copy of a recipe, with its name on purpose.
    """
    kinds, changed = rules_of(plan.platform).kinds, [action for action in plan.changes if action.verb != "create"]
    ours = {(action.kind, action.name) for action in changed if configs(replace(plan, actions=(action,)), kinds)}
    done = (event for event in reversed(record.events()) if event.step == "done" and (event.kind, event.name) in ours)
    # A command that was given the endpoint's name records no file; earlier versions recorded what was given.
    deployed = (path for event in done if (path := Path(event.recipe)).is_absolute())
    last, now = next(deployed, Path(plan.recipe)).resolve(), Path(plan.recipe)
    if last != now and last.is_file() and not any(path.is_relative_to(cache().resolve()) for path in (last, now)):
        name = plan.endpoints[0]
        yield f"{WARNING}{name} was deployed from {last}. If both shall serve, give one of them another `name:`"


def _apply(
    plan: Plan, platform: Platform, recipe: Recipe | None, wait: bool, progress: Progress, again: Callable[[], Plan]
) -> None:
    """Make and update, wait until the endpoints serve, make what needs them to serve, remove what is superseded.

    `again` makes the plan anew once nobody else changes the endpoint. Raises StalePlanError where it is another then.
    """
    from toolkit.apply.executor import complete, leased, make, remove  # a plan needs none of it
    from toolkit.apply.waiter import wait_in_service

    rules = rules_of(platform.name)
    parts = rules.parts
    if parts.compilation:
        parts.compilation.require_compiled(plan)
    name = plan.endpoints[0]
    record = record_on(platform, name, progress)
    events = record.events()
    if events and (last := events[-1]).step != "done":
        how = {"started": "did not end", "failed": "failed"}.get(last.step, f"was {last.step}")
        progress.say(f"carrying on: last time, {last.verb} {last.kind} {last.name} {how}")
    with leased(platform, name) as held:
        if plan.changes:
            plan = _approved(plan, again())
        make(plan, rules.kinds, held, record, progress)
        if wait:
            with progress.stage("wait until in service"):
                longest = parts.wait_seconds(plan) if parts.wait_seconds else _WAIT_SECONDS
                expected = expected_seconds(recipe) if recipe else {}
                try:
                    took = wait_in_service(platform, configs(plan, rules.kinds), progress, longest, expected=expected)
                except EndpointFailed:
                    held.confirm()  # somebody else may have deployed since: then it is no failure of ours
                    raise
            if recipe and plan.changes and took.get(name):
                record.write_start(plan, name, MeasuredStart(what_starts(recipe), took[name]))
            complete(plan, rules.kinds, held, record, progress)
            remove(plan, held, record, progress)


def _approved(approved: Plan, now: Plan) -> Plan:
    """What is left to do of an approved plan. Raises StalePlanError where it would be more than that."""
    if more := unapproved(approved, now):
        lines = "".join(f"\n  {action}: {action.reason}" for action in more[:_MOST_SHOWN])
        message = f"{approved.endpoints[0]} was changed by somebody else after this was planned; now it would be{lines}"
        raise StalePlanError(message, hint="Run the same command again: it plans anew.")
    return now


def _sweep(deployment: _Deployment, platform: Platform, progress: Progress) -> None:
    """Remove leftovers of an interrupted deployment. Done last, so that a new endpoint need not wait for it."""
    exists = replace(deployment, is_new=False)
    rest = _plan(exists, platform)
    if rest.changes:
        _apply(rest, platform, deployment.recipe, True, progress, lambda: _plan(exists, platform))


def read_plan(path: Path, recipe: RecipeLike | None = None, *, platform: str | None = None) -> DeploymentPlan:
    """The plan of a saved one's recipe, made anew: the file is only compared with it, for anybody may have edited it.

    `recipe` and `platform` say what the plan must be of: by default the recipe that it names, and that recipe's
    platform. Raises UsageError where the saved plan differs, StalePlanError where what runs has changed.
    """
    saved = Plan.read(path)
    loaded = on_platform(_recipe(saved, path, recipe), platform)
    if saved.platform != loaded.platform.name:
        message = f"{path} is for platform `{saved.platform}`, and {loaded.path} for `{loaded.platform.name}`"
        option = f"--platform {shlex.quote(saved.platform)}"
        raise UsageError(message, hint=f"If that is meant, add {option}; otherwise plan again.")
    with_baseline = len(saved.endpoints) > 1
    derived = plan(loaded, baseline=with_baseline, discount_percent=saved.discount_percent)
    differing, is_stale = differences(saved, derived), saved.fingerprint != derived.fingerprint
    if not (differing or is_stale):
        return derived
    more = [f"and {len(differing) - _MOST_SHOWN} more"] if len(differing) > _MOST_SHOWN else []
    shown = "".join(f"\n  {line}" for line in (*differing[:_MOST_SHOWN], *more))
    options = [*(["--platform", platform] if platform else []), *(["--baseline"] if with_baseline else [])]
    again = shlex.join(["toolkit", "plan", str(loaded.path), *options, "--out", str(path)])
    if is_stale and same_scope(saved, derived):
        raise StalePlanError(f"what runs now is not what {path} was made from{shown}", hint=f"Plan again: {again}")
    raise UsageError(f"{path} is not what {loaded.path} leads to{shown}", hint=f"Plan again: {again}")


def _recipe(saved: Plan, path: Path, recipe: RecipeLike | None) -> Recipe:
    if recipe is None and not Path(saved.recipe).is_file():
        hint = f"Name the recipe: toolkit deploy RECIPE --plan {shlex.quote(str(path))}"
        raise UsageError(f"{path} was made from {saved.recipe}, which is not a file on this machine", hint=hint)
    return load(saved.recipe if recipe is None else recipe)
