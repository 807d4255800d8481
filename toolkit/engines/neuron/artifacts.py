"""Everything that compiled code for Trainium depends on.

Both engines compile for exact shapes, and NxD Inference loads any compiled code without checking what it was compiled
for. So everything that may change the code is a part here, and when in doubt too: to compile once too often costs an
hour, but to serve with the wrong code gives wrong answers.
"""

from __future__ import annotations

from typing import Any

from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES, family
from toolkit.engines.neuron.generations import generation_of
from toolkit.recipe.recipe import Recipe

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


def compiled_parts(recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
    """Everything that the recipe's compiled code depends on, for its first instance type."""
    engine, speculation, generation = recipe.engine, recipe.speculation, generation_of(recipe.engine)
    found: dict[str, Any] = {
        "engine": engine.name,
        "version": engine.version,
        "sdk": generation.sdk if generation else "unknown",
        "image": image,
        "instance_family": family(recipe.platform.types[0]),
        "logical_cores": next((engine.env[name] for name in LOGICAL_CORES_VARIABLES if name in engine.env), "default"),
        "tensor_parallel": str(engine.args.get("tensor-parallel-size", 1)),
        "max_num_seqs": str(engine.max_num_seqs),
        "max_model_len": str(engine.max_model_len or "the target's"),
        "method": recipe.method,
        "target": target,
    }
    if speculation:
        found["drafter"] = drafter
        found["num_speculative_tokens"] = str(speculation.num_speculative_tokens)
    return {**found, "settings": _settings(recipe)}


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
