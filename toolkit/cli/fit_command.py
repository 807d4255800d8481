"""`toolkit fit`: on which instance types a pair of models fits, and how much memory is free for the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

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
    "verdict",
)


def register(app: typer.Typer) -> None:
    app.command()(fit)


def fit(recipe: Source, instance: Types = None, as_json: Json = False) -> None:
    """Show on which instance types a recipe's models fit, cheapest first, and how many requests they hold."""
    from toolkit.sizing.fit import fits, sizable

    loaded, models = _read(recipe)
    models, problem = sizable(models)
    found = fits(loaded, models, _instances(instance, loaded))
    notes = [f"The drafter is not included: {problem.message}. {problem.hint}"] if problem else []
    document = {"recipe": recipe, "fits": [one.to_dict() for one in found], "notes": notes}
    answer(document, as_json, lambda: "\n".join([_text(found), *notes]))
    exit_unless(any(one.fits for one in found))


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
        f"{found.kv_gib:.1f} GiB",
        f"{found.kv_tokens:,}",
        f"{found.max_concurrency:.2f}",
        f"{found.largest_context:,}",
        "?" if found.price_per_hour is None else f"{found.price_per_hour:.2f}",
        "fits" if found.fits else found.reason,
    )
