"""Register a recipe as a version of a model in SageMaker's model registry, from which `deploy` takes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from toolkit import documents
from toolkit.api.context import complete_recipe, find_unpinned, open_for, recipe_file, record_on
from toolkit.api.handles import speculation_in_words
from toolkit.api.outside import OUTSIDE
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.errors import ToolkitError, UsageError
from toolkit.loading import RecipeLike, load
from toolkit.measure.report import BenchReport, load_report
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.platforms.parts import ModelRegistry, Version
from toolkit.recipe.content import TRAINED_BY
from toolkit.recipe.recipe import Recipe
from toolkit.registry import rules_of
from toolkit.text import inert

if TYPE_CHECKING:
    from toolkit.platforms.rules import AwsSession, Platform

Status = Literal["PendingManualApproval", "Approved", "Rejected"]
_NO = "no speculation"
_WORDS = {"create": "registered", "update": "its status was changed", "reuse": "was registered already"}


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a model in the registry: `done` says what was done, `training_job` where its head is from."""

    group: str
    version: int
    arn: str
    status: str
    done: str
    training_job: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit register --json`."""
        return asdict(self)

    def __repr__(self) -> str:
        return inert(f"<RegisteredVersion {self.version} of {self.group}: {self.status} ({self.arn})>")


def register(
    recipe: RecipeLike,
    *,
    group: str,
    report: BenchReport | str | os.PathLike[str] | None = None,
    status: Status | None = None,
    progress: Progress | None = None,
    approve: Callable[[Plan], object] | None = None,
    session: AwsSession | None = None,
) -> RegisteredVersion:
    """Register the recipe, with its weights in S3, as a version of a model package group, which is made if needed.

    `report` is what `prove` measured, or the file it was saved in. `status` is the version's approval, by default
    PendingManualApproval. For a recipe that is registered already no version is added; only its status changes, if one
    is given. `approve` gets the plan before anything changes, and raises to stop.

    Raises RecipeError, UsageError where the platform has no registry, or ApplyError.
    """
    from toolkit.apply.executor import leased, make

    if status is not None and status not in get_args(Status):
        raise UsageError(f"status: {status} is none", hint=f"Give one of {', '.join(get_args(Status))}.")
    progress = progress or default_progress()
    proof = report if report is None or isinstance(report, BenchReport) else load_report(report)
    with progress.stage("check"):
        loaded = load(recipe)
        registry = _registry(loaded)
        if proof:
            _require_own(proof, loaded)
        owner = registry.owner(group)
        require(loaded)
    with progress.stage(f"open platform {loaded.platform.name}"):
        opened = open_for(loaded, session)
    with progress.stage("plan"):
        complete, account = complete_recipe(loaded, opened)
        version = Version(group, status, proof, _training_job(loaded, opened, session))
        rules = rules_of(opened.name)
        resources = registry.resources(complete, account, version)
        observed = opened.observe(resources, ())
        plan = make_plan(recipe_file(loaded), rules, [owner], resources, observed, account=account)
    for line in find_unpinned(complete, account):
        progress.say(f"not pinned: {line}")
    if approve:
        approve(plan)
    with leased(opened, owner) as held:
        make(plan, rules.kinds, held, record_on(opened, owner, progress), progress)
    made = registry.newest(opened.observe(resources, ()), group)
    assert made, "it was made just now"
    verb = next(action.verb for action in plan.actions if (action.kind, action.name) == (made.kind, made.name))
    state = made.state
    return RegisteredVersion(group, state["Version"], state["Arn"], state["Status"], _WORDS[verb], version.training_job)


def _registry(recipe: Recipe) -> ModelRegistry:
    """The registry of its platform. Raises UsageError where there is none."""
    registry = rules_of(recipe.platform.name).parts.registry
    if registry is None:
        where = f"{recipe.path}:{recipe.lines.get('platform.name', 1)}"
        message = f"{where}: platform.name: `{recipe.platform.name}` has no model registry"
        raise UsageError(message, hint="Write `platform: {name: sagemaker}`.")
    return registry()


def _require_own(proof: BenchReport, recipe: Recipe) -> None:
    """Raise UsageError for a report that tells of another target or speculation. Where a model lies may differ."""
    if "target" not in proof.setting:  # of a URL, or of an endpoint without its recipe
        return
    target, drafts = str(proof.setting["target"]), str(proof.setting.get("speculation", ""))
    wanted = speculation_in_words(recipe)
    if _last_part(target) != _last_part(str(recipe.target)) or drafts != wanted:
        of, no = f"{target} with {drafts or _NO}", f"{recipe.target} with {wanted or _NO}"
        message = f"the report is of {of}, the recipe of {no}"
        raise UsageError(message, hint=f"Measure this one: toolkit prove {recipe.path} --json > proof.json")


def _last_part(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2]


def _training_job(recipe: Recipe, platform: Platform, login: AwsSession | None) -> str:
    """The job that has trained the recipe's head, as is written beside that; empty where none is known there."""
    if recipe.drafter is None:
        return ""
    with suppress(ToolkitError, OSError, ValueError):
        if recipe.drafter.folder:
            text = documents.read_file(recipe.drafter.folder / TRAINED_BY)
        else:
            address = f"{str(recipe.drafter).rstrip('/')}/{TRAINED_BY}"
            text = next((content for _, content in platform.read_objects(address)), b"")
        trained_on, name = text.decode("ascii").split()
        if trained_on == platform.name:
            return OUTSIDE.open_trainer(recipe, login).training_job(name).name
    return ""
