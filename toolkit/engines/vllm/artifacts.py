"""What vLLM finds out when it first starts, and on what that depends: for warm starts.

vLLM looks each entry of its cache up by a hash of its own. These parts decide which folder a container gets, so that
its entries fit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from toolkit.catalog.trainium import family
from toolkit.engines.arguments import fetched_by_container
from toolkit.engines.vllm.keys import VllmEngine
from toolkit.recipe.recipe import Artifacts, Recipe

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


# Of vLLM's server (FrontendArgs) and its log, and variables that vLLM's own hash leaves out (envs.compile_factors):
# vLLM 0.32.0.
_OF_THE_SERVER = (
    "api-key",
    "chat-template",
    "chat-template-content-format",
    "disable-uvicorn-access-log",
    "enable-auto-tool-choice",
    "enable-log-outputs",
    "enable-prompt-tokens-details",
    "enable-request-id-headers",
    "max-log-len",
    "tool-call-parser",
    "uvicorn-log-level",
)
_OF_THE_LOG = ("VLLM_LOGGING_COLOR", "VLLM_LOGGING_LEVEL", "VLLM_LOGGING_PREFIX", "VLLM_LOG_STATS_INTERVAL")


class VllmArtifacts(Artifacts):
    how_to_want = "Add `warm_start: true` to its `engine`."
    how_to_do_without = "remove `warm_start`: every container then compiles when it starts."

    def wanted(self, recipe: Recipe) -> bool:
        return VllmEngine.of(recipe.engine).warm_start

    def without(self, recipe: Recipe) -> Recipe:
        return replace(recipe, engine=recipe.engine.edit(warm_start=False))

    def parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        settings = settings_parts(recipe, image, target, drafter, _OF_THE_LOG, _OF_THE_SERVER)
        return {**settings, "downloads": _downloads(recipe)}

    def seconds(self, recipe: Recipe) -> int:
        """Not known: one start of the endpoint, whose parts a plan tells."""
        return 0


def _downloads(recipe: Recipe) -> str:
    """Which models the container downloads itself: vLLM then has their names, and else a path, in its hash."""
    models = {"target": recipe.target, "drafter": recipe.drafter}
    return ", ".join(name for name, model in models.items() if model and fetched_by_container(recipe, model)) or "none"


def settings_parts(
    recipe: Recipe,
    image: str,
    target: str,
    drafter: str,
    other_env: Collection[str] = (),
    other_flags: Collection[str] = (),
) -> dict[str, Any]:
    """What compiled code of every engine with vLLM's flags depends on, on the recipe's first instance type.

    `other_env` and `other_flags` are variables of `engine.env` and flags that it does not depend on.
    """
    engine, speculation = recipe.engine, recipe.speculation
    parts: dict[str, Any] = {
        "engine": engine.name,
        "version": engine.version,
        "image": image,
        "instance_family": family(recipe.platform.types[0]),
        "tensor_parallel": str(engine.args.get("tensor-parallel-size", 1)),
        "max_num_seqs": str(engine.max_num_seqs),
        "max_model_len": str(engine.max_model_len or "the target's"),
        "method": recipe.method,
        "target": target,
    }
    if speculation:
        parts["drafter"] = drafter
        parts["num_speculative_tokens"] = str(speculation.num_speculative_tokens)
    env = {name: value for name, value in engine.env.items() if name not in other_env}
    return {**parts, "settings": {"flags": _flags(recipe, other_flags), "env": env}}


def _flags(recipe: Recipe, other_flags: Collection[str]) -> dict[str, Any]:
    """All other flags."""
    flags = {flag: value for flag, value in recipe.flags.items() if flag not in {*_NO_SETTINGS, *other_flags}}
    if "speculative-config" in flags:
        config: dict[str, Any] = flags["speculative-config"]
        flags["speculative-config"] = {
            name: value for name, value in config.items() if name not in _NO_SPECULATIVE_SETTINGS
        }
    return flags
