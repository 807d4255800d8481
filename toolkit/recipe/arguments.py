"""What the container is told: the recipe as flags of the engine, and those as environment in SageMaker's form."""

from __future__ import annotations

import json
from typing import Any

from toolkit.catalog import lookup
from toolkit.recipe.resolve import Recipe, Speculation

# A drafter is an AdditionalModelDataSources channel, which SageMaker mounts here. The name must not contain "eagle":
# vLLM guesses the method from a path that does.
DRAFTER_CHANNEL = "drafter"
DRAFTER_DIR = f"/opt/ml/additional-model-data-sources/{DRAFTER_CHANNEL}"

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


def environment(recipe: Recipe) -> dict[str, str]:
    """The container's environment: `engine.env`, and every flag as `SM_VLLM_<FLAG>` (facts: AWS's vLLM image)."""
    flags = {f"SM_VLLM_{flag.upper().replace('-', '_')}": _text(value) for flag, value in engine_flags(recipe).items()}
    return dict(sorted({**recipe.engine.env, **_runner(recipe), **flags}.items()))


def engine_flags(recipe: Recipe) -> dict[str, Any]:
    """Flags of the engine by name, without the leading dashes."""
    engine = recipe.engine
    flags: dict[str, Any] = {
        **engine.args,
        "max-num-batched-tokens": engine.max_num_batched_tokens,
        "max-num-seqs": engine.max_num_seqs,
        "served-model-name": recipe.name,
    }
    if engine.max_model_len:
        flags["max-model-len"] = engine.max_model_len
    if recipe.speculation:
        flags["speculative-config"] = _speculative_config(engine.name, recipe.speculation)
        since = lookup.engine(engine.name).per_request_metrics_since
        if not lookup.older(engine.version, since):
            flags["per-request-spec-decode-metrics"] = "summary"
    return flags


def draft_slots(recipe: Recipe) -> int:
    """Slots of the token budget that drafting takes for each request (vLLM 0.32, config/speculative.py)."""
    speculation = recipe.speculation
    if speculation is None or speculation.method == "eagle3":
        return 0
    k = speculation.num_speculative_tokens
    return {"p-eagle": k - 1, "pard": k, "dflash": k, "draft-model": 1}[speculation.method]


def _speculative_config(engine: str, speculation: Speculation) -> dict[str, Any]:
    method = lookup.engine(engine).methods[speculation.method]
    config: dict[str, Any] = {
        "method": method.engine_method,
        "model": DRAFTER_DIR,
        "num_speculative_tokens": speculation.num_speculative_tokens,
    }
    if speculation.tensor_parallel:
        config["draft_tensor_parallel_size"] = speculation.tensor_parallel
    if speculation.schedule:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in speculation.schedule]
    return {**config, "parallel_drafting": True} if method.parallel_drafting else config


def _runner(recipe: Recipe) -> dict[str, str]:
    """Parallel drafting runs on vLLM's V1 model runner only: V2 once dropped all draft tokens silently."""
    parallel = recipe.speculation and lookup.engine(recipe.engine.name).methods[recipe.method].parallel_drafting
    return {"VLLM_USE_V2_MODEL_RUNNER": "0"} if parallel else {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
