"""What compiled code for Trainium was compiled for.

Both engines compile for exact shapes, and NxD Inference loads what it finds without a look at what it was made for. So
whatever may change the code is a part here. What does no harm may be a part as well: to compile once too often costs an
hour, to serve other code than the recipe's costs right answers.
"""

from __future__ import annotations

from typing import Any

from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES, family
from toolkit.engines.neuron.generations import generation_of
from toolkit.recipe.resolve import Recipe

# Flags that are parts themselves, and those that say where the models are or how they are called.
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
    """All that the compiled code of the recipe depends on, on its first instance type."""
    engine, speculation, generation = recipe.engine, recipe.speculation, generation_of(recipe.engine)
    found: dict[str, Any] = {
        "engine": engine.name,
        "version": engine.version,
        "sdk": generation.sdk if generation else "unknown",
        "image": image,
        "instance_family": family(recipe.platform.instance_types[0]),
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
    """Every other flag and variable of the engine."""
    flags = {flag: value for flag, value in recipe.flags.items() if flag not in _NO_SETTINGS}
    if "speculative-config" in flags:
        config: dict[str, Any] = flags["speculative-config"]
        flags["speculative-config"] = {
            name: value for name, value in config.items() if name not in _NO_SPECULATIVE_SETTINGS
        }
    env = {name: value for name, value in recipe.engine.env.items() if name not in LOGICAL_CORES_VARIABLES}
    return {"flags": flags, "env": env}
