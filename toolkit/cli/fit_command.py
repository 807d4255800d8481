"""`toolkit fit`: on which instance types a pair of models fits, and how much memory is free for the KV cache."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import toolkit
from toolkit.cli.output import answer, exit_unless, next_step
from toolkit.cli.table import table

if TYPE_CHECKING:
    from toolkit.api.fitting import Fits

Source = Annotated[
    str, typer.Argument(help="A recipe, or a .lock.json file, which is sized with the engine's defaults.")
]
Types = Annotated[
    list[str] | None, typer.Option("--instance", help="An instance type (repeatable). Default: all of them.")
]
Sort = Annotated[
    Literal["price", "kv-price"],
    typer.Option(help="Cheapest first: by the price of the instance, or of a million tokens of KV cache."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


_SHOWN = 10


def register(app: typer.Typer) -> None:
    app.command()(fit)


def fit(
    recipe: Source,
    instance: Types = None,
    sort: Sort = "price",
    every: Annotated[bool, typer.Option("--all", help="Print every type, not the first ten.")] = False,
    as_json: Json = False,
) -> None:
    """Show on which instance types a recipe's models fit, cheapest first, and how many requests they hold."""
    found = toolkit.fit(recipe, instances=instance or (), sort=sort)
    answer({**found.to_dict(), "recipe": recipe}, as_json, lambda: _text(found, recipe, every or bool(instance)))
    exit_unless(found.ok)
    if not as_json and not recipe.endswith(".lock.json"):
        next_step("plan", recipe)


def _text(found: Fits, recipe: str, whole: bool) -> str:
    """A table of the types that were sized, below it the others by reason; without `whole` of the first ones only."""
    if not whole and len(found) > _SHOWN:
        fitting = sum(one.fits for one in found)
        more = f"{max(fitting - _SHOWN, 0)} more fit, {len(found) - max(fitting, _SHOWN)} do not"
        return (
            f"{_text(found.first(_SHOWN), recipe, True)}\n{more}. All of them: toolkit fit {shlex.quote(recipe)} --all"
        )
    from toolkit.api.fitting import COLUMNS, fit_cells

    tables = [table(COLUMNS, [fit_cells(one) for one in found.sized])] if found.sized else []
    return "\n".join([*tables, *found.reasons(), *found.notes])
