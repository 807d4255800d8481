"""`toolkit prove` and `toolkit bench`: the same measurement, in a minute or at length."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>s|m|min|h)?")
_PERCENT = 100


def _seconds(text: str) -> float:
    """Seconds of a duration such as `90`, `90s`, `2m` or `1h`."""
    found = _DURATION.fullmatch(text.strip())
    if not found or not float(found["number"]):
        raise typer.BadParameter(f"{text!r} is not a duration: write 90s, 2m or 1h")
    return float(found["number"]) * _SECONDS[found["unit"] or "s"]


def _share(text: str) -> float:
    """A share of 1, written as `5%` or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (_PERCENT if text.strip().endswith("%") else 1)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a precision: write 5% or 0.05") from error
    if not 0 < share < 1:
        raise typer.BadParameter(f"{text!r} is not a precision between 0 and 100 %")
    return share


def _counts(text: str) -> tuple[int, ...]:
    """Numbers of concurrent requests, separated by commas."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers: write 1,4,16") from error
    if min(found) < 1:
        raise typer.BadParameter(f"{text!r}: concurrency is at least 1")
    return found


def _rates(text: str) -> tuple[float, ...]:
    """Requests per second, separated by commas."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of numbers: write 0.5,2") from error
    if not min(found) > 0:
        raise typer.BadParameter(f"{text!r}: a rate is above 0")
    return found


What = Annotated[
    str, typer.Argument(help="A recipe, an endpoint's name, or a URL such as http://127.0.0.1:9000/v1.", metavar="WHAT")
]
BaselineOf = Annotated[
    str | None,
    typer.Option("--baseline", help="The same target without speculation: a recipe, a name or a URL.", metavar="WHAT"),
]
Prompts = Annotated[
    list[Path] | None,
    typer.Option("--prompts", help="A file of prompts: .jsonl, .csv or .parquet. May be repeated."),
]
Model = Annotated[str | None, typer.Option("--model", help="The model's name at a URL that serves several.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer, in tokens.")]
