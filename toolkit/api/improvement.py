"""Improve the head of a live endpoint: train it on its own traffic, measure it beside the one that serves, promote it.

Until the new head has won, the one before answers: alone, or beside the new one for the minutes of the measurement.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.api import training
from toolkit.api.context import recipe_or_none, record_on
from toolkit.api.endpoint import Endpoint
from toolkit.api.head_trial import OnVariant, OwnEndpoint
from toolkit.api.steps import STEPS, Steps
from toolkit.api.traffic import Attempt, Traffic, last_attempt, read_traffic
from toolkit.api.training import train_plan
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Progress, default_progress
from toolkit.display import card, facts
from toolkit.endpoint.platform import EndpointPlatform
from toolkit.errors import UsageError
from toolkit.files import write_whole
from toolkit.loading import RecipeLike, load, on_platform
from toolkit.measure.measurement import ArmReport, Gain, Interval
from toolkit.measure.pays import Decision, decide
from toolkit.measure.report import BenchReport
from toolkit.planning.artifacts import compiling_at_start
from toolkit.planning.plan import Plan
from toolkit.platforms.parts import Trial
from toolkit.recipe.assemble import section_of
from toolkit.recipe.content import digest
from toolkit.recipe.edit import with_speculation
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.section import LONGEST_NAME
from toolkit.recipe.source import from_folder
from toolkit.recipe.training_schema import TrainingSection
from toolkit.registry import price_text, recipe_schema, rules_of
from toolkit.text import inert
from toolkit.training.plan import section, training_key, training_settings

_SUFFIX = "-next"
_CONFIG = "config.json"
_NOTHING_NEW = "nothing new was captured, and `training` is as it was, since the head that serves was trained"


@dataclass(frozen=True)
class Improvement:
    """A new head against the one that serves. `promoted` says whether it serves now, `reason` why or why not.

    `tried` says where it was measured: as a `variant` or on an `endpoint` of its own; empty if there was no new head to
    measure. On the held-out traffic, new head over old one: `decoding` is the ratio of their tokens per second after
    the first (1/TPOT), `acceptance` the ratio of their acceptance lengths, and `acceptance_lengths` has both lengths,
    the old head's first. `on_workloads` has the ratios on the recipe's own workloads. `left_out` counts requests that
    could not be used, by reason. Truthy if it was promoted.
    """

    recipe: str
    head: str
    tried: str
    promoted: bool
    reason: str
    decoding: Interval | None = None
    acceptance: Interval | None = None
    acceptance_lengths: tuple[float, float] | None = None
    on_workloads: tuple[Gain, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.promoted

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit improve --json`."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Names and texts of its facts."""
        found = [("head", self.head), ("promoted", f"{'yes' if self.promoted else 'no'}: {self.reason}")]
        if self.decoding:
            found.append(("tokens per second", f"{_text(self.decoding)} times the old head's"))
        if self.acceptance_lengths:
            lengths = "{:.2f} before, {:.2f} now".format(*self.acceptance_lengths)
            times = f": {_text(self.acceptance)} times" if self.acceptance else ""
            found.append(("acceptance length", f"{lengths}{times}"))
        found += (
            (
                f"on {gain.workload}",
                f"acceptance length {_text(gain.acceptance)} times, tokens per second {_text(gain.decoding)} times",
            )
            for gain in self.on_workloads
        )
        return [*found, *_left_out(self.left_out)]

    def __repr__(self) -> str:
        return inert("\n".join([f"<Improvement {self.recipe}>", *(f"  {name}: {text}" for name, text in self.rows())]))

    def _repr_html_(self) -> str:
        return card(self.recipe, facts(self.rows()))


@dataclass(frozen=True)
class ImprovementPlan:
    """What `improve` will do: `training` is the plan of the job, `trial` says where the head is tried.

    `data` is the traffic that it learns from, `price` the cost in words, None if nothing is billed. `left_out` counts
    requests that cannot be used, by reason. Without `training` there is nothing to do: the head that serves was
    trained on all this traffic.
    """

    recipe: str
    endpoint: str
    data: tuple[str, ...]
    training: Plan | None
    trial: str
    price: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit improve --dry-run --json`."""
        return {**asdict(self), "training": self.training and self.training.to_dict()}

    def rows(self) -> list[tuple[str, str]]:
        """Names and texts of its facts."""
        found = [("endpoint", self.endpoint), ("traffic", ", ".join(self.data)), *_left_out(self.left_out)]
        if self.training is None:
            return [*found, ("nothing to do", _NOTHING_NEW)]
        found.append(("trial", self.trial))
        then = "promoted if it is surely better and loses nothing on the recipe's workloads, by an update to the recipe"
        found.append(("then", f"{then} with its name; else removed"))
        return [*found, *([("price", self.price)] if self.price else [])]

    def __repr__(self) -> str:
        lines = [f"<ImprovementPlan {self.recipe}>", *(f"  {name}: {text}" for name, text in self.rows())]
        return inert("\n".join([*lines, *([repr(self.training)] if self.training else [])]))

    def _repr_html_(self) -> str:
        return card(self.recipe, facts(self.rows()))


@dataclass(frozen=True)
class _Live:
    """An endpoint with its recipe, its traffic, and the recipe of a head that continues from its own.

    `attempt` is that recipe; `resumed` means that an earlier call began to train the head, `up_to_date` that the head
    which serves was already trained on all this traffic.
    """

    recipe: Recipe
    running: Endpoint
    candidate: Recipe
    traffic: Traffic
    attempt: Attempt
    resumed: bool
    up_to_date: bool


def improve_plan(what: RecipeLike, *, platform: str | None = None) -> ImprovementPlan:
    """What `improve` would do. Reads only."""
    return _plan(_live(what, platform, STEPS, default_progress()))


def improve(
    what: RecipeLike,
    *,
    concurrency: Sequence[int] = (1,),
    seconds: float = 300.0,
    promote: bool = True,
    platform: str | None = None,
    progress: Progress | None = None,
    approve: Callable[[ImprovementPlan], object] | None = None,
    _steps: Steps = STEPS,
) -> Improvement:
    """Train the head of a live endpoint further on its traffic, and promote the new one if it is surely better.

    `what` is the endpoint's name, or its recipe. The head learns from the requests that the endpoint has captured, or
    else from the recipe's `training.data`. Both heads are measured in turn, on requests that were held out from
    training and on the recipe's own workloads. The new one is promoted (written into the recipe, and deployed) if its
    acceptance length and its time per output token are both better, by their 95 % intervals, and if it is no worse on
    the workloads. Otherwise nothing changes; neither does it if the old head was already trained on all this traffic.
    After an interruption, the same call goes on with the head it had begun. `approve` gets the plan before anything is
    made, and raises to stop. Raises UsageError, RecipeError, TrainingJobFailed, PlatformError.
    """
    progress = progress or default_progress()
    live = _live(what, platform, _steps, progress)
    if live.up_to_date:
        path, head, left_out = str(live.recipe.path), str(_head(live.recipe)), live.traffic.left_out
        return Improvement(path, head, "", False, _NOTHING_NEW, left_out=left_out)
    if approve:
        approve(_plan(live))
    run = _train(live, _steps, progress)
    trial = _trial(live, _steps, progress)
    redeployed = False
    try:
        new, old = trial.begin()
        own = [workload.name for workload in new.workloads]
        asked = replace(new, workloads=(live.traffic.held_out, *new.workloads), baseline=None)
        report = _steps.measure(asked, baseline=old, concurrency=concurrency, seconds=seconds, progress=progress)
        if report.interrupted:
            raise KeyboardInterrupt
        decision = decide(report, own)
        if decision.promote and trial.disturbed():
            decision = replace(decision, promote=False, reason="somebody else has deployed to the endpoint meanwhile")
        if decision.promote and promote:
            redeployed = True
            _promote(live.recipe, run.head, _steps, progress)
    finally:
        trial.end(redeployed)
    replace(live.attempt, measured=report.complete).write(live.recipe.name)
    tried = "endpoint" if isinstance(trial, OwnEndpoint) else "variant"
    decision = replace(decision, promote=redeployed)
    return _improvement(str(live.recipe.path), run.head, tried, decision, report, live.traffic)


def _live(what: RecipeLike, platform: str | None, steps: Steps, progress: Progress) -> _Live:
    recipe = recipe_or_none(what)
    if recipe is None:
        running_on = steps.connect(str(what), platform=platform).platform
        recipe, platform = _find_recorded(str(what), running_on, progress), running_on.name
    recipe = on_platform(recipe, platform)
    running = steps.connect(recipe, platform=platform)
    head, captured = _head(recipe), running.platform.captured_traffic(running.name)
    if captured:
        settings = recipe.training or _continue_training(recipe, head, captured)
        recipe = replace(recipe, training=settings.model_copy(update={"data": [captured]}))
    elif recipe.training is None:
        hint = "Set `observability.data_capture_percent` and deploy; or name the traffic in `training.data`."
        raise UsageError(f"{running.name} captures no requests, and {recipe.path} names no traffic", hint=hint)
    return _attempt(recipe, running, head)


def _attempt(recipe: Recipe, running: Endpoint, head: Path) -> _Live:
    """With the head that the last call has begun but not measured, else with one of the traffic now."""
    training = section(recipe).model_copy(update={"start_from": str(head)})
    traffic, last = read_traffic(training, running.platform.read_objects), last_attempt(recipe.name)
    settings = digest(training_settings(recipe))
    up_to_date = bool(last and (last.head, last.traffic, last.settings) == (str(head), traffic.version, settings))
    if last and not last.measured:
        candidate = _candidate(recipe, training, head, last.traffic)
        if str(candidate.drafter) == last.head:
            return _Live(recipe, running, candidate, traffic, last, True, up_to_date)
    candidate = _candidate(recipe, training, head, traffic.version)
    attempt = Attempt(str(candidate.drafter), traffic.version, settings)
    return _Live(recipe, running, candidate, traffic, attempt, False, up_to_date)


def _train(live: _Live, steps: Steps, progress: Progress) -> TrainingRun:
    """The trained head; remembered from before it begins, so that the next call goes on with it."""
    name = live.recipe.name
    if live.resumed:
        progress.say(f"{name}: an earlier call goes on; what was captured since then counts in the next one")
    live.attempt.write(name)
    run = steps.train(live.candidate, progress=progress, again=f"toolkit improve {name}")
    if run.status == "reused" and not live.resumed:
        progress.say(f"{name}: nothing new was captured since an earlier call trained this head: it is measured again")
    return run


def _find_recorded(name: str, platform: EndpointPlatform, progress: Progress) -> Recipe:
    """The recipe that an endpoint of that name was last deployed from there. Raises UsageError."""
    record = record_on(platform, name, progress)
    deployed = (event.recipe for event in reversed(record.events()))
    recipe = next((load(path) for path in deployed if Path(path).is_file()), None)
    if recipe is None or recipe.name != name:
        elsewhere = ", ".join(record.other_places())
        where = f"there: it is recorded, but at {elsewhere}" if elsewhere else "on this machine"
        hint = "Give the recipe: toolkit improve RECIPE"
        raise UsageError(f"no recipe of an endpoint {name} is recorded {where}", hint=hint)
    return recipe


def _plan(live: _Live) -> ImprovementPlan:
    return ImprovementPlan(
        str(live.recipe.path),
        live.running.name,
        tuple(section(live.recipe).sources),
        None if live.up_to_date else train_plan(live.candidate),
        f"{_trial_of(live.recipe).note}{_uncompiled(live.recipe)}",
        _price(live),
        live.traffic.left_out,
    )


def _uncompiled(recipe: Recipe) -> str:
    """What is without effect for a new head, for which nothing is compiled, as further sentences."""
    if compiling_at_start(recipe) is recipe:
        return ""
    path = shlex.quote(str(recipe.path))
    return (
        ". Its containers compile when they start, also once it is promoted: `toolkit compile "
        f"{path}` and then `toolkit deploy {path}` end that"
    )


def _price(live: _Live) -> str | None:
    """What training and trial cost, in words; None where nothing is billed."""
    if live.up_to_date:
        return None
    if _trial_of(live.recipe).candidate:
        now = live.recipe.price_per_hour
        then = replace(live.recipe, candidate=live.candidate.speculation).price_per_hour
        hourly = None if now is None or then is None else then - now
    else:
        hourly = live.candidate.price_per_hour
    costs = [training.price(live.candidate)]
    if hourly != 0:
        costs.append(f"{price_text(live.candidate) if hourly is None else f'{hourly:.2f} $/h'} while the head is tried")
    return "; then ".join(filter(None, costs)) or None


def _head(recipe: Recipe) -> Path:
    """The folder of the head that serves. Raises UsageError."""
    head = recipe.drafter.folder if recipe.drafter else None
    if head is None or not (head / _CONFIG).is_file():
        hint = "Set `speculation.model` to the folder of a head; its copy in S3 is the toolkit's."
        if recipe.training and recipe.training.head:
            hint = f"Train its first one: toolkit train {recipe.path}"
        raise UsageError(f"{recipe.path} has no head in a folder, which a new one could be put beside", hint=hint)
    return head


def _continue_training(recipe: Recipe, head: Path, data: str) -> TrainingSection:
    """How to continue a head of which the recipe does not say how it was trained: in its own size."""
    assert recipe.speculation
    config = documents.parse(dict[str, Any], documents.read_file(head / _CONFIG))
    usual = TrainingSection.of(section_of(recipe_schema(), "training").model_validate({"data": [data]}))
    return usual.model_copy(
        update={
            "layers": config.get("num_hidden_layers", usual.layers),
            "depth": max(config.get("num_depths", 0), recipe.speculation.num_speculative_tokens + 1),
            "max_length": min(usual.max_length, recipe.engine.max_model_len or usual.max_length),
        }
    )


def _candidate(recipe: Recipe, training: TrainingSection, head: Path, version: str) -> Recipe:
    """The recipe with a head beside its own that continues from it, on that version of the traffic."""
    assert recipe.speculation
    continued = replace(recipe, training=training.model_copy(update={"data_version": version}))
    base = head.name.partition("@")[0]
    new = head.with_name(f"{base}@{training_key(continued)}")
    name = f"{recipe.name[: LONGEST_NAME - len(_SUFFIX)].rstrip('-')}{_SUFFIX}"
    return replace(continued, name=name, speculation=recipe.speculation.edit(model=str(new), revision=None))


def _trial_of(recipe: Recipe) -> Trial:
    trial = rules_of(recipe.platform.name).parts.trial
    return trial(recipe) if trial else Trial("The new head is tried on an endpoint of its own")


def _trial(live: _Live, steps: Steps, progress: Progress) -> OnVariant | OwnEndpoint:
    trial = _trial_of(live.recipe)
    if trial.candidate:
        return OnVariant(live.recipe, live.candidate, trial, steps, progress)
    return OwnEndpoint(live.candidate, live.running, steps, progress)


def _improvement(
    recipe: str, head: str, tried: str, decision: Decision, report: BenchReport, traffic: Traffic
) -> Improvement:
    asked, gain = traffic.held_out.name, decision.gain
    lengths = _acceptance([arm for arm in report.arms if arm.workload == asked])
    return Improvement(
        recipe,
        head,
        tried,
        decision.promote,
        decision.reason,
        decoding=gain.decoding if gain else None,
        acceptance=gain.acceptance if gain else None,
        acceptance_lengths=lengths if all(lengths) else None,
        on_workloads=tuple(gain for gain in report.gains if gain.workload != asked),
        left_out=traffic.left_out,
    )


def _left_out(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    texts = [f"{reason}: {count:,}" for reason, count in counts.items()]
    return [("left out", "; ".join(texts))] if texts else []


def _text(ratio: Interval) -> str:
    return f"{ratio.ratio:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def _acceptance(arms: Sequence[ArmReport]) -> tuple[float, float]:
    """Mean acceptance lengths of the head before and of the new one; 0 where it is not known."""

    def mean(of_baseline: bool) -> float:
        lengths = [arm.acceptance_length for arm in arms if (arm.arm == "baseline") == of_baseline]
        known = [length for length in lengths if length]
        return sum(known) / len(known) if known else 0.0

    return mean(True), mean(False)


def _promote(recipe: Recipe, head: str, steps: Steps, progress: Progress) -> None:
    """Name the head in the recipe, and deploy it. If that fails, the recipe is what it was, and is deployed again."""
    before = recipe.path.read_text(encoding="utf-8")
    named = from_folder(recipe.path.parent, Path(head))
    write_whole(recipe.path, with_speculation(before, {"model": named}))

    def roll_out() -> None:
        steps.deploy_uncompiled(load(recipe.path, recipe.platform.name), progress=progress)

    try:
        roll_out()
    except BaseException:
        write_whole(recipe.path, before)
        roll_out()
        raise
