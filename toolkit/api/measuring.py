"""Measure endpoints and servers by their names: `prove` in a minute, `bench` the full picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from toolkit.api.context import recipe_or_none
from toolkit.api.endpoint import Endpoint
from toolkit.api.handles import connect
from toolkit.api.tracking import bench_metrics, find_trackers
from toolkit.apply.progress import Progress, default_progress
from toolkit.errors import UsageError
from toolkit.loading import RecipeLike
from toolkit.measure.connection import require_address
from toolkit.measure.contradictions import contradiction
from toolkit.measure.design import Cache, Design, Load
from toolkit.measure.endpoints import Server, check_arms, measure_endpoints, workloads_of
from toolkit.measure.report import BenchReport
from toolkit.measure.trace import read_trace
from toolkit.recipe.schema import Slo

Subject = RecipeLike | Endpoint
"""A recipe, an endpoint's name or handle, or the URL of a server such as `http://127.0.0.1:9000/v1`."""


class BenchOptions(TypedDict, total=False):
    """What `bench` may be told of how to measure."""

    workloads: Sequence[str]
    concurrency: Sequence[int]
    rates: Sequence[float]
    max_tokens: int | None
    precision: float
    seed: int
    cache: Cache
    model: str
    publish: bool


CONCURRENCY = (1, 4, 16)
_SCHEMES = ("http://", "https://")
_ADDRESS = re.compile(r"[\w.-]+:\d+(/\S*)?")


def bench(
    what: Subject,
    *,
    baseline: Subject | None = None,
    arms: Sequence[Subject] = (),
    workloads: Sequence[str] = (),
    concurrency: Sequence[int] = CONCURRENCY,
    rates: Sequence[float] = (),
    slo: Slo | None = None,
    trace: str | Path | None = None,
    speed: float = 1.0,
    requests: int | None = None,
    max_tokens: int | None = None,
    precision: float = 0.05,
    seconds: float = 300.0,
    seed: int = 0,
    cache: Cache = "cold",
    model: str = "",
    platform: str | None = None,
    journal: Path | None = None,
    what_if: Sequence[float] = (),
    fixed_length: bool = False,
    turns: int = 1,
    prompt_tokens: Sequence[int] = (),
    publish: bool = False,
    also: Literal["aws"] | None = None,
    also_role: str = "",
    progress: Progress | None = None,
    _track: bool = True,
) -> BenchReport:
    """Measure `what` and further `arms` against the baseline, by turns, at each concurrency and request rate.

    Without `baseline` it is the endpoint's twin, if that exists. `workloads` are names of the recipe's prompt sets, or
    what `read_workloads` takes: files, data sets, known names; by default all of the recipe's. It goes on until every
    95 % interval is within `precision`, or `seconds` are over. With an `slo` the highest request rate of each arm
    within it is searched for, to `precision`, instead of measuring at given loads: `report.saturation`. With a `trace`,
    a file or captured traffic in `s3://…`, its requests are asked when they came, `speed` times as fast, and an `slo`
    is what they are held against; prompts that it does not have are made of the workloads' texts. `seed` decides
    the order of prompts after the first round, and the moments at which open loops ask. Each prompt is asked many
    times: with a `cold` cache an engine reads it anew each time, as it would your users' prompts; with a `warm` one it
    finds it in its prefix cache. With a `journal` an interrupted measurement carries on where it stopped. `what_if` are
    acceptance lengths: the report then says how fast the arms would be at each, from their steps per second. With
    `fixed_length` every answer has exactly `max_tokens`. With several `turns` each prompt begins a chat, whose next
    prompt is asked when the answer has come, with all before it. With `prompt_tokens` each workload is measured at
    these lengths: its prompts, after so much of its other texts. With `publish` the figures are added to the platform's
    monitoring (CloudWatch), too. `also="aws"` has SageMaker's own benchmark ask each arm afterwards, at the lowest
    concurrency, as the role `also_role` or the endpoint's own: `report.opinions`. The figures are
    a run where the environment names a tracker (tracking.py). Ctrl-C ends it early, with what it has.

    Raises UsageError, EndpointNotFound or InvocationError.
    """
    given = {
        "trace": trace,
        "speed": speed != 1,
        "slo": slo,
        "concurrency": tuple(concurrency) != CONCURRENCY,
        "rate": rates,
        "requests": requests,
        "what_if": what_if,
        "fixed_length": fixed_length,
        "turns": turns > 1,
        "prompt_tokens": prompt_tokens,
        "publish": publish,
        "also": also,
        "also_role": also_role,
    }
    if wrong := contradiction(given, lambda option: "rates" if option == "rate" else option):
        raise UsageError(wrong, hint="toolkit bench --help says what each is for.")
    if not speed > 0:
        raise UsageError(f"a speed of {speed:g} is not above 0", hint="Write 2 for twice as fast.")
    trackers = find_trackers(progress or default_progress()) if _track else None
    for named in (what, *arms, *([baseline] if baseline else [])):
        _require_spelled(named)
    first = _subject(what, model, platform)
    twin = first.twin if isinstance(first, Endpoint) else None
    compared = _subject(baseline, model, platform) if baseline else twin
    subjects = [first, *(_subject(arm, model, platform) for arm in arms)]
    check_arms([*subjects, *([compared] if compared else [])])
    objects = first.platform.read_objects if isinstance(first, Endpoint) else None
    loads = [] if slo or trace else [*map(Load, concurrency), *(Load(rate, open_loop=True) for rate in rates)]
    design = Design(
        arms=(),
        workloads=workloads_of(first, workloads, fixed_length, turns),
        loads=tuple(dict.fromkeys(loads)),
        precision=precision,
        seconds=seconds,
        requests=requests,
        max_tokens=max_tokens,
        seed=seed,
        cache=cache,
        slo=slo,
        trace=read_trace(trace, objects) if trace else None,
        speed=speed,
        prompt_tokens=tuple(dict.fromkeys(prompt_tokens)),
    )
    report = measure_endpoints(
        design,
        subjects,
        compared,
        journal=journal,
        what_if=what_if,
        publish=publish,
        second_role=also_role if also else None,
        progress=progress,
    )
    if trackers:
        loaded: dict[str, object] = (
            {"slo": slo.model_dump()} if slo else {"concurrency": list(concurrency), "rates": list(rates)}
        )
        loaded |= {"trace": str(trace), "speed": speed} if trace else {}
        asked = {
            "workloads": list(workloads),
            "turns": turns,
            "prompt_tokens": list(prompt_tokens),
            "seconds": seconds,
            "max_tokens": max_tokens,
        }
        parameters = {**loaded, **asked, "seed": seed, "cache": cache}
        trackers.log(f"bench {report.title}", parameters, bench_metrics(report), report.to_dict())
    return report


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
    elif isinstance(named, str):
        require_address(named)


def _subject(what: Subject, model: str, platform: str | None) -> Endpoint | Server:
    if isinstance(what, Endpoint):
        return what
    if str(what).startswith(_SCHEMES):
        return Server(str(what).rstrip("/"), model)
    return connect(what, platform=platform)
