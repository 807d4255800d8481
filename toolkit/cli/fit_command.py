"""`toolkit fit`: on which instance types a pair of models fits, and how much memory is free for the KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from toolkit.cli.output import answer, exit_unless
from toolkit.cli.table import table
from toolkit.errors import RecipeNotFound, UsageError

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Instance
    from toolkit.recipe.lock import Lock
    from toolkit.recipe.resolve import Recipe
    from toolkit.sizing.fit import Fit

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

_HEAD = (
    "instance",
    "accelerators",
    "TP",
    "weights",
    "KV cache",
    "KV tokens",
    "full requests",
    "largest context",
    "$/h",
    "$/h per 1M KV tokens",
    "verdict",
)


def register(app: typer.Typer) -> None:
    app.command()(fit)


def fit(recipe: Source, instance: Types = None, sort: Sort = "price", as_json: Json = False) -> None:
    """Show on which instance types a recipe's models fit, cheapest first, and how many requests they hold."""
    from toolkit.sizing.fit import fits, sizable

    loaded, models = _read(recipe)
    models, problem = sizable(models)
    found = fits(loaded, models, _instances(instance, loaded), sort)
    notes = [*([f"{problem.message}. {problem.hint}"] if problem else []), *_notes(found)]
    document = {"recipe": recipe, "fits": [one.to_dict() for one in found], "notes": notes}
    answer(document, as_json, lambda: "\n".join([_text(found), *notes]))
    exit_unless(any(one.fits for one in found))


def _notes(found: Sequence[Fit]) -> Iterator[str]:
    """How far to trust the numbers, and what the order of the types and idle accelerators mean."""
    fitting = [one for one in found if one.fits]
    if unpriced := [one.instance for one in fitting if one.price_per_hour is None]:
        yield (
            f"No price is known for {', '.join(unpriced)}; they come after the others, whatever they cost. "
            "To read prices: toolkit catalog update"
        )
    if any(one.uncertainty_gib for one in fitting):
        yield "The KV cache is an estimate; ± is how far it may be off. It is the memory of one copy of the engine."
    if idle := [one for one in fitting if one.copies > 1]:
        most = max(idle, key=lambda one: one.copies)
        yield (
            f"One copy of the engine does not use all accelerators of {', '.join(one.instance for one in idle)}. "
            f"`data-parallel-size: {most.copies}` in engine.args runs {most.copies} copies on {most.instance}, with "
            f"{most.copies * most.kv_tokens:,} KV tokens in all. The price of KV tokens counts all copies."
        )


def _read(source: str) -> tuple[Recipe | None, Lock]:
    """The recipe and its models' facts. The recipe is None for a lock file."""
    from toolkit.platforms.model_files import open_files
    from toolkit.recipe.lock import lock_path, read_lock, read_models
    from toolkit.recipe.resolve import load

    if source.endswith(".lock.json"):
        lock = read_lock(Path(source))
        if lock is None:
            raise RecipeNotFound(f"lock file {source} does not exist")
        return None, lock
    recipe = load(source)
    return recipe, read_lock(lock_path(recipe)) or read_models(recipe, open_files)


def _instances(names: list[str] | None, recipe: Recipe | None) -> list[Instance]:
    """The named instance types, or by default all that the recipe's platform has."""
    from toolkit.catalog import lookup

    every = recipe.platform.rules.instances() if recipe else [item for item in lookup.instances() if item.hostable]
    if not names:
        return list(every)
    find = recipe.platform.rules.instance if recipe else lookup.instance
    return [find(name) or _unknown(name, every) for name in names]


def _unknown(name: str, known: Sequence[Instance]) -> NoReturn:
    near = get_close_matches(name, [instance.name for instance in known], n=3)
    hint = f"Did you mean {', '.join(near)}?" if near else "Remove --instance to see all of them."
    raise UsageError(f"{name} is not in the catalogue of instance types", hint=hint)


def _text(found: Sequence[Fit]) -> str:
    """A table of the types that were sized; below it the others, grouped by reason."""
    sized = [one for one in found if one.weights_gib]
    reasons: dict[str, list[str]] = {}
    for one in found:
        if not one.weights_gib:
            reasons.setdefault(one.reason, []).append(one.instance)
    lines = [f"{reason}: {', '.join(names)}" for reason, names in reasons.items()]
    return "\n".join([table(_HEAD, [_row(one) for one in sized]), *lines] if sized else lines)


def _row(found: Fit) -> tuple[str, ...]:
    return (
        found.instance,
        str(found.accelerators),
        str(found.tensor_parallel),
        f"{found.weights_gib + found.drafter_gib:.1f} GiB",
        f"{found.kv_gib:.1f} GiB" + (f" ±{found.uncertainty_gib:.1f}" if found.uncertainty_gib else ""),
        f"{found.kv_tokens:,}",
        f"{found.max_concurrency:.2f}",
        f"{found.largest_context:,}",
        _price(found.price_per_hour),
        _price(found.price_per_million_kv_tokens),
        _verdict(found),
    )


def _price(dollars: float | None) -> str:
    return "?" if dollars is None else f"{dollars:.2f}"


def _verdict(found: Fit) -> str:
    if found.fits:
        return "fits, narrowly" if found.doubtful else "fits"
    return f"may not fit: {found.reason}" if found.doubtful else found.reason
