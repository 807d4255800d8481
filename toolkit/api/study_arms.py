"""The arms of a study: whether they are there already, and the removal of what the study itself has made, only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from toolkit.api.context import exists, find_platform, open_for
from toolkit.api.deployment import plan
from toolkit.api.endpoint import Endpoint
from toolkit.api.jobs import compile as compile_ahead
from toolkit.api.steps import Steps
from toolkit.apply.progress import Progress
from toolkit.endpoint.platform import PAUSED
from toolkit.errors import EndpointNotFound, PlatformError, StalePlanError, ToolkitError, UsageError
from toolkit.measure.report import BenchReport
from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.plan import Action
from toolkit.platforms.lease import LeaseHeld
from toolkit.recipe.recipe import Recipe
from toolkit.registry import endpoint_name, rules_of, session_of

_Key = tuple[str, str]


def are_there(recipe: Recipe) -> bool:
    """Whether an arm exists where the recipe is deployed, whoever made it. False where nobody can be asked.

    Raises EndpointNotFound where one is paused, UsageError where only the endpoint of the arms is there, and
    PlatformError where it cannot be told.
    """
    if not session_of(recipe.platform.name).can_be_asked():
        return False
    opened = find_platform(recipe.name, recipe, None, None)
    if opened is None:
        return False
    names, host = _names(recipe), endpoint_name(recipe)
    found = opened.endpoints(lambda name: name in names, False)
    here = opened.account().location
    for item in found:
        if item.status == PAUSED and item.region == here:
            hint = f"Let it serve again: {_deploy_command(recipe)}. Or remove it: {destroy_command(recipe)}"
            raise EndpointNotFound(f"{item.name} is paused", hint=hint)
    if any(exists(opened, name) for name in names):
        return True
    if found.incomplete:
        raise PlatformError(found.incomplete, hint="Try again in a minute: a study removes nothing that was there.")
    if host not in names and exists(opened, host):
        hint = f"Deploy them on it, and study that: {_deploy_command(recipe)}"
        raise UsageError(f"endpoint {host} is there, and a study must not change it", hint=hint)
    return False


def in_service(recipe: Recipe, steps: Steps, progress: Progress) -> Endpoint:
    """The arms as they serve, which are not the study's to change. Raises UsageError unless they are the recipe's."""
    endpoint = steps.connect(recipe).wait(progress=progress)
    if endpoint.twin is None:
        hint = f"Deploy that first: {_deploy_command(recipe)}"
        raise UsageError(f"{recipe.name} is in service, without its baseline", hint=hint)
    planned, kinds = plan(recipe, baseline=True), {kind.kind: kind for kind in rules_of(recipe.platform.name).kinds}
    for action in planned.actions:
        serves = action.kind == "InferenceComponent" or kinds[action.kind].serves(action.request) is not None
        if serves and action.verb not in ("reuse", "delete"):
            hint = f"Bring it to the recipe: {_deploy_command(recipe)}. Or study the recipe that it was deployed from."
            raise UsageError(f"{action.name} does not serve what {recipe.path} says: {action.reason}", hint=hint)
    progress.say(f"{recipe.name} is in service already: it stays. Remove it: {destroy_command(recipe)}")
    return endpoint


def require_deployable(recipe: Recipe) -> None:
    """Raise UsageError for a recipe that a study cannot deploy, because it cannot compile for it."""
    rules = rules_of(recipe.platform.name)
    if compiles_ahead(recipe) and not rules.parts.compilation:
        run = rules.facts.compile_command.replace("RECIPE", str(recipe.path))
        hint = f"Run: {run}. Then {_deploy_command(recipe)}, and study that."
        raise UsageError(f"{recipe.name} compiles ahead, which a study does not do on {rules.name}", hint=hint)


@dataclass
class Arms:
    """Both arms as the study deploys them. What was there before, and a job of somebody else, is never removed."""

    recipe: Recipe
    steps: Steps
    progress: Progress
    _made: set[_Key] = field(default_factory=set)
    _before: set[_Key] = field(default_factory=set)

    def measured(self, measure: Callable[[Endpoint], BenchReport], *, keep: bool) -> tuple[BenchReport, str]:
        """Compile, deploy, measure, and remove unless `keep`: the report, and what may remain, in words."""
        self._prepare()
        try:
            report = measure(self.steps.deploy(self.recipe, baseline=True, progress=self.progress))
        except BaseException as error:
            if not keep and (remains := self._remove(error)):
                self.progress.say(remains)
            raise
        return report, "" if keep else self._remove()

    def _prepare(self) -> None:
        if compiles_ahead(self.recipe):
            # A job goes on after Ctrl-C, and the next call waits for it: nothing of it is removed.
            compiled = compile_ahead(self.recipe, baseline=True, progress=self.progress)
            self._made = {(action.kind, action.name) for action in compiled.actions if action.verb == "create"}
            if are_there(self.recipe):
                hint = "The same command measures it as it is."
                raise UsageError(f"{self.recipe.name} was deployed by somebody else meanwhile: it stays", hint=hint)
        names = dict.fromkeys((*_names(self.recipe), endpoint_name(self.recipe)))
        existing = open_for(self.recipe).observe((), tuple(names)).existing
        self._before = {(item.kind, item.name) for item in existing} - self._made

    def _remove(self, why: BaseException | None = None) -> str:
        """Remove what was made since, whatever happens; what may remain, in words."""
        try:
            if isinstance(why, LeaseHeld | StalePlanError) or isinstance(
                getattr(why, "__cause__", None), StalePlanError
            ):
                raise PlatformError("somebody else is deploying it")
            platform = self.recipe.platform.name
            self.steps.destroy(self.recipe, platform=platform, progress=self.progress, _may_go=self._is_ours)
        except (ToolkitError, KeyboardInterrupt) as error:
            said = error.message if isinstance(error, ToolkitError) else "interrupted"
            return (
                f"{' and '.join(_names(self.recipe))} may remain, and be billed ({said}). "
                f"Remove what is yours: {destroy_command(self.recipe)}"
            )
        return ""

    def _is_ours(self, action: Action) -> bool:
        key = (action.kind, action.name)
        jobs = {kind.kind for kind in rules_of(self.recipe.platform.name).kinds if kind.is_job}
        return key in self._made or (key not in self._before and action.kind not in jobs)


def destroy_command(recipe: Recipe) -> str:
    """The command that removes both arms."""
    return f"toolkit destroy {recipe.path} --platform {recipe.platform.name}"


def _deploy_command(recipe: Recipe) -> str:
    return f"toolkit deploy {recipe.path} --baseline"


def _names(recipe: Recipe) -> tuple[str, str]:
    return recipe.name, recipe.baseline().name
