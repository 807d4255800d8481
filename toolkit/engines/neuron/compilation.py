"""Compiling for Trainium: everything that compiled code depends on, its time and its room on disk.

Both engines compile for exact shapes, and NxD Inference loads any compiled code without checking what it was compiled
for. So everything that may change the code is a part here, and when in doubt too: to compile once too often costs an
hour, but to serve with the wrong code gives wrong answers.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES, grouped_cores
from toolkit.engines.neuron.generations import facts, generation_of
from toolkit.engines.vllm.artifacts import settings_parts
from toolkit.recipe.recipe import Compilation, Recipe
from toolkit.recipe.rules import Published

# Both models are stored with 2 bytes per weight; transformers loads 4 where no type is given.
_FLOAT32_COPY = 2


class NeuronCompilation(Compilation):
    how_to_want = "Remove `engine: {compile: at-start}`."
    how_to_do_without = (
        "write `engine: {compile: at-start}`: then the container compiles when it starts, for which SageMaker allows "
        "60 min at most."
    )

    def wanted(self, recipe: Recipe) -> bool:
        return recipe.engine.compile_ahead

    def without(self, recipe: Recipe) -> Recipe:
        return recipe

    def published(self, method: str) -> Published | None:
        return facts().published.get(method)

    def parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        """Of the recipe's first instance type."""
        generation = generation_of(recipe.engine)
        return {
            **settings_parts(recipe, image, target, drafter, LOGICAL_CORES_VARIABLES),
            "sdk": generation.sdk if generation else "unknown",
            "logical_cores": grouped_cores(recipe.engine.env) or "default",
        }

    def seconds(self, recipe: Recipe) -> int:
        """Estimated from the size of the weights."""
        gigabytes = (recipe.weight_bytes or 0) / 1e9
        return 60 * ceil(facts().compile_minutes_per_gb * gigabytes)

    def disk_bytes(self, recipe: Recipe, fetched: int, *, ahead: bool) -> int:
        """NxD Inference saves what it downloads once more, in float32, and from that shards in the served type.

        The shards of code that is compiled beforehand are written to where that code is kept.
        """
        if recipe.engine.name != "nxd-inference" or (recipe.engine.compile_ahead and not ahead):
            return 0
        return _FLOAT32_COPY * fetched + (0 if recipe.engine.compile_ahead else recipe.weight_bytes or 0)
