"""`toolkit prove` and `toolkit bench`: the same measurement, in a minute or at length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli import fleet
from toolkit.cli.arguments import Json, PlatformName, seconds_of
from toolkit.cli.bench_options import (
    CONCURRENCY,
    SLO_TIME,
    TIME,
    Also,
    AlsoRole,
    Arms,
    BaselineOf,
    BenchTime,
    CacheState,
    Compare,
    Concurrency,
    DummyWeights,
    FixedLength,
    Html,
    MaxTokens,
    Model,
    Precision,
    Prompts,
    PromptTokens,
    Publish,
    Rate,
    Resume,
    Seed,
    Speed,
    Target,
    Time,
    ToParquet,
    TraceFile,
    Turns,
    WhatIfAcceptance,
    WithinSlo,
    WorkloadNames,
    counts_of,
    lengths_of,
    numbers_of,
    refuse_contradictions,
    share_of,
    slo_of,
)
from toolkit.cli.fleet import KeepGoing
from toolkit.cli.output import CutShort, answer, exit_unless, next_step, say
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.api.measuring import BenchOptions
    from toolkit.measure.report import BenchReport
    from toolkit.measure.study import StudyReport


def prove(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A recipe, an endpoint's name, or a URL such as http://127.0.0.1:9000/v1; several, or a folder of "
            "recipes, are a fleet.",
            metavar="WHAT...",
        ),
    ],
    baseline: BaselineOf = None,
    prompts: Prompts = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests to send to each arm for each workload; default: as time allows.")
    ] = None,
    time: Time = "60s",
    max_tokens: MaxTokens = None,
    publish: Publish = False,
    model: Model = None,
    platform: PlatformName = None,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            min=1,
            max=32,
            metavar="N",
            help="With several recipes: how many at a time. Those measured at once slow each other down.",
        ),
    ] = 1,
    keep_going: KeepGoing = False,
    as_json: Json = False,
) -> None:
    """Measure for a minute: is speculation on, lossless, accepted, and does it pay? Exit code 1 if one answer is no."""
    from toolkit.api.fleet import is_fleet

    if is_fleet(what):
        if baseline or model:
            option = "--baseline" if baseline else "--model"
            raise UsageError(f"{option} is for one endpoint, and these are several", hint="Give them one by one.")
        how = fleet.options(
            requests=requests, time=time, max_tokens=max_tokens, platform=platform, prompts=prompts, publish=publish
        )
        fleet.prove(what, how, parallel=parallel, keep_going=keep_going, as_json=as_json)
        return
    (name,) = what
    report = toolkit.bench(
        name,
        baseline=baseline,
        workloads=[str(path) for path in prompts or ()],
        concurrency=(1,),
        requests=requests,
        seconds=seconds_of(time),
        max_tokens=max_tokens,
        publish=publish,
        model=model or "",
        platform=platform,
    )
    _answer(report, as_json, "bench", name)


def bench(
    context: typer.Context,
    what: Target = None,
    baseline: BaselineOf = None,
    arm: Arms = None,
    prompts: Prompts = None,
    workload: WorkloadNames = None,
    concurrency: Concurrency = None,
    rate: Rate = None,
    slo: WithinSlo = None,
    trace: TraceFile = None,
    speed: Speed = None,
    max_tokens: MaxTokens = None,
    fixed_length: FixedLength = False,
    turns: Turns = None,
    prompt_tokens: PromptTokens = None,
    precision: Precision = "5%",
    time: BenchTime = None,
    seed: Seed = 0,
    cache: CacheState = "cold",
    html: Html = None,
    resume: Resume = None,
    compare: Compare = None,
    parquet: ToParquet = None,
    what_if_acceptance: WhatIfAcceptance = None,
    dummy_weights: DummyWeights = False,
    publish: Publish = False,
    also: Also = None,
    also_role: AlsoRole = "",
    model: Model = None,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Measure arms in turn with the baseline, at several loads: speedups with intervals, latencies, cost.

    Ctrl-C ends it early and reports what was measured so far.
    """
    if compare:
        _compare(*compare, as_json)
        return
    if parquet:
        _to_parquet(*parquet, as_json)
        return
    if what is None:
        hint = "Such as: toolkit bench tiny/p-eagle"
        raise UsageError("give a recipe, an endpoint's name or a URL to measure", hint=hint)
    refuse_contradictions(context.params)
    if html:
        require_page(html)
    seconds = seconds_of(time or (SLO_TIME if slo and not trace else TIME))
    options: BenchOptions = {
        "workloads": [*map(str, prompts or ()), *(workload or ())],
        "concurrency": counts_of(concurrency or CONCURRENCY),
        "rates": numbers_of(rate) if rate else (),
        "max_tokens": max_tokens,
        "precision": share_of(precision),
        "seed": seed,
        "cache": cache,
        "publish": publish,
        "model": model or "",
    }
    if what_if_acceptance:
        lengths = numbers_of(what_if_acceptance)
        report = toolkit.what_if(
            what, lengths, baseline=baseline, seconds=seconds, dummy_weights=dummy_weights, platform=platform, **options
        )
    else:
        report = toolkit.bench(
            what,
            baseline=baseline,
            arms=arm or (),
            slo=slo_of(slo) if slo else None,
            trace=trace,
            speed=speed or 1.0,
            seconds=seconds,
            fixed_length=fixed_length,
            turns=turns or 1,
            prompt_tokens=lengths_of(prompt_tokens) if prompt_tokens else (),
            journal=resume,
            also=also,
            also_role=also_role,
            platform=platform,
            **options,
        )
    if html:
        write_page(report, html)
    _answer(report, as_json, *_after_bench(what))


def _after_bench(what: str) -> tuple[str, ...]:
    """What comes after a measurement: for a recipe the best K, for an endpoint its own figures, for a URL nothing."""
    from toolkit.api.context import recipe_or_none
    from toolkit.api.measuring import SCHEMES

    if what.startswith(SCHEMES):
        return ()
    return ("tune", what) if recipe_or_none(what) else ("metrics", what)


def require_page(html: Path) -> None:
    """Raise, before an hour of measuring, where the page could not be written."""
    from toolkit.measure.page import require_free, require_packages

    require_free(html)
    require_packages()


def write_page(report: BenchReport | StudyReport, html: Path) -> None:
    from toolkit.files import write_whole

    write_whole(html, report.to_html(), 0o600)  # it quotes prompts and answers
    say(f"wrote {html}")


def _answer(report: BenchReport, as_json: bool, *then: str) -> None:
    from toolkit.cli.report_text import report_text

    answer(report.to_dict(), as_json, lambda: report_text(report))
    if report.interrupted:
        raise CutShort
    if then and not as_json:
        next_step(*then)
    exit_unless(report.ok)


def _to_parquet(results: Path, parquet: Path, as_json: bool) -> None:
    count = toolkit.to_parquet(results, parquet)
    answer({"rows": count, "file": str(parquet)}, as_json, lambda: f"wrote {parquet}, rows: {count:,}")


def _compare(before: Path, after: Path, as_json: bool) -> None:
    from toolkit.cli.report_text import comparison_text
    from toolkit.measure.compare import compare
    from toolkit.measure.report import load_report

    comparison = compare(load_report(before), load_report(after))
    answer(comparison.to_dict(), as_json, lambda: comparison_text(comparison), yes=comparison.ok)
