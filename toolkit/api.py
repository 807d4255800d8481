"""The public functions: each composes the stages of the one road with the platform of the recipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from toolkit.apply.executor import make, remove
from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.waiter import EndpointStatus, wait_in_service
from toolkit.checks.run import check, require
from toolkit.checks.workloads import read_prompts
from toolkit.endpoint.handle import Endpoint
from toolkit.endpoint.prove import DEFAULT_PROMPTS
from toolkit.errors import ApplyError, EndpointNotFound, RecipeNotFound, StalePlanError, UsageError
from toolkit.findings import Report
from toolkit.home import home
from toolkit.planning.desired import desired
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.record import Record
from toolkit.planning.resources import Observed, Resource
from toolkit.platforms import Platform, account_of, open_platform, open_running
from toolkit.recipe.load import catalogue
from toolkit.recipe.resolve import Recipe, load

__all__ = [
    "Catalogue",
    "DeploymentPlan",
    "Endpoint",
    "Report",
    "check",
    "connect",
    "deploy",
    "destroy",
    "endpoints",
    "load",
    "plan",
    "recipes",
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
        platform = open_platform(self.platform)
        wanted = [Resource(a.kind, a.name, a.request) for a in self.actions if a.verb != "delete"]
        if platform.observe(wanted, self.endpoints).fingerprint() != self.fingerprint:
            again = f"toolkit plan {self.recipe} --out plan.json"
            raise StalePlanError(
                f"what runs now is not what this plan for {self.endpoints[0]} was made from", hint=f"Run: {again}"
            )
        recipe = load(self.recipe) if Path(self.recipe).is_file() else None  # it is only asked for its workloads
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
    """What `deploy` would do. Reads only; starts nothing. Raises RecipeError when a check finds an error."""
    complete = load(recipe).with_platform(platform)
    require(complete)
    return _plan(complete, open_running(complete.platform), baseline)


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
    complete = load(recipe).with_platform(platform)
    with progress.stage("check"):
        require(complete)
    with progress.stage(f"open platform {complete.platform}"):
        opened = open_platform(complete.platform)
    with progress.stage("plan"):
        made = _plan(complete, opened, baseline)
    return _apply(made, opened, complete, wait, progress)


def connect(name: RecipeLike, *, platform: str | None = None) -> Endpoint:
    """The handle of an endpoint that exists, by its name or recipe. Raises EndpointNotFound."""
    recipe = _recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = open_running(platform or (recipe.platform if recipe else _DEFAULT_PLATFORM))
    if opened is None:
        raise EndpointNotFound(
            f"there is no endpoint {endpoint}: the local platform is not running", hint="Run: toolkit deploy RECIPE"
        )
    opened.status(endpoint)
    return _handle(endpoint, opened, recipe)


def endpoints(*, platform: str = _DEFAULT_PLATFORM) -> list[EndpointStatus]:
    """Every endpoint on the platform that the toolkit made."""
    opened = open_running(platform)
    return opened.endpoints() if opened else []


def destroy(name: RecipeLike, *, platform: str | None = None, progress: Progress | None = None) -> Plan:
    """Remove an endpoint, its baseline and all that was made for them; returns the plan that was applied.

    Its actions are empty when there was nothing. Raises ApplyError.
    """
    recipe = _recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    platform = platform or (recipe.platform if recipe else _DEFAULT_PLATFORM)
    opened = open_running(platform)
    names = (endpoint, f"{endpoint}-baseline")
    observed = opened.observe((), names) if opened else Observed()
    made = make_plan(str(name), platform, names, (), observed)
    if opened:
        remove(made, opened, _record(endpoint), progress or default_progress())
        if left := make_plan(str(name), platform, names, (), opened.observe((), names)).actions:
            raise ApplyError(
                f"still there: {', '.join(f'{a.kind} {a.name}' for a in left)}", hint="Run the same command again."
            )
    return made


def _plan(recipe: Recipe, platform: Platform | None, baseline: bool) -> DeploymentPlan:
    if recipe.speculation and platform and not baseline:
        baseline = _in_service(platform, recipe.baseline().name)  # one that is there is kept in step
    arms = [recipe, recipe.baseline()] if recipe.speculation and baseline else [recipe]
    resources = desired(arms, platform.account() if platform else account_of(recipe.platform))
    names = [arm.name for arm in arms]
    observed = platform.observe(resources, names) if platform else Observed()
    made = make_plan(str(recipe.path.resolve()), recipe.platform, names, resources, observed)
    return DeploymentPlan(**{item.name: getattr(made, item.name) for item in fields(made)})


def _apply(made: Plan, platform: Platform, recipe: Recipe | None, wait: bool, progress: Progress) -> Endpoint:
    record = _record(made.endpoints[0])
    if (last := record.last()) and last.step != "done":
        progress.say(f"carrying on: last time, {last.verb} {last.kind} {last.name} was {last.step}")
    make(made, platform, record, progress)
    if wait:
        with progress.stage("wait until in service"):
            wait_in_service(platform, made.configs, progress, _WAIT_SECONDS)
        remove(made, platform, record, progress)
    return _handle(made.endpoints[0], platform, recipe)


def _handle(name: str, platform: Platform, recipe: Recipe | None) -> Endpoint:
    twin = f"{name}-baseline" if _in_service(platform, f"{name}-baseline") else None
    expected = _published_acceptance(recipe) if recipe else {}
    try:
        workloads = {key: read_prompts(path) for key, path in recipe.workloads.items()} if recipe else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"a prompt set cannot be read: {error}", hint=f"See: toolkit check {name}") from error
    speculative = recipe is None or recipe.speculation is not None
    return Endpoint(name, platform, destroy, twin, speculative, workloads or DEFAULT_PROMPTS, expected)


def _published_acceptance(recipe: Recipe) -> dict[str, float]:
    """Acceptance length by workload, as the recipe's evidence has it for the recipe's own K."""
    k = recipe.speculation.num_speculative_tokens if recipe.speculation else None
    return {
        item.workload: item.acceptance_length
        for item in recipe.evidence
        if item.acceptance_length and item.num_speculative_tokens in (None, k)
    }


def _in_service(platform: Platform, endpoint: str) -> bool:
    try:
        return platform.status(endpoint).status == "InService"
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
