"""Does the Neuron engine support this target and drafter, the target's sampling defaults, and a start in time?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolkit.catalog import lookup
from toolkit.catalog.trainium import TRAINING_FAMILIES, family
from toolkit.engines.arguments import fetched_by_container
from toolkit.engines.neuron.checks import neuron_config
from toolkit.engines.neuron.flags import is_fork, neuron_flags
from toolkit.engines.neuron.generations import facts, generation_of
from toolkit.engines.neuron.keys import cluster_of
from toolkit.engines.vllm.head import HEAD_FORMAT, check_head
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe

_SAMPLING, _ENGINE = "override-generation-config", "engine"
# botocore 1.44.5, ProductionVariantContainerStartupHealthCheckTimeoutInSeconds.
_LONGEST_START_MINUTES = 60


def check_neuron_models(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    yield from _target(recipe, models.target)
    yield from _unverified(recipe)
    if models.drafter:
        yield from _drafter_class(recipe, models.drafter)
        yield from _block_size(recipe, models.drafter)
        yield from _same_architecture(recipe, models.target, models.drafter)
    yield from _tied(recipe, models)
    yield from _sampling(recipe, models.target)
    yield from _compiling(recipe, models)
    if models.drafter and recipe.speculation and recipe.speculation.facts.format == HEAD_FORMAT:
        yield from check_head(recipe, models.target, models.drafter)


def _target(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    generation = generation_of(recipe.engine)
    method = generation.methods.get(recipe.method) if generation else None
    architecture = target.architecture
    if method is None or not method.targets or not architecture or architecture in method.targets:
        return
    if is_fork(recipe):
        message = f"the loader of {generation} has no model for `{architecture}`, and does not start"
        hint = f"Use a target that it has: {', '.join(method.targets)}."
        yield Finding("neuron.target", message, "target.model", hint=hint)
    else:
        message = (
            f"unverified: {generation} is documented to support `{recipe.method}` for {' and '.join(method.targets)}"
            f", and this target is a `{architecture}`"
        )
        hint = "Use such a target, or try it: the engine's log names what it does not support."
        yield Finding("neuron.target", message, "target.model", hint=hint, severity="warning")


def _unverified(recipe: Recipe) -> Iterator[Finding]:
    generation = generation_of(recipe.engine)
    if generation and generation.is_unverified(recipe.method):
        message = (
            f"unverified: AWS says that {generation} supports `{recipe.method}`, and with which flags only its source"
        )
        hint = "Copy the target's LM head into the head's checkpoint, as its guide asks; vllm-neuron needs neither."
        yield Finding("neuron.unverified", message, "speculation.method", hint=hint, severity="warning")


def _same_architecture(recipe: Recipe, target: ModelFacts, drafter: ModelFacts) -> Iterator[Finding]:
    """The fork builds the draft model with the target's class (its neuronx_distributed.py, load_weights)."""
    wanted, found = target.architecture, drafter.architecture
    if recipe.method == "draft-model" and is_fork(recipe) and wanted and found and wanted != found:
        message = f"the engine loads the draft model as a `{wanted}`, which its target is, and this one is a `{found}`"
        hint = f"Use a small `{wanted}` of the same vocabulary."
        yield Finding("neuron.draft-model", message, "speculation.model", hint=hint)


def _drafter_class(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    """Of DFlash heads vllm-neuron's registry has the first kind alone (features guide)."""
    listed = lookup.head(drafter.model)
    found = drafter.architecture or (listed.drafter_class if listed else "")
    if recipe.method == "dflash" and "DFlash2" in found:
        message = f"{recipe.engine.name} loads drafters of class `DFlashDraftModel`, and this one is a `{found}`"
        yield Finding("neuron.drafter", message, "speculation.model", hint="Use a DFlash head of the first kind.")


def _block_size(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    """DFlash drafts whole blocks, whose first token is not drafted (vllm-neuron, features guide)."""
    size = drafter.config.get("block_size")
    if recipe.method != "dflash" or recipe.speculation is None or not isinstance(size, int):
        return
    if recipe.speculation.num_speculative_tokens != size - 1:
        message = (
            f"K={recipe.speculation.num_speculative_tokens}, but this drafter's blocks of {size} need K={size - 1}"
        )
        yield Finding("neuron.block-size", message, "speculation.num_speculative_tokens", hint=f"Set it to {size - 1}.")


def _tied(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Documented for NxD Inference's plugin; AWS's sample for the fork uses such a drafter by its hub id."""
    if recipe.engine.name != "nxd-inference":
        return
    drafter = (recipe.speculation.drafter, models.drafter) if recipe.speculation else (None, None)
    for path, (source, model) in (("target.model", (recipe.target, models.target)), ("speculation.model", drafter)):
        ties = model is not None and model.text_config.get("tie_word_embeddings") is True
        if source and ties and fetched_by_container(recipe, source):
            message = f"{source} ties its embeddings: by its hub id it may end with `Cannot copy out of meta tensor`"
            key = "kubernetes.weights_bucket" if cluster_of(recipe) else "`weights: s3`"
            hint = f"Set {key}, so that the engine reads a folder."
            severity: Severity = "info" if is_fork(recipe) else "warning"
            yield Finding("neuron.tied-embeddings", message, path, hint=hint, severity=severity)


def _sampling(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    if not samples_greedily(recipe):
        return
    overriding = recipe.engine.args.get(_SAMPLING)
    defaults = {**target.generation_config, **(overriding if isinstance(overriding, dict) else {})}
    temperature = defaults.get("temperature", 1.0 if defaults.get("do_sample") else 0)
    if isinstance(temperature, int | float) and temperature > 0:
        message = f"the target's default temperature is {temperature}, but the engine only samples greedily"
        hint = f"Set `{_SAMPLING}: {{temperature: 0}}` in engine.args, and send requests with temperature 0."
        yield Finding("neuron.greedy", message, "target.model", hint=hint, severity="warning")


def samples_greedily(recipe: Recipe) -> bool:
    """Whether the engine only samples greedily: the fork's default with speculation, else set by flags."""
    if is_fork(recipe):
        return recipe.speculation is not None and "on_device_sampling_config" not in neuron_config(recipe)
    config = neuron_flags(recipe).get("additional-config")
    below = config.get("neuron_config") if isinstance(config, Mapping) else None
    sampling = below.get("on_device_sampling_config") if isinstance(below, Mapping) else None
    return isinstance(sampling, Mapping) and sampling.get("all_greedy") is True


def _compiling(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    if recipe.engine.compile_ahead or recipe.platform.name != "sagemaker":
        return
    size = sum(model.weight_bytes or 0 for model in (models.target, models.drafter) if model) / 1e9
    minutes = max(1, round(size * facts().compile_minutes_per_gb))
    message = (
        f"compiling at the start takes about {minutes} min (an estimate, from the size of the weights), and SageMaker "
        f"waits {_LONGEST_START_MINUTES} min at the most"
    )
    severity: Severity = "error" if minutes > _LONGEST_START_MINUTES else "warning"
    hint = "Remove `compile`, and compile beforehand: toolkit compile RECIPE"
    if family(recipe.platform.types[0]) not in TRAINING_FAMILIES:
        hint = "Choose a type that SageMaker can compile for beforehand, such as ml.trn1.32xlarge, or a smaller model."
    yield Finding("neuron.compile-at-start", message, f"{_ENGINE}.compile", hint=hint, severity=severity)
