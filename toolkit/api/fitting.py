"""On which instance types a recipe's models fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from toolkit.catalog import lookup
from toolkit.display import bullets, card, data_frame, in_tone, on_one_line, table
from toolkit.engines import registry as engine_registry
from toolkit.errors import RecipeNotFound, UsageError
from toolkit.text import inert

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Instance
    from toolkit.recipe.facts import Lock
    from toolkit.recipe.recipe import Recipe
    from toolkit.sizing.fit import Fit, Order

COLUMNS = (
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
"""Columns of a table of fits."""
_SHOWN = 10


@dataclass(frozen=True)
class Fits(Sequence["Fit"]):
    """The fit on each instance type, the fitting ones first. Truthy if one fits. `notes` say how far to trust it."""

    recipe: str
    fits: tuple[Fit, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the models fit one of the instance types."""
        return any(one.fits for one in self.fits)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, index: Any) -> Any:
        return self.fits[index]

    def __len__(self) -> int:
        return len(self.fits)

    def first(self, number: int) -> Fits:
        """The first of them: the cheapest that fit, or else the cheapest. Their notes are about them alone."""
        of_all = set(_notes(self.fits))
        fits, own = self.fits[:number], [note for note in self.notes if note not in of_all]
        return replace(self, fits=fits, notes=(*own, *_notes(fits)))

    @property
    def sized(self) -> Sequence[Fit]:
        """The fits on types whose memory was compared."""
        return [one for one in self.fits if one.weights_gib]

    def reasons(self) -> list[str]:
        """Why the other types were not compared, a line for each reason."""
        by_reason: dict[str, list[str]] = {}
        for one in self.fits:
            if not one.weights_gib:
                by_reason.setdefault(one.reason, []).append(one.instance)
        return [f"{reason}: {', '.join(names)}" for reason, names in by_reason.items()]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit fit --json`."""
        return {"recipe": self.recipe, "fits": [one.to_dict() for one in self.fits], "notes": list(self.notes)}

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each instance type."""
        return data_frame(one.to_dict() for one in self.fits)

    def __repr__(self) -> str:
        fitting = [one.instance for one in self.fits if one.fits]
        head = f"<Fits {self.recipe}: {len(fitting)} of {len(self)} instance types>"
        shown = self.first(_SHOWN)
        rows = [COLUMNS, *(cells for _, cells in shown._rows())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        more = [f"… and {len(self) - _SHOWN} more: to_pandas() has all"] if len(self) > _SHOWN else []
        return inert("\n".join([head, *(f"  {line}" for line in lines), *more, *shown.notes]))

    def _repr_html_(self) -> str:
        rows = [
            (
                on_one_line(name),
                in_tone("✔ fits", "good") if one.fits else in_tone("✘", "bad"),
                *map(on_one_line, figures),
            )
            for one, (name, *figures, _) in self._rows()
        ]
        why = [f"{cells[0]}: {cells[-1]}" for one, cells in self._rows() if not one.fits]
        parts = [table(rows, (COLUMNS[0], "", *COLUMNS[1:-1]))] if rows else []
        says = f"fits {sum(one.fits for one in self.fits)} of {len(self)} instance types"
        return card(self.recipe, *parts, bullets([*why, *self.reasons(), *self.notes]), says=says)

    def _rows(self) -> Iterator[tuple[Fit, tuple[str, ...]]]:
        return ((one, fit_cells(one)) for one in self.sized)


def fit(recipe: str | os.PathLike[str] | Recipe, *, instances: Sequence[str] = (), sort: Order = "price") -> Fits:
    """On which instance types a recipe's models fit, and how many requests they hold.

    `recipe` may be a .lock.json file, which is sized with the engine's defaults; `instances` are types to look at,
    by default all. Sorted by the price of the instance (`price`) or of a million tokens of KV cache (`kv-price`).
    """
    loaded, models = read_facts(recipe)
    return fit_models(loaded, models, str(recipe), instances=instances, sort=sort)


def fit_models(
    loaded: Recipe | None, models: Lock, recipe: str, *, instances: Sequence[str] = (), sort: Order = "price"
) -> Fits:
    """`fit` of models that were read. Raises ToolkitError for those that cannot be sized."""
    from toolkit.sizing.fit import fits, sizable

    models, problem = sizable(models)
    asking = loaded or engine_registry.engine_rules(lookup.default_engine())
    rows = fits(asking, models, _instances(instances, loaded), sort)
    unsized = (
        [f"{problem.message}. {problem.hint}".replace("RECIPE", str(loaded.path if loaded else recipe))]
        if problem
        else []
    )
    return Fits(loaded.name if loaded else recipe, rows, (*unsized, *_notes(rows)))


def fit_cells(one: Fit) -> tuple[str, ...]:
    """A fit in the order of COLUMNS."""
    return (
        one.instance,
        str(one.accelerators),
        str(one.tensor_parallel),
        f"{one.weights_gib + one.drafter_gib:.1f} GiB",
        f"{one.kv_gib:.1f} GiB" + (f" ±{one.uncertainty_gib:.1f}" if one.uncertainty_gib else ""),
        f"{one.kv_tokens:,}",
        f"{one.max_concurrency:.2f}",
        f"{one.largest_context:,}",
        _price(one.price_per_hour),
        _price(one.price_per_million_kv_tokens),
        _verdict(one),
    )


def _notes(rows: Sequence[Fit]) -> Iterator[str]:
    """How far to trust the numbers, and what the order of the types and idle accelerators mean."""
    fitting = [one for one in rows if one.fits]
    if unpriced := [one.instance for one in fitting if one.price_per_hour is None]:
        yield (
            f"The catalogue has no price of {', '.join(unpriced)}; they come after the others, whatever they cost. "
            "Why not, and where to look: toolkit plan. To read prices: toolkit catalog update"
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


def read_facts(source: str | os.PathLike[str] | Recipe) -> tuple[Recipe | None, Lock]:
    """The recipe and its models' facts. The recipe is None for a lock file."""
    from toolkit.loading import load
    from toolkit.platforms.elsewhere import open_files
    from toolkit.recipe.lock import lock_path, read_lock, read_models

    if isinstance(source, str | os.PathLike) and str(source).endswith(".lock.json"):
        lock = read_lock(Path(source))
        if lock is None:
            hint = "Correct the path, or name the recipe, which needs no lock file."
            raise RecipeNotFound(f"lock file {source} does not exist", hint=hint)
        return None, lock
    recipe = load(source)
    return recipe, read_lock(lock_path(recipe)) or read_models(recipe, open_files)


def _instances(names: Sequence[str], recipe: Recipe | None) -> list[Instance]:
    """The named instance types, or by default all that the recipe's platform has."""
    from toolkit.catalog import lookup

    every = recipe.platform_rules.instances() if recipe else [item for item in lookup.instances() if item.hostable]
    if not names:
        return list(every)
    find = recipe.platform_rules.instance if recipe else lookup.instance
    return [find(name) or _unknown(name, every) for name in names]


def _unknown(name: str, known: Sequence[Instance]) -> NoReturn:
    near = get_close_matches(name, [instance.name for instance in known], n=3)
    hint = f"Did you mean {', '.join(near)}?" if near else "Remove --instance to see all of them."
    raise UsageError(f"{name} is not in the catalogue of instance types", hint=hint)


def _price(dollars: float | None) -> str:
    return "?" if dollars is None else f"{dollars:.2f}"


def _verdict(one: Fit) -> str:
    if one.fits:
        return "fits, narrowly" if one.doubtful else "fits"
    return f"may not fit: {one.reason}" if one.doubtful else one.reason
