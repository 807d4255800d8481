"""vLLM's flags and environment variables for a recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import drafter_path, fetched_by_container, flag_variables, supervised, target_dir
from toolkit.engines.vllm.facts import facts, flag_known
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import SpeculationSection

PREFIX = "SM_VLLM_"
"""Prefix of the variables that AWS's images turn into flags."""

PARALLEL_FLAGS = (
    "tensor-parallel-size",
    "data-parallel-size",
    "pipeline-parallel-size",
    "prefill-context-parallel-size",
)
"""Flags whose product is the number of accelerators: one engine process on each GPU or logical core."""

# With it, an answer says how many tokens of its prompt were in the prefix cache.
_CACHED_TOKENS = "enable-prompt-tokens-details"

# The library looks for the script in the model's folder, and nothing lies below /dev/null.
NO_MODEL_CODE = {"CUSTOM_SCRIPT_FILENAME": "/dev/null/none.py", "STANDARD_AUTO_INSTALL_REQ": "false"}

OWN_FLAGS: Mapping[str, str] = lookup.read("engines/vllm.json")["own_flags"]
"""Flags that the toolkit sets itself, and the recipe key to use instead."""


COMPILING_FLAGS = ("no-enforce-eager", "compilation-config", "optimization-level")
"""Where a recipe has one of these, vLLM on this machine's CPU compiles too."""


def limits(recipe: Recipe) -> dict[str, Any]:
    """Flags common to all engines with vLLM's command line: the model's name and path, and the limits."""
    engine = recipe.engine
    flags: dict[str, Any] = {"max-num-seqs": engine.max_num_seqs, "served-model-name": recipe.name}
    if engine.max_num_batched_tokens:
        flags["max-num-batched-tokens"] = engine.max_num_batched_tokens
    if fetched_by_container(recipe, recipe.target):
        flags["model"] = recipe.target.model
        if recipe.target.revision:
            flags["revision"] = flags["tokenizer-revision"] = recipe.target.revision
    elif recipe.one_data_source:
        flags["model"] = target_dir(recipe)
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
    if not {_CACHED_TOKENS, f"no-{_CACHED_TOKENS}"}.intersection(recipe.engine.args):
        flags[_CACHED_TOKENS] = True
    return flags


def vllm_variables(recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
    """Environment besides engine.env; `flags` are all flags, with their values as text.

    The V1 model runner is selected for methods that need it: V2 used to drop all draft tokens silently.
    """
    runner = {"VLLM_USE_V2_MODEL_RUNNER": "0"} if only_runner(recipe) == "V1" else {}
    return {
        **run_no_model_code(recipe),
        **runner,
        **switched_off(recipe, recipe.engine.version),
        **_supervisor(recipe, flags),
    }


def switched_off(recipe: Recipe, version: str) -> dict[str, str]:
    """The negatives of flags that the recipe sets to false: images leave a false one out, and vLLM's default holds.

    `version` is vLLM's own.
    """
    off = (f"no-{flag}" for flag, value in recipe.engine.args.items() if value is False)
    return flag_variables(recipe, {flag: True for flag in off if flag_known(version, flag)})


def run_no_model_code(recipe: Recipe) -> dict[str, str]:
    """Variables that keep a model's own files from being run when its container starts, unless engine.env sets them.

    By default model-hosting-container-standards 0.1.16, which AWS's images and vLLM have, runs `model.py` of the
    model's folder, and its supervisor installs what `requirements.txt` there lists, or fails without a network.
    """
    return {name: value for name, value in NO_MODEL_CODE.items() if name not in recipe.engine.env}


def ranks(args: Mapping[str, Any]) -> int:
    """The number of accelerators that the engine uses: GPUs, or logical cores of Trainium.

    What is no whole number counts as 1: its own check tells of it.
    """
    return math.prod(map(_size, (args.get(flag, 1) for flag in PARALLEL_FLAGS)))


def _size(value: Any) -> int:
    return int(value) if str(value).isdecimal() else 1


def only_runner(recipe: Recipe) -> str:
    """The only model runner for the recipe's method and its keys, `V1` or `V2`; empty if both can run it."""
    speculation, drafting = recipe.speculation, recipe.drafting
    return drafting.runner_for(speculation.settings) if speculation and drafting else ""


def _supervisor(recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
    """Variables that switch off the image's supervisor if it would break a flag."""
    image = recipe.image
    starts = recipe.platform_rules.facts.starts_image_entrypoint and not recipe.container
    if not starts or image is None or image.entrypoint == "own":
        return {}
    return {} if all(supervised(image, value) for value in flags.values()) else {"PROCESS_AUTO_RECOVERY": "false"}


def draft_slots(recipe: Recipe) -> int:
    """Slots of the token budget that drafting needs for each request."""
    speculation, drafting = recipe.speculation, recipe.drafting
    return drafting.draft_slots(speculation.num_speculative_tokens) if speculation and drafting else 0


def speculative_config(recipe: Recipe, speculation: SpeculationSection) -> dict[str, Any]:
    """The value of `--speculative-config`."""
    drafting, drafter = recipe.drafting, speculation.drafter
    config: dict[str, Any] = {
        "method": drafting.method if drafting else speculation.method,
        "model": drafter_path(recipe),
        "num_speculative_tokens": speculation.num_speculative_tokens,
    }
    if drafter and fetched_by_container(recipe, drafter) and drafter.revision:
        config["revision"] = drafter.revision
    config |= {**speculation.settings, **(drafting.fixed if drafting else {})}
    if recipe.synthetic_acceptance_length is not None:
        config["rejection_sample_method"] = "synthetic"
        config["synthetic_acceptance_length"] = recipe.synthetic_acceptance_length
    return {key: value for key, value in config.items() if value != ""}
