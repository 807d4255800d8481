"""Arguments and options that many commands take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit import registry

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>s|m|min|h)")
_LONGEST_SECONDS = 7 * 24 * 3600

Recipe = Annotated[str, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Baseline = Annotated[
    bool, typer.Option("--baseline", help="Also include the baseline: the same endpoint without speculation.")
]
if TYPE_CHECKING:
    AnyPlatform = str
else:
    AnyPlatform = Literal[registry.platforms()]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
YesToPrice = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is billed.")]
PlatformName = Annotated[
    AnyPlatform | None, typer.Option("--platform", help="Use this platform instead of the recipe's.")
]
OnlyPlatform = Annotated[AnyPlatform | None, typer.Option("--platform", help="Look on this platform only.")]


def seconds_of(text: str) -> float:
    """Seconds of a duration such as `90s`, `2m` or `1h`. A bare number is refused: it may be meant as minutes."""
    parts = _DURATION.fullmatch(text.strip())
    seconds = float(parts["number"]) * _SECONDS[parts["unit"]] if parts else 0.0
    if text.isdecimal() and 0 < int(text) < _LONGEST_SECONDS:
        units = "sm" if int(text) >= _SECONDS["min"] else "ms"
        raise typer.BadParameter(f"{text!r} has no unit: write {' or '.join(text + unit for unit in units)}")
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise typer.BadParameter(f"{text!r} is not a duration of up to a week: write 90s or 2m or 1h")
    return seconds
