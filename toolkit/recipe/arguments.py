"""What the container is told: the recipe as flags of the engine, and those as environment in SageMaker's form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.recipe.neuron_arguments import neuron_flags, neuron_variables
from toolkit.recipe.resolve import Recipe, Speculation
from toolkit.recipe.source import ModelSource

# A drafter is an AdditionalModelDataSources channel, which SageMaker mounts here. The name must not contain "eagle":
# vLLM guesses the method from a path that does.
DRAFTER_CHANNEL = "drafter"
CHANNELS_DIR = "/opt/ml/additional-model-data-sources"
"""Where the container of an endpoint finds its channels."""

DRAFTER_DIR = f"{CHANNELS_DIR}/{DRAFTER_CHANNEL}"
BAKED_DRAFTER_DIR = "/opt/toolkit/drafter"
"""Where a drafter lies that is a part of the image."""

CONFIG_CHANNEL = "config"
CONFIG_NAME = "engine.json"  # JSON is YAML, which the engine reads

# botocore 1.44.5, service model of SageMaker: EnvironmentValue.
LONGEST_VALUE = 1024
# supervisord expands `%`, and takes ` ;` or ` #` for the beginning of a comment
# (model-hosting-container-standards 0.1.16 writes the command into its configuration).
_NOT_FOR_SUPERVISORD = re.compile(r"%|\s[;#]")

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


def environment(recipe: Recipe, longest: int = LONGEST_VALUE) -> dict[str, str]:
    """The container's environment: `engine.env`, and every flag as `SM_VLLM_<FLAG>` (facts: AWS's vLLM image).

    Flags whose values are longer than `longest` are in a file.
    """
    too_long = config_file(recipe, longest)
    flags = {flag: _text(value) for flag, value in engine_flags(recipe).items() if flag not in too_long}
    if too_long:
        flags["config"] = f"{CHANNELS_DIR}/{CONFIG_CHANNEL}/{CONFIG_NAME}"
    variables = {_variable(flag): value for flag, value in flags.items()}
    own = neuron_variables(recipe) if recipe.on_neuron else {**_runner(recipe), **_supervisor(recipe, flags)}
    return dict(sorted({**recipe.engine.env, **own, **variables}.items()))


def config_file(recipe: Recipe, longest: int = LONGEST_VALUE) -> dict[str, Any]:
    """Flags whose values are too long for SageMaker's environment: they travel with the model data, as a file."""
    if recipe.platform.name != "sagemaker":
        return {}
    return {flag: value for flag, value in engine_flags(recipe).items() if len(_text(value)) > longest}


def supervised(image: lookup.Image, value: str) -> bool:
    """Whether a flag's value gets through the supervisor of the image unharmed."""
    if _NOT_FOR_SUPERVISORD.search(value):
        return False
    return image.supervisor_quoting == "fixed" or not any(mark in value for mark in "{\"' ")


def pulled(recipe: Recipe, source: ModelSource) -> bool:
    """Whether the container itself fetches that model from the hub."""
    return recipe.platform.weights == "hub" and source.kind == "hub"


def builds(recipe: Recipe) -> bool:
    """Whether an image is built for the recipe.

    The local platform starts the container's program, if not asked to; on Kubernetes that is mounted into the image.
    SageMaker cannot start a Neuron image as it is: it always gets the toolkit's entrypoint.
    """
    if recipe.platform.name == "local":
        return recipe.platform.run == "container"
    return recipe.platform.name == "sagemaker" and (recipe.on_neuron or recipe.container is not None)


def baked(recipe: Recipe) -> bool:
    """Whether the drafter is a part of the image."""
    return builds(recipe) and recipe.container is not None and recipe.container.bake_drafter


def engine_flags(recipe: Recipe) -> dict[str, Any]:
    """Flags of the engine by name, without the leading dashes."""
    engine = recipe.engine
    flags: dict[str, Any] = {
        **engine.args,
        "max-num-seqs": engine.max_num_seqs,
        "served-model-name": recipe.name,
    }
    if engine.max_num_batched_tokens:
        flags["max-num-batched-tokens"] = engine.max_num_batched_tokens
    if pulled(recipe, recipe.target):
        flags["model"] = recipe.target.written
        if recipe.target.revision:
            flags["revision"] = flags["tokenizer-revision"] = recipe.target.revision
    if engine.max_model_len:
        flags["max-model-len"] = engine.max_model_len
    if recipe.on_neuron:
        return flags | neuron_flags(recipe, drafter_path(recipe))
    if recipe.speculation:
        flags["speculative-config"] = _speculative_config(recipe, recipe.speculation)
        since = lookup.engine(engine.name).per_request_metrics_since
        if not lookup.older(engine.version, since):
            flags["per-request-spec-decode-metrics"] = "summary"
    return flags


def drafter_path(recipe: Recipe) -> str:
    """Where the engine finds the drafter: in the image, by its hub id, or in its channel; empty without one."""
    if recipe.speculation is None:
        return ""
    if baked(recipe):
        return BAKED_DRAFTER_DIR
    drafter = recipe.speculation.drafter
    return drafter.written if pulled(recipe, drafter) else DRAFTER_DIR


def draft_slots(recipe: Recipe) -> int:
    """Slots of the token budget that drafting takes for each request (vLLM 0.32, config/speculative.py)."""
    speculation = recipe.speculation
    if speculation is None or speculation.method == "eagle3":
        return 0
    k = speculation.num_speculative_tokens
    return {"p-eagle": k - 1, "pard": k, "dflash": k, "draft-model": 1}[speculation.method]


def _speculative_config(recipe: Recipe, speculation: Speculation) -> dict[str, Any]:
    method = lookup.engine(recipe.engine.name).methods[speculation.method]
    drafter = speculation.drafter
    config: dict[str, Any] = {
        "method": method.engine_method,
        "model": drafter_path(recipe),
        "num_speculative_tokens": speculation.num_speculative_tokens,
    }
    if pulled(recipe, drafter) and drafter.revision:
        config["revision"] = drafter.revision
    if speculation.tensor_parallel:
        config["draft_tensor_parallel_size"] = speculation.tensor_parallel
    if speculation.schedule:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in speculation.schedule]
    return {**config, "parallel_drafting": True} if method.parallel_drafting else config


def _runner(recipe: Recipe) -> dict[str, str]:
    """Parallel drafting runs on vLLM's V1 model runner only: V2 once dropped all draft tokens silently."""
    parallel = recipe.speculation and lookup.engine(recipe.engine.name).methods[recipe.method].parallel_drafting
    return {"VLLM_USE_V2_MODEL_RUNNER": "0"} if parallel else {}


def _supervisor(recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
    """Without its supervisor the image starts the engine with the arguments as they are."""
    image = image_of(recipe)
    unharmed = (
        image is None
        or recipe.container
        or image.entrypoint == "own"
        or all(supervised(image, value) for value in flags.values())
    )
    return {} if recipe.platform.name != "sagemaker" or unharmed else {"PROCESS_AUTO_RECOVERY": "false"}


def image_of(recipe: Recipe) -> lookup.Image | None:
    """The catalogue's image for the recipe's engine on its platform, or for its container to be built on; or None.

    Kubernetes runs the engine's own image.
    """
    images = lookup.images(recipe.platform.name, recipe.engine.name)
    ours = [image for image in images if image.entrypoint != "own"]
    if builds(recipe) or recipe.platform.name == "kubernetes":
        ours += lookup.images("upstream", recipe.engine.name)
    return next((image for image in ours if image.version == recipe.engine.version), None)


def _variable(flag: str) -> str:
    return f"SM_VLLM_{flag.upper().replace('-', '_')}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
