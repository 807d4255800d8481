"""What a logical core of Trainium or Inferentia holds of a pair. An estimate: nobody has held it against a chip here.

Weights and KV cache are counted as on GPUs. What compiled graphs, activations and the runtime take is not known and
left out, so a pair that barely fits may not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolkit.catalog.lookup import Instance
from toolkit.catalog.neuron import LOGICAL_CORES_VARIABLES
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.lock import Lock
from toolkit.sizing import kv_cache, weights
from toolkit.sizing.settings import Settings
from toolkit.sizing.shape import shape_of

PARALLEL_FLAGS = ("tensor-parallel-size", "data-parallel-size", "pipeline-parallel-size")
"""Flags whose product is the number of the engine's processes, one on each GPU or logical core."""


@dataclass(frozen=True)
class CoreLoad:
    """Bytes on one logical core: its memory, the weights of both models, and the KV cache of one token of both."""

    memory: int
    target: int
    drafter: int
    kv_per_token: int

    @property
    def left(self) -> int:
        """What is left for KV cache; below zero where the weights do not fit."""
        return self.memory - self.target - self.drafter


def is_neuron(instance: Instance) -> bool:
    """Whether an instance's accelerators are Trainium or Inferentia chips."""
    return instance.accelerator.startswith(("Trainium", "Inferentia"))


def logical_cores(instance: Instance, env: Mapping[str, str]) -> int:
    """Logical cores of an instance with the engine's environment; tensor parallelism counts them."""
    grouped = next((env[name] for name in LOGICAL_CORES_VARIABLES if name in env), "2")
    return instance.neuron_cores if grouped == "1" else instance.neuron_cores_logical


def ranks(args: Mapping[str, Any]) -> int:
    """Accelerators that the engine's processes take: GPUs, or logical cores of Trainium.

    It is tensor times data times pipeline parallelism. Raises ValueError for one that is no whole number.
    """
    return math.prod(int(args.get(flag, 1)) for flag in PARALLEL_FLAGS)


def chips(instance: Instance, env: Mapping[str, str], cores: int) -> int:
    """Chips that hold that many logical cores."""
    return math.ceil(cores * instance.accelerator_count / logical_cores(instance, env))


def core_load(models: Lock, settings: Settings, instance: Instance, cores: int, tensor_parallel: int) -> CoreLoad:
    """The load of one of `cores` logical cores, with both models split over `tensor_parallel` of them.

    Layers with a sliding window count as full ones. Raises ToolkitError where a config or flag is not understood.
    """
    target = shape_of(models.target)
    drafter = shape_of(models.drafter) if models.drafter else None
    dtype = weights.serving_dtype(target, settings.dtype)
    value_bytes = kv_cache.value_bytes(settings.kv_cache_dtype, weights.DTYPE_BYTES[dtype])
    layers = target.cached_layers + (drafter.cached_layers if drafter else ())
    values = sum(layer.kv_heads_per_rank(tensor_parallel) * (layer.key_size + layer.value_size) for layer in layers)
    return CoreLoad(
        memory=instance.accelerator_count * instance.memory_per_accelerator_mib * 1024**2 // cores,
        target=weights.rank_bytes(_unpacked(models.target), tensor_parallel, dtype),
        drafter=weights.rank_bytes(_unpacked(models.drafter), tensor_parallel, dtype) if models.drafter else 0,
        kv_per_token=max(1, values * value_bytes),
    )


def _unpacked(facts: ModelFacts) -> ModelFacts:
    """Trainium2 has no MXFP4: such experts are made bfloat16 at load (vllm-neuron, EAGLE-3 tutorial for GPT-OSS)."""
    if shape_of(facts).quant_method != "mxfp4":
        return facts
    plain = {key: value for key, value in facts.config.items() if key != "quantization_config"}
    return replace(facts, config=plain, tensors=None, weight_bytes=None)
