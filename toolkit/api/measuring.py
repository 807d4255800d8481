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
    """Arguments of `bench` that `what_if` takes, too."""

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
SCHEMES = ("http://", "https://")
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
    """Measure `what` and further `arms` in turn with the baseline, at each concurrency and request rate.

    It goes on until every 95 % interval is within `precision`, or for `seconds`. Ctrl-C ends it early, with what was
    measured so far. If the environment names a tracker (tracking.py), the figures are also a run there.

    Args:
        what: A recipe, an endpoint or a URL; so are `arms` and `baseline`.
        baseline: What the arms are compared with; default: the endpoint's own baseline, if there is one.
        workloads: Names of the recipe's workloads, or what `read_workloads` takes: files, data sets, known names;
            default: all of the recipe's.
        slo: Search for the highest request rate of each arm within these limits, instead of measuring at given loads:
            `report.saturation`. With a `trace`, say which share of its requests is within them.
        trace: A file, or captured traffic in `s3://…`, whose requests are replayed at their times, `speed` times as
            fast; prompts that it lacks are made of the workloads' texts.
        requests: Requests to each arm for each workload; default: as time allows.
        seed: Decides the order of prompts after the first round, and when requests of a rate are sent.
        cache: `cold`: the engine reads a prompt anew each time, as it would your users' prompts; `warm`: it finds it
            in its prefix cache.
        journal: A file of results, from which an interrupted measurement carries on.
        what_if: Acceptance lengths; the report says how fast the arms would be at each, from their steps per second.
        fixed_length: Every answer has exactly `max_tokens`.
        turns: Above 1: each prompt begins a chat, and the next one is sent with it when its answer has come.
        prompt_tokens: Lengths of prompts to measure at; a prompt is preceded by other texts of its workload.
        publish: Also send the figures to the platform's monitoring (CloudWatch).
        also: `aws`: afterwards measure each arm with SageMaker's own benchmark, at the lowest concurrency, as the role
            `also_role` or the endpoint's own: `report.opinions`.

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
    subjects, compared = _subjects([what, *arms], baseline, model, platform)
    first = subjects[0]
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
        parameters = {
            **loaded,
            "workloads": list(workloads),
            "turns": turns,
            "prompt_tokens": list(prompt_tokens),
            "seconds": seconds,
            "max_tokens": max_tokens,
            "seed": seed,
            "cache": cache,
        }
        trackers.log(f"bench {report.title}", parameters, bench_metrics(report), report.to_dict())
    return report


def _subjects(
    arms: Sequence[Subject], baseline: Subject | None, model: str, platform: str | None
) -> tuple[list[Endpoint | Server], Endpoint | Server | None]:
    """The arms, and what they are compared with: `baseline`, else the first one's twin, if there is one."""
    for named in (*arms, *([baseline] if baseline else [])):
        _require_spelled(named)
    subjects = [_subject(arm, model, platform) for arm in arms]
    twin = subjects[0].twin if isinstance(subjects[0], Endpoint) else None
    compared = _subject(baseline, model, platform) if baseline else twin
    check_arms([*subjects, *([compared] if compared else [])])
    return subjects, compared


def require_arms(arms: Sequence[Subject], *, platform: str | None = None) -> None:
    """Raise UsageError or EndpointNotFound for an arm that cannot be measured, before hours of work for another one."""
    for arm in arms:
        _require_spelled(arm)
        _subject(arm, "", platform)


def _require_spelled(named: Subject) -> None:
    """Raise RecipeNotFound or UsageError for a mistyped recipe or URL, before endpoints are looked for."""
    if isinstance(named, str) and not named.startswith(SCHEMES):
        if _ADDRESS.fullmatch(named):
            raise UsageError(f"{named} is not a URL", hint=f"Did you mean http://{named}?")
        recipe_or_none(named)
    elif isinstance(named, str):
        require_address(named)


def _subject(what: Subject, model: str, platform: str | None) -> Endpoint | Server:
    if isinstance(what, Endpoint):
        return what
    if str(what).startswith(SCHEMES):
        return Server(str(what).rstrip("/"), model)
    return connect(what, platform=platform)
