"""Measure endpoints of platforms, and servers that no platform of ours knows: each becomes an arm."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from toolkit.apply.progress import Progress, default_progress
from toolkit.catalog import lookup
from toolkit.endpoint.metrics import Figure
from toolkit.engines import registry as engine_registry
from toolkit.errors import PlatformError, UsageError
from toolkit.measure.arm import FIXED_LENGTH, GENERAL, Arm, Metered, Served, Workload
from toolkit.measure.bench import measure
from toolkit.measure.connection import KEY_VARIABLE, connect_endpoint, connect_url, refused_fields, served_model
from toolkit.measure.design import Design, Load
from toolkit.measure.journal import Journal
from toolkit.measure.load import Ask, Timing, body
from toolkit.measure.made_prompts import count_pieces, lengthened
from toolkit.measure.opinion import opinion, settings_of
from toolkit.measure.read_workloads import read_workloads
from toolkit.measure.replay import replayed
from toolkit.measure.report import BenchReport, figures_of
from toolkit.measure.running import LONGEST_ANSWER
from toolkit.measure.trace import Trace
from toolkit.measure.wording import slo_in_words
from toolkit.recipe.recipe import EngineRules

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Server:
    """An OpenAI-like server that no platform of ours knows. An empty `model` is its only one."""

    address: str
    model: str
    workloads: ClassVar[tuple[Workload, ...]] = (GENERAL,)
    served_with: ClassVar[Mapping[str, str]] = MappingProxyType({})


def measure_endpoints(
    design: Design,
    subjects: Sequence[Served | Server],
    compared: Served | Server | None,
    *,
    journal: Path | None = None,
    what_if: Sequence[float] = (),
    publish: bool = False,
    second_role: str | None = None,
    progress: Progress | None = None,
) -> BenchReport:
    """Run a design, whose arms are still to be connected, on these; `compared` is the baseline.

    `journal`, `what_if` and `publish` are those of `toolkit.bench`. `second_role` is what the platform's own benchmark
    runs as, empty for the endpoint's own role; None: it is not asked. Raises UsageError, EndpointNotFound or
    InvocationError.
    """
    progress, first = progress or default_progress(), subjects[0]
    named = {**({"baseline": compared} if compared else {}), **_names(subjects)}
    second = _Second(named, design, second_role) if second_role is not None else None
    if publish:
        _publish(first, [])  # says whether it can, before a minute of measuring
    if what_if and compared is None:
        hint = "Deploy it with --baseline, or name one with --baseline."
        raise UsageError(f"{first.address} has no baseline to compare with", hint=hint)
    measured = [*subjects, *([compared] if compared else [])]
    pauses = [one.platform.pause_between_arms(one.name) for one in measured if isinstance(one, Served)]
    design = replace(design, settle_seconds=max(pauses, default=0.0))
    saved = Journal(journal, _setting(design, measured)) if journal else None
    title = f"{first.address} against {compared.address}" if compared else first.address
    with progress.stage(f"measure {first.address}"):
        work = _measure(design, subjects, compared, title, lambda state: progress.update(str(state)), saved, what_if)
        report = run_to_end(work)
    within = {"slo": slo_in_words(design.slo)} if design.slo else {}
    setting = {**first.served_with, **within, "cache": design.cache, "date": date.today().isoformat()}
    report = replace(report, setting=setting)
    if second:
        report = second.asked(report, progress)
    if publish:
        try:
            progress.say(f"the figures are in {_publish(first, figures_of(report))}")
        except PlatformError as error:
            return replace(report, notes=(*report.notes, f"the figures were not published: {error.message}"))
    return report


def workloads_of(
    subject: Served | Server, names: Sequence[str], fixed_length: bool = False, turns: int = 1
) -> tuple[Workload, ...]:
    """The workloads of these names, the subject's own first; all of its own without a name."""
    known = {workload.name: (workload,) for workload in subject.workloads}
    objects = subject.platform.read_objects if isinstance(subject, Served) else None
    asked = [work for name in dict.fromkeys(names) for work in known.get(name) or read_workloads(name, objects)]
    every = [workload.name for workload in asked]
    if twice := next((name for name in every if every.count(name) > 1), None):
        raise UsageError(f"two workloads are called {twice}", hint="Rename one of the files: reports name workloads.")
    chosen = tuple(asked) or subject.workloads
    return tuple(replace(workload, fixed_length=fixed_length, turns=turns) for workload in chosen)


async def _measure(
    design: Design,
    subjects: Sequence[Served | Server],
    compared: Served | Server | None,
    title: str,
    show: Callable[[object], object],
    saved: Journal | None,
    what_if: Sequence[float],
) -> BenchReport:
    async with AsyncExitStack() as stack:
        baseline = await stack.enter_async_context(_arm(compared, "baseline")) if compared else None
        arms = [await stack.enter_async_context(_arm(one, name)) for name, one in _names(subjects).items()]
        design = await _with_prompts(replace(design, arms=tuple(arms), baseline=baseline))
        return await measure(design, title, show, saved, what_if)


async def _with_prompts(design: Design) -> Design:
    """With the prompts of the trace, or of the given lengths: lengths are in tokens, which only a server counts."""
    connection = design.all_arms[0].connection
    longest = min((arm.max_model_len for arm in design.all_arms if arm.max_model_len), default=None)
    if lengths := design.prompt_tokens:
        answer = design.max_tokens or LONGEST_ANSWER
        longer = [await lengthened(connection, one, lengths, longest, answer) for one in design.workloads]
        return replace(design, workloads=tuple(one for made in longer for one in made))
    if design.trace is None:
        return design
    texts = [prompt.text for item in design.workloads for prompt in item.prompts]
    made = any(one.prompt is None for one in design.trace.requests)
    pieces = await count_pieces(connection, texts) if made else None
    workload = replayed(design.trace, design.speed, design.seconds, pieces, longest)
    load = Load(float(f"{design.trace.rate * design.speed:.3g}"), open_loop=True)
    return replace(design, workloads=(workload,), loads=(load,))


def _publish(subject: Served | Server, figures: Sequence[Figure]) -> str:
    """Add figures to the monitoring of the endpoint's platform; where they are. Raises UsageError or PlatformError."""
    if isinstance(subject, Server):
        raise UsageError(f"{subject.address} belongs to no platform with monitoring", hint="Leave out --publish.")
    return subject.platform.publish(subject.component or subject.name, figures)


class _Second:
    """The platform's own benchmark of these, by their names. Raises UsageError where there is none."""

    def __init__(self, arms: Mapping[str, Served | Server], design: Design, role: str) -> None:
        self._arms = {name: one for name, one in arms.items() if isinstance(one, Served)}
        self._role, first = role, next(iter(arms.values()))
        if len(self._arms) < len(arms):
            raise UsageError(f"AWS does not benchmark {first.address}: it is a URL", hint="Leave out --also.")
        for one in self._arms.values():
            one.platform.benchmark(one.address, None, default_progress())
        tokenizer = next(iter(self._arms.values())).target.partition("@")[0]
        if not _HUB_ID.fullmatch(tokenizer):
            hint = "Leave out --also, or start a job by hand: docs/explain/aws-2026.md."
            raise UsageError(f"AWS's benchmark needs a tokenizer of the hub; the target is {tokenizer!r}", hint=hint)
        concurrency = min((int(load.value) for load in design.loads if not load.open_loop), default=1)
        self._settings = settings_of(tokenizer, concurrency, design.max_tokens)

    def asked(self, report: BenchReport, progress: Progress) -> BenchReport:
        """The report with what it says; if it fails, with that."""
        opinions, notes = [], []
        for name, one in self._arms.items():
            with progress.stage(f"AWS's benchmark of {one.address}"):
                try:
                    profile = one.platform.benchmark(one.address, self._settings, progress, self._role)
                except PlatformError as error:
                    notes.append(f"no second opinion on {name}: {error}")
                else:
                    opinions.append(opinion(name, self._settings, profile))
        return replace(report, opinions=tuple(opinions), notes=(*report.notes, *notes))


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
    with _pythons_own_ctrl_c(), asyncio.Runner(loop_factory=_event_loop) as runner:
        return runner.run(work)


@contextmanager
def _pythons_own_ctrl_c() -> Iterator[None]:
    """Of the main thread: from no other handler does asyncio take Ctrl-C over, to cancel the work."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, if it is installed: reading many streams then takes a fifth less of a core."""
    try:
        import uvloop
    except ImportError:  # without the extra `bench`, and on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@asynccontextmanager
async def _arm(subject: Served | Server, name: str) -> AsyncIterator[Arm]:
    if isinstance(subject, Server):
        key = KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else None
        async with connect_url(subject.address, subject.model, key) as connection:
            speculative, model = name != "baseline", await served_model(connection)
            # a baseline that reports no drafts has none
            seen = True if not speculative or await connection.counts_drafts() else None
            arm = Arm(
                name,
                connection,
                speculative,
                reports_drafts=seen,
                target=model.source,
                max_model_len=model.max_model_len,
                scoring=_engine("").scoring,
                cache_salt=_engine("").cache_salt,
            )
            short = body(arm, Ask(GENERAL, 0), Timing(0.0, max_tokens=1, cold_cache=True))
            refused = await refused_fields(connection, {**short, FIXED_LENGTH: True})
            salt = "" if arm.cache_salt in refused else arm.cache_salt
            yield replace(arm, connection=replace(connection, refused=refused), refused=refused, cache_salt=salt)
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
            scoring=_engine(subject.engine).scoring,
            cache_salt=_engine(subject.engine).cache_salt,
            synthetic_acceptance_length=subject.synthetic_acceptance_length,
            expected=subject.expected,
            energy=subject.platform.energy() if isinstance(subject.platform, Metered) else None,
        )


def _names(subjects: Sequence[Served | Server]) -> dict[str, Served | Server]:
    """A name for each arm: `speculative` if there is one, else their addresses."""
    if len(subjects) == 1:
        chosen = subjects[0].synthetic_acceptance_length if isinstance(subjects[0], Served) else None
        return {f"synthetic {chosen:g}" if chosen else "speculative": subjects[0]}
    return {subject.address: subject for subject in subjects}


def check_arms(subjects: Sequence[Served | Server]) -> None:
    """Raise UsageError if two arms, or an arm and the baseline, are the same, or if recipes name other targets."""
    addresses = [subject.address for subject in subjects]
    if twice := next((address for address in addresses if addresses.count(address) > 1), None):
        raise UsageError(f"{twice} is given twice", hint="Remove it once: arms and baseline are different endpoints.")
    known = [subject for subject in subjects if isinstance(subject, Served) and subject.target]
    if other := next((subject for subject in known if subject.target != known[0].target), None):
        served = f"{other.address} serves {other.target}, {known[0].address} serves {known[0].target}"
        raise UsageError(f"other targets: {served}", hint="Compare endpoints of one target model and revision.")


def _setting(design: Design, subjects: Sequence[Served | Server]) -> dict[str, Any]:
    """All that decides what is measured."""
    return {
        "arms": [(one.address, one.model if isinstance(one, Server) else "") for one in subjects],
        "workloads": [asdict(workload) for workload in design.workloads],
        "loads": [asdict(load) for load in design.loads],
        "max_tokens": design.max_tokens,
        "cache": design.cache,
        "seed": design.seed,
        **({"slo": design.slo.model_dump()} if design.slo else {}),
        **({"prompt_tokens": design.prompt_tokens} if design.prompt_tokens else {}),
        **({"trace": _digest(design.trace), "speed": design.speed} if design.trace else {}),
    }


def _digest(trace: Trace) -> str:
    """Of more than a million requests, too, in seconds."""
    whole = blake2b(trace.name.encode(), digest_size=16)
    for one in trace.requests:
        whole.update(repr((one, one.prompt)).encode())
    return whole.hexdigest()


def _engine(name: str) -> EngineRules:
    """A server of which nothing is known is asked as the default engine is."""
    return engine_registry.engine_rules(name or lookup.default_engine())
