"""Measure endpoints and servers: `prove` in a minute, `bench` the full picture."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from toolkit import registry
from toolkit.api.context import RecipeLike, recipe_or_none
from toolkit.api.endpoint import Endpoint
from toolkit.api.handles import connect
from toolkit.apply.progress import Progress, default_progress
from toolkit.endpoint.metrics import Figure
from toolkit.errors import PlatformError, UsageError
from toolkit.measure.arm import Arm
from toolkit.measure.bench import measure
from toolkit.measure.connection import connect_endpoint, connect_url, served_model
from toolkit.measure.design import Design, Load
from toolkit.measure.journal import Journal
from toolkit.measure.read_workloads import read_workloads
from toolkit.measure.report import BenchReport
from toolkit.measure.time_series import figures_of
from toolkit.measure.workload import GENERAL, Workload
from toolkit.recipe.rules import EngineRules, Scoring

Subject = RecipeLike | Endpoint
"""A recipe, an endpoint's name or handle, or the URL of a server such as `http://127.0.0.1:9000/v1`."""

KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable with the key of servers that want one."""

_SCHEMES = ("http://", "https://")
_ADDRESS = re.compile(r"[\w.-]+:\d+(/\S*)?")
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Server:
    """An OpenAI-like server that no platform of ours knows. An empty `model` is its only one."""

    address: str
    model: str
    workloads: ClassVar[tuple[Workload, ...]] = (GENERAL,)
    served_with: ClassVar[Mapping[str, str]] = MappingProxyType({})


def bench(
    what: Subject,
    *,
    baseline: Subject | None = None,
    arms: Sequence[Subject] = (),
    workloads: Sequence[str] = (),
    concurrency: Sequence[int] = (1, 4, 16),
    rates: Sequence[float] = (),
    requests: int | None = None,
    max_tokens: int | None = None,
    precision: float = 0.05,
    seconds: float = 300.0,
    seed: int = 0,
    model: str = "",
    platform: str | None = None,
    journal: Path | None = None,
    what_if: Sequence[float] = (),
    fixed_length: bool = False,
    publish: bool = False,
    progress: Progress | None = None,
) -> BenchReport:
    """Measure `what` and further `arms` against the baseline, by turns, at each concurrency and request rate.

    Without `baseline` it is the endpoint's twin, if that exists. `workloads` are names of the recipe's prompt sets, or
    what `read_workloads` takes: files, data sets, known names; by default all of the recipe's. It goes on until every
    95 % interval is within `precision`, or `seconds` are over. `seed` decides the order of prompts after the first
    round, and the moments at which open loops ask. With a `journal` an interrupted measurement carries on
    where it stopped. `what_if` are acceptance lengths: the report then says how fast the arms would be at each, from
    their steps per second. With `fixed_length` every answer has exactly `max_tokens`. With `publish` the figures are
    added to the platform's monitoring (CloudWatch), too. Ctrl-C ends it early, with what it has. Raises UsageError,
    EndpointNotFound or InvocationError.
    """
    progress = progress or default_progress()
    for named in (what, *arms, *([baseline] if baseline else [])):
        _require_spelled(named)
    first = _subject(what, model, platform)
    compared = _subject(baseline, model, platform) if baseline else _twin(first)
    if publish:
        _publish(first, [])  # says whether it can, before a minute of measuring
    if what_if and compared is None:
        hint = "Deploy it with --baseline, or name one with --baseline."
        raise UsageError(f"{first.address} has no baseline to compare with", hint=hint)
    subjects = [first, *(_subject(arm, model, platform) for arm in arms)]
    measured = [*subjects, *([compared] if compared else [])]
    _check_arms(measured)
    design = Design(
        arms=(),
        workloads=_workloads(first, workloads, fixed_length),
        loads=tuple(dict.fromkeys([*map(Load, concurrency), *(Load(rate, open_loop=True) for rate in rates)])),
        precision=precision,
        seconds=seconds,
        requests=requests,
        max_tokens=max_tokens,
        seed=seed,
        settle_seconds=max(map(_settle_seconds, measured)),
    )
    saved = Journal(journal, _setting(design, [*subjects, compared])) if journal else None
    title = f"{first.address} against {compared.address}" if compared else first.address
    with progress.stage(f"measure {first.address}"):
        work = _measured(design, subjects, compared, title, lambda state: progress.update(str(state)), saved, what_if)
        report = run_to_end(work)
    report = replace(report, setting={**first.served_with, "date": date.today().isoformat()})
    if publish:
        try:
            progress.say(f"the figures are in {_publish(first, figures_of(report))}")
        except PlatformError as error:
            return replace(report, notes=(*report.notes, f"the figures were not published: {error.message}"))
    return report


async def _measured(
    design: Design,
    subjects: Sequence[Endpoint | _Server],
    compared: Endpoint | _Server | None,
    title: str,
    show: Callable[[object], object],
    saved: Journal | None,
    what_if: Sequence[float],
) -> BenchReport:
    """Connect to all arms and measure them."""
    async with AsyncExitStack() as stack:
        baseline = await stack.enter_async_context(_arm(compared, "baseline")) if compared else None
        arms = [await stack.enter_async_context(_arm(one, name)) for name, one in _names(subjects).items()]
        design = replace(design, arms=tuple(arms), baseline=baseline)
        return await measure(design, title, show, saved, what_if)


def _publish(subject: Endpoint | _Server, figures: Sequence[Figure]) -> str:
    """Add figures to the monitoring of the endpoint's platform; where they are. Raises UsageError or PlatformError."""
    if isinstance(subject, _Server):
        raise UsageError(f"{subject.address} belongs to no platform with monitoring", hint="Leave out --publish.")
    return subject.platform.publish(subject.component or subject.name, figures)


def run_to_end(work: Coroutine[Any, Any, _T]) -> _T:
    """`asyncio.run`, also in a notebook, whose own event loop is running. Ctrl-C cancels the work."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[_T]]] = Future()

    async def main() -> _T:
        task = asyncio.ensure_future(work)
        begun.set_result((asyncio.get_running_loop(), task))
        return await task

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(_run, main())
        try:
            return result.result()
        except KeyboardInterrupt:
            loop, task = begun.result()
            loop.call_soon_threadsafe(task.cancel)
            return result.result()


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    with asyncio.Runner(loop_factory=_event_loop) as runner:
        return runner.run(work)


def _event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, if it is installed: reading many streams then takes a fifth less of a core."""
    try:
        import uvloop
    except ImportError:  # without the extra `bench`, and on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def require_arms(arms: Sequence[Subject], *, platform: str | None = None) -> None:
    """Raise UsageError or EndpointNotFound for an arm that cannot be measured, before hours of work for another one."""
    for arm in arms:
        _require_spelled(arm)
        _subject(arm, "", platform)


def _require_spelled(named: Subject) -> None:
    """A mistyped recipe or URL is told before endpoints are looked for. Raises RecipeNotFound or UsageError."""
    if isinstance(named, str) and not named.startswith(_SCHEMES):
        if _ADDRESS.fullmatch(named):
            raise UsageError(f"{named} is not a URL", hint=f"Did you mean http://{named}?")
        recipe_or_none(named)


def _subject(what: Subject, model: str, platform: str | None) -> Endpoint | _Server:
    if isinstance(what, Endpoint):
        return what
    if str(what).startswith(_SCHEMES):
        return _Server(str(what).rstrip("/"), model)
    return connect(what, platform=platform)


def _twin(subject: Endpoint | _Server) -> Endpoint | None:
    """The endpoint's baseline, as an endpoint of its own."""
    if isinstance(subject, _Server) or subject.baseline is None:
        return None
    name, _, component = subject.baseline.partition("/")
    twin = replace(subject, name=name, component=component or None, baseline=None, speculative=False)
    return replace(twin, synthetic_acceptance_length=None)


def _settle_seconds(subject: Endpoint | _Server) -> float:
    return 0.0 if isinstance(subject, _Server) else subject.platform.pause_between_arms(subject.name)


@asynccontextmanager
async def _arm(subject: Endpoint | _Server, name: str) -> AsyncIterator[Arm]:
    if isinstance(subject, _Server):
        key = KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else None
        async with connect_url(subject.address, subject.model, key) as connection:
            speculative, model = name != "baseline", await served_model(connection)
            # a baseline that reports no drafts has none
            seen = True if not speculative or await connection.counts_drafts() else None
            yield Arm(
                name,
                connection,
                speculative,
                reports_drafts=seen,
                target=model.source,
                max_model_len=model.max_model_len,
                scoring=_scoring(""),
            )
        return
    async with connect_endpoint(subject.platform, subject.address) as connection:
        yield Arm(
            name,
            connection,
            subject.speculative,
            price_per_hour=subject.price_per_hour,
            reports_drafts=subject.reports_drafts,
            target=subject.target,
            max_model_len=subject.max_model_len,
            synthetic_acceptance_length=subject.synthetic_acceptance_length,
            expected=subject.expected,
            scoring=_scoring(subject.engine),
        )


def _scoring(engine: str) -> Scoring | None:
    """How that engine is asked how probable tokens are; a server of which nothing is known is asked as the default."""
    rules: EngineRules = registry.engine_rules(engine or registry.default_engine())
    return rules.scoring


def _names(subjects: Sequence[Endpoint | _Server]) -> dict[str, Endpoint | _Server]:
    """A name for each arm: `speculative` if there is one, else their addresses."""
    if len(subjects) == 1:
        chosen = subjects[0].synthetic_acceptance_length if isinstance(subjects[0], Endpoint) else None
        return {f"synthetic {chosen:g}" if chosen else "speculative": subjects[0]}
    return {subject.address: subject for subject in subjects}


def _check_arms(subjects: Sequence[Endpoint | _Server]) -> None:
    """Raise UsageError if two arms, or an arm and the baseline, are the same, or if recipes name other targets."""
    addresses = [subject.address for subject in subjects]
    if twice := next((address for address in addresses if addresses.count(address) > 1), None):
        raise UsageError(f"{twice} is given twice", hint="Remove it once: arms and baseline are different endpoints.")
    known = [subject for subject in subjects if isinstance(subject, Endpoint) and subject.target]
    if other := next((subject for subject in known if subject.target != known[0].target), None):
        served = f"{other.address} serves {other.target}, {known[0].address} serves {known[0].target}"
        raise UsageError(f"other targets: {served}", hint="Compare endpoints of one target model and revision.")


def _workloads(subject: Endpoint | _Server, names: Sequence[str], fixed_length: bool) -> tuple[Workload, ...]:
    """The workloads of these names, the subject's own first; all of its own without a name."""
    known = {workload.name: (workload,) for workload in subject.workloads}
    objects = subject.platform.read_objects if isinstance(subject, Endpoint) else None
    found = [work for name in dict.fromkeys(names) for work in known.get(name) or read_workloads(name, objects)]
    every = [workload.name for workload in found]
    if twice := next((name for name in every if every.count(name) > 1), None):
        raise UsageError(f"two workloads are called {twice}", hint="Rename one of the files: reports name workloads.")
    chosen = tuple(found) or subject.workloads
    return tuple(replace(workload, fixed_length=True) for workload in chosen) if fixed_length else chosen


def _setting(design: Design, subjects: Sequence[Endpoint | _Server | None]) -> dict[str, Any]:
    """All that decides what is measured."""
    return {
        "arms": [(one.address, one.model if isinstance(one, _Server) else "") for one in subjects if one],
        "workloads": [asdict(workload) for workload in design.workloads],
        "loads": [asdict(load) for load in design.loads],
        "max_tokens": design.max_tokens,
        "seed": design.seed,
    }
