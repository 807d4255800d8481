"""AWS's study of speculative decoding on Trainium, of a recipe: compile, deploy both arms, measure, remove.

Only what the study itself has made is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from toolkit.api.catalogue import recipes
from toolkit.api.context import exists, find_platform, open_for, recipe_or_none
from toolkit.api.deployment import plan
from toolkit.api.endpoint import Endpoint
from toolkit.api.jobs import compile as compile_ahead
from toolkit.api.steps import STEPS, Steps
from toolkit.api.tracking import bench_metrics, find_trackers
from toolkit.api.trials import circumstances, content
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.endpoint.platform import PAUSED
from toolkit.errors import EndpointNotFound, PlatformError, StalePlanError, ToolkitError, UsageError
from toolkit.files import make_private_folder
from toolkit.home import home_folder
from toolkit.loading import RecipeLike, on_platform
from toolkit.measure.report import BenchReport
from toolkit.measure.study import CONCURRENCY, WORKLOAD, StudyReport, published
from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.plan import Action
from toolkit.platforms.lease import LeaseHeld
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe
from toolkit.registry import endpoint_name, price_text, rules_of, session_of

SECONDS = 1800.0
"""How long both arms are measured at most."""


def study(
    what: RecipeLike,
    *,
    hardware: str | None = None,
    platform: str | None = None,
    seconds: float = SECONDS,
    keep: bool = False,
    progress: Progress | None = None,
    _steps: Steps = STEPS,
) -> StudyReport:
    """Measure a recipe as AWS's study of Trainium did, and show the study's published figures beside.

    `what` is a recipe, or a model such as `qwen3-32b` with its `hardware`, for which the toolkit has a recipe. The two
    arms, with and without speculation, are compiled if they compile ahead, deployed, and sent the eight classes of
    prompts four at a time, for `seconds` at most; then they are removed, unless `keep`. Results are kept, so that a
    repeated call carries on after an interruption. Endpoints that were there before are not removed, nor are those
    that a killed study left: if they serve what the recipe says, they are measured as they are. The report's `remains`
    says what could not be removed. If the environment names a tracker (tracking.py), the result is also a run there.

    Raises UsageError, RecipeError or PlatformError.
    """
    progress = progress or default_progress()
    trackers = find_trackers(progress)
    recipe = studied_recipe(what, hardware, platform)
    require(recipe)
    folder = home_folder("studies") / recipe.name
    results = folder / f"{digest(content(recipe))}.jsonl"
    make_private_folder(folder)
    measure = partial(
        _steps.measure,
        workloads=(WORKLOAD,),
        concurrency=(CONCURRENCY,),
        seconds=seconds,
        journal=results,
        progress=progress,
    )
    with _alone(folder, recipe.name):
        if are_there(recipe):
            report, remains = measure(in_service(recipe, _steps, progress)), ""
        else:
            _require_deployable(recipe)
            report, remains = Arms(recipe, _steps, progress).measured(measure, keep=keep)
        report = replace(report, setting={**report.setting, **circumstances(recipe)})
        measured = StudyReport(report, setting_of(recipe), remains)
        trackers.log(f"study {recipe.name}", dict(measured.setting), bench_metrics(report), measured.to_dict())
        if report.complete:
            results.unlink(missing_ok=True)  # or the next study would measure nothing
    return measured


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Raises UsageError while another process studies it."""
    lock = FileLock(folder / "lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout as error:
        raise UsageError(f"{name} is being studied by another process", hint="Wait until it has ended.") from error
    try:
        yield
    finally:
        lock.release()


def price(recipe: Recipe) -> str | None:
    """What a study costs while it runs, in words; None where nothing is billed, or both arms serve already.

    Raises UsageError for what a study cannot deploy.
    """
    if recipe.price_per_hour == 0 or are_there(recipe):
        return None
    _require_deployable(recipe)
    before = "two jobs that compile, then " if compiles_ahead(recipe) else ""
    return f"{before}two endpoints, for as long as they start and are measured; each {price_text(recipe)}"


def studied_recipe(what: RecipeLike, hardware: str | None = None, platform: str | None = None) -> Recipe:
    """The recipe that is meant, on its platform. Raises UsageError where none is, or where it does not speculate."""
    recipe = recipe_or_none(what)
    if recipe and hardware:
        raise UsageError(f"{what} is a recipe, which names its hardware", hint="Leave out --hardware.")
    recipe = recipe or _of_model(str(what), hardware, platform)
    if recipe.speculation is None:
        hint = "Name one that does: its baseline is measured beside it."
        raise UsageError(f"{recipe.path} does not speculate", hint=hint)
    return on_platform(recipe, platform)


def _of_model(model: str, hardware: str | None, platform: str | None) -> Recipe:
    """The recipe of a model: that of the published pair, or else the only one on this hardware."""
    found = {name: one for name, one in recipes().matching(hardware=hardware).entries if name.split("/")[0] == model}
    there = {name: one for name, one in found.items() if platform in (None, one.platform.name)}
    chosen = [there[name] for name in published().recipes if name in there] or [*there.values()]
    here = [one for one in chosen if one.platform.name == chosen[0].platform.name]
    if len(here) == 1:
        return here[0]
    on = f" on {hardware}" if hardware else ""
    if there:
        raise UsageError(f"{len(there)} recipes of {model}{on} could be meant", hint=f"Name one: {', '.join(there)}.")
    if found:
        known = ", ".join(f"{name} ({one.platform.name})" for name, one in found.items())
        raise UsageError(f"no recipe of {model}{on} is for platform `{platform}`", hint=f"There are {known}.")
    hint = f"Make one, and study that: toolkit new MODEL{f' --hardware {hardware}' if hardware else ''}"
    raise UsageError(f"no recipe of {model}{on} comes with the toolkit", hint=hint)


def setting_of(recipe: Recipe) -> dict[str, str]:
    """By the names of the published one."""
    drafter, made = recipe.drafter, circumstances(recipe)
    assert recipe.speculation, "a study's recipe speculates"
    return {
        "target": recipe.target.name,
        "drafter": drafter.name if drafter else recipe.method,
        "K": str(recipe.speculation.num_speculative_tokens),
        "hardware": made["hardware"],
        "tensor parallel": str(recipe.engine.args.get("tensor-parallel-size", 1)),
        "engine": made["engine"],
        "longest sequence": str(recipe.engine.max_model_len),
        "requests in a batch": str(recipe.engine.max_num_seqs),
        "concurrent requests": str(CONCURRENCY),
        "asked by": "toolkit bench, the arms by turns",
    }


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
            hint = f"Let it serve again: {_deploy_command(recipe)}. Or remove it: {_destroy_command(recipe)}"
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
    progress.say(f"{recipe.name} is in service already: it stays. Remove it: {_destroy_command(recipe)}")
    return endpoint


def _require_deployable(recipe: Recipe) -> None:
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
        self._before = {(item.kind, item.name) for item in existing}

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
                f"Remove what is yours: {_destroy_command(self.recipe)}"
            )
        return ""

    def _is_ours(self, action: Action) -> bool:
        key = (action.kind, action.name)
        jobs = {kind.kind for kind in rules_of(self.recipe.platform.name).kinds if kind.is_job}
        return key in self._made or (key not in self._before and action.kind not in jobs)


def _destroy_command(recipe: Recipe) -> str:
    """The command that removes both arms."""
    return f"toolkit destroy {recipe.path} --platform {recipe.platform.name}"


def _deploy_command(recipe: Recipe) -> str:
    return f"toolkit deploy {recipe.path} --baseline"


def _names(recipe: Recipe) -> tuple[str, str]:
    return recipe.name, recipe.baseline().name
