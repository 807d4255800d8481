"""Settings of speculation that can be compared: a recipe with another K, another method, or another drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.errors import UsageError
from toolkit.measure.break_even import BatchSizes
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import RolloutSection, SpeculationSection

_MARK = "-tune-"
# As long as the name of the longest recipe's baseline.
_LONGEST_NAME = 53


@dataclass(frozen=True)
class Setting:
    """A way to speculate, as a recipe that is deployed under a name of its own.

    `is_other`: it is another recipe or method, and no K of the recipe.
    """

    name: str
    recipe: Recipe
    is_other: bool = False

    @property
    def speculation(self) -> SpeculationSection:
        assert self.recipe.speculation, "a setting speculates"
        return self.recipe.speculation

    @property
    def keys(self) -> dict[str, Any]:
        return self.speculation.dump(what_runs=True)


def with_k(recipe: Recipe, k: int) -> Setting:
    """The recipe with K draft tokens per target step, on every instance type and without a schedule."""
    return Setting(f"K={k}", _variant(recipe, f"k{k}", k))


def is_tuned(name: str, recipe: Recipe) -> bool:
    """Whether an endpoint of that name is one of the recipe's settings."""
    own, mark, _ = name.partition(_MARK)
    return bool(mark) and bool(own) and recipe.name.startswith(own)


def with_schedule(recipe: Recipe, schedule: Sequence[BatchSizes]) -> Setting:
    """The recipe with a K for each batch size."""
    most = max(k for _, _, k in schedule)
    return Setting("K by batch size", _variant(recipe, "schedule", most, tuple(schedule)))


def of_method(recipe: Recipe, other: Recipe) -> Setting:
    """The recipe as `other`, which drafts with a method that needs no drafter, at the method's own K."""
    return _other(recipe, other, other.method, other.method)


def from_recipe(recipe: Recipe, other: Recipe, number: int) -> Setting:
    """Another recipe of the same target and platform, asked the same prompts. Raises UsageError for another target."""
    if (other.target.model, other.target.revision) != (recipe.target.model, recipe.target.revision):
        message = f"{other.path} serves another target: {other.target}, not {recipe.target}"
        raise UsageError(message, hint="Compare recipes of one target.")
    if other.speculation is None:
        raise UsageError(f"{other.path} does not speculate", hint="The baseline is measured anyway: leave it out.")
    return _other(recipe, other, other.name, f"arm{number}")


def _other(recipe: Recipe, other: Recipe, name: str, label: str) -> Setting:
    assert other.speculation, "a setting speculates"
    named = replace(other, name=_name(recipe, label), workloads=recipe.workloads, rollout=_all_requests(other))
    return Setting(f"{name} K={other.speculation.num_speculative_tokens}", named, is_other=True)


def _variant(recipe: Recipe, label: str, k: int, schedule: tuple[BatchSizes, ...] = ()) -> Recipe:
    if recipe.speculation is None:
        raise UsageError(f"{recipe.path} does not speculate", hint="Give it a `speculation.method` to tune.")
    own = {name: item.edit(num_speculative_tokens=None) for name, item in recipe.platform.overrides.items()}
    types = [own.get(name, name) for name in recipe.platform.types]
    line = recipe.lines.get("speculation", 1)
    return replace(
        recipe,
        name=_name(recipe, label),
        speculation=recipe.speculation.edit(
            num_speculative_tokens=k, num_speculative_tokens_per_batch_size=list(schedule)
        ),
        platform=recipe.platform.edit(instance_types=types),
        rollout=_all_requests(recipe),
        # JumpStart's K is only for recipes that name none.
        lines={"speculation.num_speculative_tokens": line, **recipe.lines},
    )


def _all_requests(recipe: Recipe) -> RolloutSection:
    """Without a variant that answers some of the requests without speculation."""
    return recipe.rollout.edit(speculative_percent=100, shadow=False)


def _name(recipe: Recipe, label: str) -> str:
    ending = f"{_MARK}{label.replace('_', '-')}"
    return recipe.name[: _LONGEST_NAME - len(ending)].rstrip("-") + ending
