"""What vLLM is told: its flags and its variables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import fetched_by_container, supervised
from toolkit.engines.vllm.facts import facts
from toolkit.engines.vllm.speculation import speculative_config
from toolkit.recipe.resolve import Recipe

PREFIX = "SM_VLLM_"
"""AWS's images turn variables that begin so into flags."""

PARALLEL_FLAGS = ("tensor-parallel-size", "data-parallel-size", "pipeline-parallel-size")
"""Flags whose product is the number of the engine's processes, one on each GPU or logical core."""

OWN_FLAGS = {
    "host": "nothing: the platform gives it",
    "max-model-len": "`engine.max_model_len`",
    "max-num-batched-tokens": "`engine.max_num_batched_tokens`",
    "max-num-seqs": "`engine.max_num_seqs`",
    "model": "`target.model`",
    "per-request-spec-decode-metrics": "nothing: it is on wherever there is speculation",
    "port": "nothing: the platform gives it",
    "served-model-name": "`name`",
    "speculative-config": "`speculation`",
}
"""Flags that the toolkit writes itself, and the recipe key that each comes from."""


def limits(recipe: Recipe) -> dict[str, Any]:
    """Flags of every engine with vLLM's command line: its name, its models, and how much it takes at a time."""
    engine = recipe.engine
    flags: dict[str, Any] = {"max-num-seqs": engine.max_num_seqs, "served-model-name": recipe.name}
    if engine.max_num_batched_tokens:
        flags["max-num-batched-tokens"] = engine.max_num_batched_tokens
    if fetched_by_container(recipe, recipe.target):
        flags["model"] = recipe.target.written
        if recipe.target.revision:
            flags["revision"] = flags["tokenizer-revision"] = recipe.target.revision
    if engine.max_model_len:
        flags["max-model-len"] = engine.max_model_len
    return flags


def vllm_flags(recipe: Recipe) -> dict[str, Any]:
    """All flags besides engine.args."""
    flags = limits(recipe)
    if recipe.speculation:
        flags["speculative-config"] = speculative_config(recipe, recipe.speculation)
        if not lookup.older(recipe.engine.version, facts().per_request_metrics_since):
            flags["per-request-spec-decode-metrics"] = "summary"
    return flags


def vllm_variables(recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
    """Environment besides engine.env; `flags` are the texts of all flags."""
    return {**_runner(recipe), **_supervisor(recipe, flags)}


def ranks(args: Mapping[str, Any]) -> int:
    """Accelerators that the engine's processes take: GPUs, or logical cores of Trainium.

    It is tensor times data times pipeline parallelism. Raises ValueError for one that is no whole number.
    """
    return math.prod(int(args.get(flag, 1)) for flag in PARALLEL_FLAGS)


def _runner(recipe: Recipe) -> dict[str, str]:
    """Methods that run on vLLM's V1 model runner only: V2 once dropped all draft tokens silently."""
    v1 = recipe.drafting is not None and recipe.drafting.runner == "V1"
    return {"VLLM_USE_V2_MODEL_RUNNER": "0"} if v1 else {}


def _supervisor(recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
    """Without its supervisor the image starts the engine with the arguments as they are."""
    image = recipe.image
    unharmed = (
        image is None
        or recipe.container
        or image.entrypoint == "own"
        or all(supervised(image, value) for value in flags.values())
    )
    return {} if unharmed or not recipe.platform.rules.starts_image_entrypoint else {"PROCESS_AUTO_RECOVERY": "false"}
