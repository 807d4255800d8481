"""The options of `toolkit prove` and `toolkit bench`, and how their values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from toolkit.measure.contradictions import contradiction

if TYPE_CHECKING:
    from toolkit.recipe.schema import Slo

_PERCENT = 100
_MOST_CONCURRENT = 4096
_LARGEST_NUMBER = 1000
CONCURRENCY, TIME, SLO_TIME = "1,4,16", "5m", "20m"
_LENGTH = re.compile(r"(?P<number>\d{1,8})(?P<thousands>k)?")
_MOST_TOKENS = 10_000_000
_LIMIT = re.compile(r"(?P<name>ttft|tpot|e2e)=(?P<number>\d+(\.\d+)?)(?P<unit>ms|s)?")
_SHARE = re.compile(r"share=(?P<share>0?\.\d+)")
_UNITS = {"s": 1.0, "ms": 0.001}
_Number = TypeVar("_Number", int, float)


def share_of(text: str) -> float:
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


def numbers_of(text: str) -> tuple[float, ...]:
    """Rates or acceptance lengths, separated by commas."""
    numbers = _parse(text.split(","), float, f"{text!r} is not a list of numbers: write 0.5,2")
    if not all(0 < number <= _LARGEST_NUMBER for number in numbers):
        message = f"{text!r}: numbers above 0 are expected, up to {_LARGEST_NUMBER}: write 0.5,2"
        raise typer.BadParameter(message)
    return numbers


def lengths_of(text: str) -> tuple[int, ...]:
    """Numbers of tokens, separated by commas; `8k` is 8,000."""
    found = [_LENGTH.fullmatch(part) for part in text.split(",")]
    lengths = [int(one["number"]) * (1000 if one["thousands"] else 1) for one in found if one]
    if len(lengths) < len(found) or not 1 <= min(lengths) <= max(lengths) <= _MOST_TOKENS:
        raise typer.BadParameter(f"{text!r} is not a list of numbers of tokens up to {_MOST_TOKENS:,}: write 1k,8k,32k")
    return tuple(lengths)


def slo_of(text: str) -> Slo:
    """The limits of `ttft=0.5,tpot=50ms`, and `share=0.99` of the requests that must be within them."""
    from toolkit.recipe.schema import Slo

    parts = text.split(",")
    limits = [found for part in parts if (found := _LIMIT.fullmatch(part))]
    shares = [float(found["share"]) for part in parts if (found := _SHARE.fullmatch(part))]
    seconds = {found["name"]: float(found["number"]) * _UNITS[found["unit"] or "s"] for found in limits}
    known = {**seconds, **({"share": shares[0]} if shares else {})}
    sensible = all(0 < limit < math.inf for limit in seconds.values()) and all(0 < share < 1 for share in shares)
    if not seconds or len(known) < len(parts) or not sensible:
        hint = "write ttft=0.5,tpot=50ms with each limit once and above 0, and share=0.99 for another share than 0.9"
        raise typer.BadParameter(f"{text!r} is not an SLO: {hint}")
    return Slo.model_validate(known)


def refuse_contradictions(given: Mapping[str, object]) -> None:
    """Refuse options of `bench` that contradict one another, or say how to do what was not asked for."""
    if wrong := contradiction(given, _spelled):
        raise typer.BadParameter(wrong)


def _spelled(option: str) -> str:
    return f"--{option.replace('_', '-')}"


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
    typer.Option(
        "--max-tokens", min=1, help="Longest answer in tokens; prompts that have a limit of their own keep it."
    ),
]
Publish = Annotated[
    bool,
    typer.Option(
        "--publish", help="Also send the figures to CloudWatch, by Variant and Workload; the dashboard shows both arms."
    ),
]
WorkloadNames = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        help="Prompts to send: a workload of the recipe, `structured`, `open-ended`, `study`, a data set such as gsm8k "
        "or org/name, or captured requests in s3://… May be repeated. Default: all workloads of the recipe.",
        metavar="NAME",
    ),
]


Time = Annotated[str, typer.Option(help="Stop after this time, such as 90s or 2m.", metavar="T")]
Target = Annotated[
    str | None,
    typer.Argument(help="A recipe, an endpoint's name, or a URL; nothing with --compare or --parquet.", metavar="WHAT"),
]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", help="Another arm: a recipe, a name or a URL. May be repeated.", metavar="WHAT"),
]
Concurrency = Annotated[
    str | None,
    typer.Option(help=f"Numbers of concurrent requests, separated by commas.  [default: {CONCURRENCY}]", metavar="N,…"),
]
Rate = Annotated[
    str | None,
    typer.Option(
        help="Also send so many requests per second, whether or not earlier ones are answered; separated by commas.",
        metavar="R,…",
    ),
]
WithinSlo = Annotated[
    str | None,
    typer.Option(
        "--slo",
        help="Find the highest request rate at which 90 % of each arm's requests are within these limits, in seconds, "
        "or milliseconds with `ms`. `share=0.99` asks for 99 %. With --trace: say which share of its requests are.",
        metavar="ttft=…,tpot=…,e2e=…",
    ),
]
TraceFile = Annotated[
    str | None,
    typer.Option(
        "--trace",
        help="Replay this trace, each request at its time: Mooncake's JSONL, BurstGPT's or Azure's CSV, rows of `at` "
        "(seconds), `prompt_tokens` and `answer_tokens`, or captured traffic, also in s3://… With --slo: say which "
        "share of the requests meets it.",
        metavar="FILE",
    ),
]
Speed = Annotated[
    float | None, typer.Option(min=0.001, max=1000, help="With --trace: replay it X times as fast.", metavar="X")
]
Turns = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=32,
        help="Measure chats of N turns: each prompt is sent when the previous answer has come, with the chat so far. "
        "Turns are a row's `turns`, or else consecutive prompts.",
        metavar="N",
    ),
]
PromptTokens = Annotated[
    str | None,
    typer.Option(
        "--prompt-tokens",
        help="Measure with prompts of these lengths, such as 1k,8k,32k: each prompt is preceded by so much text of the "
        "workload's other prompts.",
        metavar="N,…",
    ),
]
FixedLength = Annotated[
    bool,
    typer.Option("--fixed-length", help="Make every answer exactly as long as its limit, whatever the model writes."),
]
Precision = Annotated[
    str,
    typer.Option(help="Stop when all 95 % intervals, or with --slo the request rates, are this precise.", metavar="P"),
]
BenchTime = Annotated[
    str | None,
    typer.Option(
        help=f"Stop after this time, such as 90s or 2m.  [default: {TIME}; {SLO_TIME} with --slo and no --trace]",
        metavar="T",
    ),
]
Seed = Annotated[
    int,
    typer.Option(help="Decides the order of the prompts, and with --rate when each is sent.", metavar="N"),
]
CacheState = Annotated[
    Literal["cold", "warm"],
    typer.Option(
        help="`cold`: the engine reads every prompt anew, as it would your users' prompts; `warm`: it finds prompts "
        "that it has seen in its prefix cache."
    ),
]
Html = Annotated[Path | None, typer.Option(help="Also write the report as an HTML page.")]
Resume = Annotated[Path | None, typer.Option(help="Keep the results in this file; if it has some, carry on from them.")]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(help="Measure nothing; compare two reports that --json printed.", metavar="BEFORE AFTER"),
]
ToParquet = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        help="Measure nothing; turn a file of --resume into a Parquet file with a row for each request.",
        metavar="RESULTS PARQUET",
    ),
]
WhatIfAcceptance = Annotated[
    str | None,
    typer.Option(
        help="Say how fast a drafter with these acceptance lengths would be, and from which length on it pays. If the "
        "engine can accept drafts at random, an endpoint <name>-what-if is deployed, measured and removed for that; "
        "else it is calculated from the steps per second of the endpoint that serves now.",
        metavar="L,…",
    ),
]
DummyWeights = Annotated[
    bool, typer.Option(help="With --what-if-acceptance: deploy with random weights, for models not trained yet.")
]
Also = Annotated[
    Literal["aws"] | None,
    typer.Option(help="Afterwards measure each arm with SageMaker's own benchmark, as a second opinion."),
]
AlsoRole = Annotated[
    str, typer.Option(help="With --also: ARN of the role it runs as.  [default: the endpoint's]", metavar="ARN")
]
