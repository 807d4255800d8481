"""`toolkit prove` and `toolkit bench`: the same measurement, in a minute or at length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

import toolkit
from toolkit.cli import fleet
from toolkit.cli.durations import seconds_of
from toolkit.cli.fleet import KeepGoing
from toolkit.cli.output import CutShort, answer, exit_unless, next_step, say
from toolkit.cli.recipe_commands import Json, PlatformName
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.api.measuring import BenchOptions
    from toolkit.measure.report import BenchReport

_PERCENT = 100
_MOST_CONCURRENT = 4096
_LARGEST_NUMBER = 1000
_Number = TypeVar("_Number", int, float)


def _share(text: str) -> float:
    """A share of 1, written as `5%` or `0.05`."""
    (share,) = _parse([text.strip().removesuffix("%")], float, f"{text!r} is not a precision: write 5% or 0.05")
    share /= _PERCENT if text.strip().endswith("%") else 1
    if not 0 < share < 1:
        raise typer.BadParameter(f"{text!r} is not a precision between 0 and 100 %: write 5%")
    return share


def counts_of(text: str) -> tuple[int, ...]:
    """Numbers of concurrent requests, separated by commas."""
    counts = _parse(text.split(","), int, f"{text!r} is not a list of whole numbers: write 1,4,16")
    if not 1 <= min(counts) <= max(counts) <= _MOST_CONCURRENT:
        message = f"{text!r}: concurrency is at least 1 and at most {_MOST_CONCURRENT}: write 1,4,16"
        raise typer.BadParameter(message)
    return counts


def _numbers(text: str) -> tuple[float, ...]:
    """Rates or acceptance lengths, separated by commas."""
    numbers = _parse(text.split(","), float, f"{text!r} is not a list of numbers: write 0.5,2")
    if not all(0 < number <= _LARGEST_NUMBER for number in numbers):
        message = f"{text!r}: numbers above 0 are expected, up to {_LARGEST_NUMBER}: write 0.5,2"
        raise typer.BadParameter(message)
    return numbers


def _parse(parts: Sequence[str], number: Callable[[str], _Number], problem: str) -> tuple[_Number, ...]:
    try:
        return tuple(map(number, parts))
    except ValueError as error:
        raise typer.BadParameter(problem) from error


BaselineOf = Annotated[
    str | None,
    typer.Option("--baseline", help="The same target without speculation: a recipe, a name or a URL.", metavar="WHAT"),
]
Prompts = Annotated[
    list[Path] | None,
    typer.Option("--prompts", help="A file of prompts: .jsonl, .csv or .parquet. May be repeated."),
]
Model = Annotated[str | None, typer.Option("--model", help="The model's name at a URL that serves several.")]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, help="The longest answer, in tokens, to prompts without a limit of their own."),
]
Publish = Annotated[
    bool,
    typer.Option(
        "--publish", help="Add the figures to CloudWatch, by Variant and Workload; the dashboard shows both arms."
    ),
]
WorkloadNames = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        help="A prompt set of the recipe, `structured`, `open-ended`, `study`, a data set such as gsm8k or org/name, "
        "or captured requests in s3://… May be repeated; default: all of the recipe's.",
        metavar="NAME",
    ),
]


Time = Annotated[str, typer.Option(help="Stop after this time, such as 90s or 2m.", metavar="T")]


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
            "--parallel", min=1, max=32, metavar="N", help="Of a fleet: how many at a time; they slow each other down."
        ),
    ] = 1,
    keep_going: KeepGoing = False,
    as_json: Json = False,
) -> None:
    """A minute of measuring: is speculation on, lossless, accepted, and does it pay? Exit code 1 if one is not so."""
    from toolkit.api.fleet import is_fleet

    if is_fleet(what):
        if baseline or model:
            option = "--baseline" if baseline else "--model"
            raise UsageError(f"{option} is for one endpoint, and these are several", hint="Give them one by one.")
        given = (("--requests", requests), ("--time", time), ("--max-tokens", max_tokens), ("--platform", platform))
        options = [f"{name}={value}" for name, value in given if value is not None]
        options += [f"--prompts={path}" for path in prompts or ()] + (["--publish"] if publish else [])
        fleet.prove(what, options, parallel=parallel, keep_going=keep_going, as_json=as_json)
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
    what: Annotated[
        str | None,
        typer.Argument(
            help="A recipe, an endpoint's name, or a URL; nothing with --compare or --parquet.", metavar="WHAT"
        ),
    ] = None,
    baseline: BaselineOf = None,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="Another arm: a recipe, a name or a URL. May be repeated.", metavar="WHAT"),
    ] = None,
    prompts: Prompts = None,
    workload: WorkloadNames = None,
    concurrency: Annotated[
        str, typer.Option(help="Numbers of concurrent requests, separated by commas.", metavar="N,…")
    ] = "1,4,16",
    rate: Annotated[
        str | None, typer.Option(help="Requests per second of open loops, separated by commas.", metavar="R,…")
    ] = None,
    max_tokens: MaxTokens = None,
    fixed_length: Annotated[
        bool, typer.Option("--fixed-length", help="Every answer has exactly so many tokens, whatever the model writes.")
    ] = False,
    precision: Annotated[str, typer.Option(help="Stop when all 95 % intervals are this narrow.", metavar="P")] = "5%",
    time: Time = "5m",
    seed: Annotated[
        int,
        typer.Option(
            help="Another number asks prompts in another order, and open loops at other moments.", metavar="N"
        ),
    ] = 0,
    cache: Annotated[
        Literal["cold", "warm"],
        typer.Option(
            help="`cold`: an engine reads every prompt anew, as it does your users'; `warm`: prompts that were asked "
            "before come from its prefix cache."
        ),
    ] = "cold",
    html: Annotated[Path | None, typer.Option(help="Write the report as a page, too.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Keep results in this file, and carry on from what it holds.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Measure nothing: compare two reports that --json printed.", metavar="BEFORE AFTER"),
    ] = None,
    parquet: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Measure nothing: write what --resume kept in a file to a Parquet file, a row for each request.",
            metavar="RESULTS PARQUET",
        ),
    ] = None,
    what_if_acceptance: Annotated[
        str | None,
        typer.Option(
            help="How fast would a drafter with these acceptance lengths be, and where does it break even? Where the "
            "engine can accept drafts by chance, <name>-what-if is deployed, measured and removed; else it follows "
            "from the steps per second of what serves now.",
            metavar="L,…",
        ),
    ] = None,
    dummy_weights: Annotated[
        bool, typer.Option(help="With --what-if-acceptance: deploy with random weights, before there are any.")
    ] = False,
    publish: Publish = False,
    also: Annotated[
        Literal["aws"] | None,
        typer.Option(help="Have SageMaker's own benchmark ask each arm afterwards: a second opinion."),
    ] = None,
    also_role: Annotated[
        str, typer.Option(help="ARN of the role it runs as.  [default: the endpoint's own]", metavar="ARN")
    ] = "",
    model: Model = None,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Measure arms against the baseline, by turns, at several loads: speedups with intervals, latencies, cost.

    Ctrl-C ends it early, with what it has.
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
    if what_if_acceptance and (arm or resume or also):
        raise typer.BadParameter("--what-if-acceptance measures anew, and one thing: no --arm, --resume or --also")
    if also_role and not also:
        raise typer.BadParameter("--also-role is for --also")
    if dummy_weights and not what_if_acceptance:
        raise typer.BadParameter("--dummy-weights is for --what-if-acceptance")
    if html:
        _require_page(html)
    seconds = seconds_of(time)
    options: BenchOptions = {
        "workloads": [*map(str, prompts or ()), *(workload or ())],
        "concurrency": counts_of(concurrency),
        "rates": _numbers(rate) if rate else (),
        "max_tokens": max_tokens,
        "precision": _share(precision),
        "seed": seed,
        "cache": cache,
        "publish": publish,
        "model": model or "",
    }
    if what_if_acceptance:
        lengths = _numbers(what_if_acceptance)
        report = toolkit.what_if(
            what, lengths, baseline=baseline, seconds=seconds, dummy_weights=dummy_weights, platform=platform, **options
        )
    else:
        report = toolkit.bench(
            what,
            baseline=baseline,
            arms=arm or (),
            seconds=seconds,
            fixed_length=fixed_length,
            journal=resume,
            also=also,
            also_role=also_role,
            platform=platform,
            **options,
        )
    if html:
        _write_page(report, html)
    _answer(report, as_json, *_after_bench(what))


def _after_bench(what: str) -> tuple[str, ...]:
    """What comes after a measurement: for a recipe the best K, for an endpoint its own figures, for a URL nothing."""
    from toolkit.api.context import recipe_or_none

    if what.startswith(("http://", "https://")):
        return ()
    return ("tune", what) if recipe_or_none(what) else ("metrics", what)


def _require_page(html: Path) -> None:
    from toolkit.measure.page import require_free, require_packages

    require_free(html)
    require_packages()


def _write_page(report: BenchReport, html: Path) -> None:
    from toolkit.files import write_whole
    from toolkit.measure.page import page_html

    write_whole(html, page_html(report), 0o600)  # it quotes prompts and answers
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
