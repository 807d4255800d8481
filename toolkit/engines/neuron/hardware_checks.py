"""Does the Neuron engine run on each instance type, support the method there, and find enough cores and its driver?

Sources: awsdocs-neuron (release notes; NeuronCores and LNC; NxD Inference's modules/attention/gqa.py) and
aws-neuron-eks-samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import (
    DEVICE_GROUPS,
    DRA_TYPES,
    LOGICAL_CORES_VARIABLES,
    TRAINING_FAMILIES,
    chips,
    family,
    logical_cores,
    uses_dra,
)
from toolkit.engines.neuron.generations import (
    ANY_ENGINE,
    Generation,
    ami_release,
    driver_fits,
    facts,
    generation_of,
    newest,
    too_new_driver,
)
from toolkit.engines.neuron.keys import cluster_of
from toolkit.engines.vllm.flags import PARALLEL_FLAGS, ranks
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import GIB
from toolkit.sizing.shape import shape_of

_TYPES, _ENGINE = "platform.instance_types", "engine"
_TENSOR_PARALLEL = "engine.args.tensor-parallel-size"
_HOST_COPIES = 3  # with 2 bytes for each weight as they are, and 4 in float32
_CLEARLY = 1.2
_METHODS = ("eagle3", "dflash", "draft-model")


def check_neuron_hardware(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    if not recipe.platform_rules.facts.has_instance_types:
        return
    findings: dict[Finding, None] = {}
    for index, name in enumerate(recipe.platform.types):
        if instance := recipe.platform_rules.instance(name):
            findings |= dict.fromkeys(_instance(recipe.on(name), models, instance, f"{_TYPES}.{index}"))
            if models and instance.neuron_cores and (index == 0 or not recipe.engine.compile_ahead):
                findings |= dict.fromkeys(_host_memory(recipe, models, instance, f"{_TYPES}.{index}"))
    yield from findings


def _instance(recipe: Recipe, models: Lock | None, instance: Instance, path: str) -> Iterator[Finding]:
    if not instance.neuron_cores:
        has = instance.accelerator or "neither"
        message = f"{recipe.engine.name} runs on Trainium and Inferentia, but {instance.name} has {has}"
        prefix = "ml." if instance.name.startswith("ml.") else ""
        hint = f"Choose a type such as {prefix}trn2.48xlarge, or `engine: {{name: vllm}}` with its version."
        yield Finding("neuron.hardware", message, path, hint=hint)
        return
    if generation := generation_of(recipe.engine):
        yield from _generation(recipe, generation, family(instance.name), path)
        yield from _driver(recipe, generation, instance, path)
    yield from _tensor_parallel(recipe, models, instance)
    if recipe.platform.name == "sagemaker":
        yield from _sagemaker(recipe, instance, path)


def _generation(recipe: Recipe, generation: Generation, on: str, path: str) -> Iterator[Finding]:
    """Findings on the generation, the method and the instance family together."""
    other = newest(ANY_ENGINE, recipe.method, on)
    if on not in generation.families:
        message = f"{generation} does not run on {on}"
        runs = " or ".join(generation.families)
        here = f"use {other}: `engine: {{name: neuron}}`." if other else f"use another method. {_nearest(on)}"
        hint = f"Use {runs}; or {here}"
        yield Finding("neuron.hardware", message, path, hint=hint)
    if recipe.method not in ("none", *generation.methods):
        message = f"{generation} does not support method `{recipe.method}`"
        hint = _drafts_elsewhere(recipe.method, other) if other else f"No engine on {on} does. {_nearest(on)}"
        if recipe.method == "p-eagle":
            hint += " An experiment outside of vLLM runs such heads on Trainium2: github.com/aws-neuron/nkipy."
        yield Finding("neuron.method", message, "speculation.method", hint=hint)


def _host_memory(recipe: Recipe, models: Lock, instance: Instance, path: str) -> Iterator[Finding]:
    """NxD Inference reads the weights into the host's memory, in float32 too, before it traces and shards them.

    Users saw it killed with 8B models and 32 GiB (aws-neuron-sdk issue 1222, aws-neuron/nki-samples issue 87). Ahead it
    compiles on the first type alone.
    """
    if recipe.engine.name != "nxd-inference":
        return
    size = sum(model.weight_bytes or 0 for model in (models.target, models.drafter) if model)
    needed = _HOST_COPIES * size / GIB
    if needed > instance.host_memory_gib:
        message = (
            f"compiling takes about {needed:.0f} GiB of the host's memory (an estimate: the weights as they are and in "
            f"float32), and {instance.name} has {instance.host_memory_gib:.0f}: it may be killed"
        )
        severity: Severity = "error" if needed > _CLEARLY * instance.host_memory_gib else "warning"
        hint = "Choose a larger type, or smaller models."
        yield Finding("neuron.host-memory", message, path, hint=hint, severity=severity)


def _drafts_elsewhere(method: str, generation: Generation) -> str:
    hint = f"Use {generation}: `engine: {{name: {generation.engine}, version: {generation.version}}}`"
    if method != "draft-model":
        return f"{hint}."
    return f"{hint}, {generation.note}. Or use an EAGLE-3 head: `method: eagle3`."


def _nearest(on: str) -> str:
    """A hint with the methods that are supported on that family."""
    able = [(method, newest(ANY_ENGINE, method, on)) for method in _METHODS]
    known = [f"`{method}` ({generation.engine} {generation.version})" for method, generation in able if generation]
    return f"Supported: {', '.join(known)}." if known else "Set `method: none`."


def _tensor_parallel(recipe: Recipe, models: Lock | None, instance: Instance) -> Iterator[Finding]:
    cores = logical_cores(instance, recipe.engine.env)
    for name in LOGICAL_CORES_VARIABLES:
        if name in recipe.engine.env and instance.neuron_cores == instance.neuron_cores_logical:
            message = f"the cores of {instance.name} cannot be grouped into logical cores"
            yield Finding("neuron.logical-cores", message, f"engine.env.{name}", hint="Remove it.", severity="warning")
    written = {flag: recipe.engine.args[flag] for flag in PARALLEL_FLAGS if flag in recipe.engine.args}
    if not all(map(_is_size, written.values())) or ranks(recipe.engine.args) > cores:
        sizes = " x ".join(f"{flag} {value}" for flag, value in written.items())
        message = f"{sizes}, but {instance.name} has {cores} logical cores"
        yield Finding("neuron.tensor-parallel", message, _TENSOR_PARALLEL, hint=f"The product must be 1 to {cores}.")
        return
    size = int(str(written.get("tensor-parallel-size", 1)))
    yield from _grouping(recipe, instance, size, cores)
    if models:
        yield from _heads(recipe, "target", models.target, size, cores)
        if models.drafter and recipe.engine.name == "vllm-neuron":  # NxD Inference pads a drafter's heads
            yield from _heads(recipe, "drafter", models.drafter, size, cores)


def _is_size(value: object) -> bool:
    return isinstance(value, int | str) and str(value).isdecimal() and int(value) > 0


def _grouping(recipe: Recipe, instance: Instance, size: int, cores: int) -> Iterator[Finding]:
    """Findings on sizes that do not fit the groups of connected cores and chips."""
    if size & (size - 1) and size != cores:
        below = 2 ** (size.bit_length() - 1)
        message = (
            f"documented sizes are powers of two and all {cores} logical cores of {instance.name}: {size} is neither"
        )
        hint = f"Set it to {below}, or to {min(2 * below, cores)}."
        yield Finding("neuron.tensor-parallel", message, _TENSOR_PARALLEL, hint=hint, severity="warning")
    needed = ranks(recipe.engine.args)
    taken = chips(instance, recipe.engine.env, needed)
    cluster = cluster_of(recipe)
    if cluster and uses_dra([instance.name], cluster.neuron_devices):
        yield from _claimed(instance, needed, taken, cores)


def _claimed(instance: Instance, needed: int, taken: int, cores: int) -> Iterator[Finding]:
    """Findings on claims of Neuron's DRA driver."""
    if instance.name not in DRA_TYPES:
        message = f"unverified: Neuron documents its DRA driver for {DRA_TYPES[0]}, not for {instance.name}"
        path, hint = "platform.kubernetes.neuron_devices", "Write `neuron_devices: device-plugin`."
        yield Finding("neuron.dra", message, path, hint=hint, severity="warning")
    if taken not in DEVICE_GROUPS:
        group = next((group for group in DEVICE_GROUPS if group > taken), taken)
        message = (
            f"{needed} logical cores need {taken} chips, but the DRA driver allocates {group}: the others are idle"
        )
        hint = f"Use {group * cores // instance.accelerator_count} of them, or `neuron_devices: device-plugin`."
        yield Finding("neuron.device-group", message, _TENSOR_PARALLEL, hint=hint, severity="warning")


def _heads(recipe: Recipe, role: str, model: ModelFacts, size: int, cores: int) -> Iterator[Finding]:
    """Findings on dividing the heads: KV heads may also be copied."""
    try:
        shape = shape_of(model)
    except ToolkitError:  # check_memory reports this
        return
    if shape.heads % size:
        message = f"{shape.heads} attention heads of the {role} cannot be divided by {size}"
        powers = (2**power for power in range(cores.bit_length()))
        fitting = ", ".join(str(power) for power in powers if power <= cores and shape.heads % power == 0)
        yield Finding("neuron.heads", message, _TENSOR_PARALLEL, hint=f"Use one of {fitting}.")
        return
    uneven = [layer.kv_heads for layer in shape.layers if layer.kv_heads % size and size % layer.kv_heads]
    if uneven and recipe.engine.name == "nxd-inference":
        message = (
            f"{uneven[0]} KV heads of the {role} cannot be divided by {size}: a copy is kept for each attention head"
        )
        hint = "This needs many times the KV cache memory. Use a size that divides them, or a multiple of them."
        yield Finding("neuron.heads", message, _TENSOR_PARALLEL, hint=hint, severity="warning")
    elif uneven:
        message = f"{uneven[0]} KV heads of the {role} cannot be divided or copied evenly over {size} cores"
        hint = "Use a size that divides them, or a multiple of them."
        yield Finding("neuron.heads", message, _TENSOR_PARALLEL, hint=hint)


def _sagemaker(recipe: Recipe, instance: Instance, path: str) -> Iterator[Finding]:
    if recipe.engine.compile_ahead and family(instance.name) not in TRAINING_FAMILIES:
        message = f"SageMaker has no training jobs on {instance.name}, so it cannot be compiled for beforehand"
        hint = "Write `compile: at-start`. SageMaker allows at most 60 min for that."
        yield Finding("neuron.compile-ahead", message, f"{_ENGINE}.compile", hint=hint)
    if getattr(recipe.platform, "inference_component", None):
        message = "unverified: whether a component's `accelerators` are chips or cores on Trainium"
        hint = "Remove `inference_component`, or set `accelerators` and test what SageMaker allocates."
        component = "platform.inference_component"
        yield Finding("neuron.component", message, component, hint=hint, severity="warning")
    if instance.hostable and not instance.regions:
        message = f"it is not known in which regions SageMaker hosts {instance.name}"
        hint = f"Check your quota `{instance.name} for endpoint usage`: toolkit check --account RECIPE."
        if not getattr(recipe.platform, "capacity_reservation", None):
            hint += " A training plan reserves it: platform.capacity_reservation."
        yield Finding("neuron.availability", message, path, hint=hint, severity="info")


_DRIVER = "platform.kubernetes.neuron_driver"


def _driver(recipe: Recipe, generation: Generation, instance: Instance, path: str) -> Iterator[Finding]:
    """A driver has an oldest runtime, a runtime an oldest driver. It is the host's: no image can bring its own."""
    on = family(instance.name)
    if on not in generation.families:  # another finding says so
        return
    if cluster := cluster_of(recipe):
        yield from _cluster_driver(cluster.neuron_driver, generation, on, path)
    elif recipe.platform.name == "sagemaker":
        yield from _sagemaker_driver(generation, on, path)


def _cluster_driver(driver: str | None, generation: Generation, on: str, path: str) -> Iterator[Finding]:
    too_new = too_new_driver(generation)
    if driver and not driver_fits(generation, on, driver):
        message = f"{generation} has Neuron runtime {generation.runtime}, which {_range(generation, on)}, not {driver}"
        yield Finding("neuron.driver", message, _DRIVER, hint=_choose_ami(generation, on))
    elif too_new and not driver:
        message = (
            f"{generation} has Neuron runtime {generation.runtime}, which does not start on nodes with driver "
            f"{too_new} or newer, such as those of EKS's current AMI"
        )
        release = ami_release(generation, on)
        driver = release.driver if release else "the nodes' driver"
        hint = f"{_choose_ami(generation, on)} Then write `kubernetes: {{neuron_driver: {driver}}}`."
        yield Finding("neuron.driver", message, path, hint=hint, severity="warning")


def _range(generation: Generation, on: str) -> str:
    lowest, too_new = generation.drivers.get(on), too_new_driver(generation)
    needs = f"needs driver {lowest} or newer" if lowest else "needs a driver"
    return f"{needs}, and older than {too_new}" if too_new else needs


def _choose_ami(generation: Generation, on: str) -> str:
    release = ami_release(generation, on)
    return f"Choose release {release} of EKS's AMI for Neuron for the nodes." if release else "Choose another AMI."


def _sagemaker_driver(generation: Generation, on: str, path: str) -> Iterator[Finding]:
    host, seen, lowest = facts().sagemaker_driver, facts().sagemaker_driver_seen, generation.drivers.get(on)
    if not lowest or not lookup.older(host, lowest):
        if on == family(seen.instance_type):
            fits = "works" if driver_fits(generation, on, seen.driver) else "does not work"
            message = f"a user saw Neuron driver {seen.driver} on {seen.instance_type}: {generation} {fits} with it"
            yield Finding("neuron.driver", message, path, hint="", severity="info")
        return
    message = (
        f"unverified: {generation} needs Neuron driver {lowest} on {on}, and the only driver that SageMaker documents "
        f"for its hosts is {host}; a user saw {seen.driver} on {seen.instance_type}"
    )
    hint = "The first line of the container's log shows the driver. Until then, Kubernetes is the safer platform."
    yield Finding("neuron.driver", message, path, hint=hint, severity="warning")
