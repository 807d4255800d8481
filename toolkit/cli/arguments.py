"""Arguments and options that many commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit import registry

Recipe = Annotated[str, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Baseline = Annotated[
    bool, typer.Option("--baseline", help="Also include the baseline: the same endpoint without speculation.")
]
if TYPE_CHECKING:
    AnyPlatform = str
else:
    AnyPlatform = Literal[registry.platforms()]
PlatformName = Annotated[
    AnyPlatform | None, typer.Option("--platform", help="Use this platform instead of the recipe's.")
]
