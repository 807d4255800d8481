"""Compiling for Trainium: everything that compiled code depends on, its time and its room on disk.

Both engines compile for exact shapes, and NxD Inference loads any compiled code without checking what it was compiled
for. So everything that may change the code is a part here, and when in doubt too: to compile once too often costs an
hour, but to serve with the wrong code gives wrong answers.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES, family, grouped_cores
from toolkit.engines.neuron.generations import facts, generation_of
from toolkit.recipe.recipe import Compilation, Recipe
from toolkit.recipe.rules import Published

# Flags that are parts themselves, and flags with paths or names of the models.
_NO_SETTINGS = (
    "max-model-len",
    "max-num-seqs",
    "model",
    "revision",
    "served-model-name",
    "tensor-parallel-size",
    "tokenizer-revision",
)
_NO_SPECULATIVE_SETTINGS = ("model", "num_speculative_tokens", "revision")
# Both models are stored with 2 bytes per weight; transformers loads 4 where no type is given.
_FLOAT32_COPY = 2


class NeuronCompilation(Compilation):
    def published(self, method: str) -> Published | None:
        return facts().published.get(method)

    def parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        """Of the recipe's first instance type."""
        engine, speculation, generation = recipe.engine, recipe.speculation, generation_of(recipe.engine)
        parts: dict[str, Any] = {
            "engine": engine.name,
            "version": engine.version,
            "sdk": generation.sdk if generation else "unknown",
            "image": image,
            "instance_family": family(recipe.platform.types[0]),
            "logical_cores": grouped_cores(engine.env) or "default",
            "tensor_parallel": str(engine.args.get("tensor-parallel-size", 1)),
            "max_num_seqs": str(engine.max_num_seqs),
            "max_model_len": str(engine.max_model_len or "the target's"),
            "method": recipe.method,
            "target": target,
        }
        if speculation:
            parts["drafter"] = drafter
            parts["num_speculative_tokens"] = str(speculation.num_speculative_tokens)
        return {**parts, "settings": _settings(recipe)}

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


def _settings(recipe: Recipe) -> dict[str, Any]:
    """All other flags and environment variables of the engine."""
    flags = {flag: value for flag, value in recipe.flags.items() if flag not in _NO_SETTINGS}
    if "speculative-config" in flags:
        config: dict[str, Any] = flags["speculative-config"]
        flags["speculative-config"] = {
            name: value for name, value in config.items() if name not in _NO_SPECULATIVE_SETTINGS
        }
    env = {name: value for name, value in recipe.engine.env.items() if name not in LOGICAL_CORES_VARIABLES}
    return {"flags": flags, "env": env}
