"""`toolkit advise`: what to serve a recipe's traffic on, for the least money within an SLO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli.arguments import Json, PlatformName, Recipe
from toolkit.cli.bench_options import slo_of
from toolkit.cli.fleet import Discount
from toolkit.cli.output import answer
from toolkit.cli.table import paragraphs, table
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.api.advising import Advice

_SHOWN = 6


def advise(
    recipe: Recipe,
    slo: Annotated[
        str | None,
        typer.Option(
            help="Required. 90 % of the requests must be within these limits, in seconds, or milliseconds with `ms`.",
            metavar="ttft=…,tpot=…,e2e=…",
        ),
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option(
            help="A trace: a row for each request with `at` (seconds), `prompt_tokens`, `answer_tokens`.",
            metavar="FILE",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Instead of a trace: requests per second, minute or hour.", metavar="5/s")
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option("--prompt-tokens", min=1, help="With --rate.  [default: those of the measured prompts]"),
    ] = None,
    answer_tokens: Annotated[
        int | None,
        typer.Option("--answer-tokens", min=1, help="With --rate.  [default: those of the measured answers]"),
    ] = None,
    speeds: Annotated[
        list[Path] | None,
        typer.Option(
            "--speeds",
            help="A report of `toolkit bench RECIPE --concurrency 1,4,16 --json`. May be repeated. What `tune` "
            "measured counts too.",
        ),
    ] = None,
    discount: Discount = 0.0,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Find the cheapest instances and K that serve a traffic within an SLO, and what a better head would save.

    From the memory that the models need, prices, measured speeds and a simulated queue; it starts nothing. Exit code 1
    if nothing that was measured meets the SLO, or nothing was measured.
    """
    from toolkit.measure.trace import per_second

    if traffic and (rate or prompt_tokens or answer_tokens):
        raise typer.BadParameter("--traffic tells the rate and the tokens: leave out --rate and the others")
    if slo is None or not (traffic or rate):
        needed = (("--slo ttft=0.5,tpot=30ms", slo), ("--rate 5/s (or --traffic trace.jsonl)", traffic or rate))
        missing = " ".join(option for option, given in needed if not given)
        raise UsageError("advise needs an SLO and the traffic", hint=f"Add {missing}.")
    advice = toolkit.advise(
        recipe,
        slo=slo_of(slo),
        traffic=traffic,
        rate=per_second(rate) if rate else None,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        speeds=speeds or (),
        discount_percent=discount,
        platform=platform,
    )
    answer(advice.to_dict(), as_json, lambda: advice_text(advice), yes=advice.ok, then=("plan", recipe))


def advice_text(advice: Advice) -> str:
    """The answer, the cheapest choices, and what follows from them."""
    from toolkit.api.advising import COLUMNS, cells

    rows = [cells(one) for one in advice.choices]
    more = [f"{len(rows) - _SHOWN} more choices are in --json"] if len(rows) > _SHOWN else []
    shown = [table(COLUMNS, rows[:_SHOWN])] if rows else []
    head = paragraphs([f"{advice.recipe}: {advice.answer}"])
    return "\n\n".join([head, *shown, paragraphs([*more, *advice.lines()])])
