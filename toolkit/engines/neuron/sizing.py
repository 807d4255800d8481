"""Memory of a pair of models on a logical NeuronCore. An estimate: it was not compared with a real chip.

Weights and KV cache are counted as on GPUs. The memory of compiled graphs, activations and the runtime is unknown and
not included, so a pair that barely fits may not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import family, logical_cores
from toolkit.engines.neuron.generations import generation_of
from toolkit.engines.vllm import kv_cache
from toolkit.engines.vllm.memory import Pair, pair_of
from toolkit.engines.vllm.settings import Settings
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.sizing import weights
from toolkit.sizing.fit import GIB, Fit, MemoryModel
from toolkit.sizing.shape import shape_of


@dataclass(frozen=True)
class CoreLoad:
    """Bytes on one logical core: its memory, the weights of both models, and the KV cache of one token of both."""

    memory: int
    target: int
    drafter: int
    kv_per_token: int

    @property
    def for_cache(self) -> int:
        """Bytes that remain for the KV cache; negative if the weights do not fit."""
        return self.memory - self.target - self.drafter


class NeuronMemory(MemoryModel):
    """Logical cores, over which both models are split."""

    def fit(self, recipe: Recipe | None, models: Lock, instance: Instance, empty: Fit) -> Fit:
        """With the smallest tensor parallelism that is sufficient."""
        assert recipe is not None  # it is not the default engine
        return _fit_on_cores(recipe, pair_of(recipe, models), instance, empty)


def _fit_on_cores(recipe: Recipe, pair: Pair, instance: Instance, empty: Fit) -> Fit:
    if pair.models.drafter and pair.drafter is None:
        return replace(empty, reason="the drafter's config has no sizes, which its compiled graphs depend on")
    engine, generation, on = recipe.engine, generation_of(recipe.engine), family(instance.name)
    if not instance.neuron_cores:
        return replace(empty, reason=f"{engine.name} runs on Trainium and Inferentia only")
    if generation and on not in generation.families:
        return replace(empty, reason=f"{generation} does not run on {on}")
    cores, wanted = logical_cores(instance, engine.env), pair.settings.tensor_parallel
    if what := pair.settings.too_many(cores):
        return replace(empty, reason=f"{what} needs that many logical cores, but there are {cores}")
    most = cores // (pair.settings.data_parallel * pair.settings.pipeline_parallel)
    powers = (2**power for power in range(most.bit_length()))
    sizes = (wanted,) if wanted else tuple(size for size in powers if pair.target.heads % size == 0)
    # NxD Inference allocates the KV cache for all requests at full length; so does vllm-neuron for DFlash.
    static = engine.name == "nxd-inference" or recipe.method == "dflash"
    plans = (_fit_cores(pair, instance, replace(empty, tensor_parallel=size), cores, static) for size in sizes)
    last = empty
    for last in plans:
        if last.fits:
            break
    return last


def _fit_cores(pair: Pair, instance: Instance, empty: Fit, cores: int, static: bool) -> Fit:
    """The fit with weights and KV cache split over the logical cores of `empty`."""
    load = core_load(pair.models, pair.settings, instance, cores, empty.tensor_parallel)
    length, requests = pair.max_model_len, pair.settings.max_num_seqs if static else 1
    plan = replace(
        empty,
        weights_gib=load.target / GIB,
        drafter_gib=load.drafter / GIB,
        kv_gib=max(0, load.for_cache) / GIB,
        max_model_len=length,
    )
    if load.for_cache < 0:
        reason = (
            f"weights take {(load.target + load.drafter) / GIB:.1f} GiB of each of {plan.tensor_parallel} logical "
            f"cores, which has {load.memory / GIB:.1f} (an estimate)"
        )
        return replace(plan, reason=reason)
    longest = load.for_cache // (requests * load.kv_per_token)
    plan = replace(plan, largest_context=min(longest, max(length, pair.target.max_position_embeddings)))
    if longest < length:
        reason = (
            f"{requests} x {length:,} tokens need {requests * length * load.kv_per_token / GIB:.1f} GiB of KV cache on "
            f"each of {plan.tensor_parallel} logical cores, {plan.kv_gib:.1f} are left (an estimate)"
        )
        return replace(plan, reason=reason)
    concurrency = load.for_cache / (length * load.kv_per_token)
    return replace(
        plan,
        fits=True,
        kv_tokens=load.for_cache // load.kv_per_token,
        max_concurrency=concurrency,
        largest_concurrency=min(int(concurrency), pair.settings.max_num_seqs),
    )


def core_load(models: Lock, settings: Settings, instance: Instance, cores: int, tensor_parallel: int) -> CoreLoad:
    """The memory load of one of `cores` logical cores, with both models split over `tensor_parallel` of them.

    Layers with a sliding window count as full ones. Raises ToolkitError for an unsupported config or flag.
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
    """Trainium2 has no MXFP4: experts become bfloat16 when loaded (vllm-neuron, EAGLE-3 tutorial for GPT-OSS)."""
    if shape_of(facts).quant_method != "mxfp4":
        return facts
    plain = {key: value for key, value in facts.config.items() if key != "quantization_config"}
    return replace(facts, config=plain, tensors=None, weight_bytes=None)
