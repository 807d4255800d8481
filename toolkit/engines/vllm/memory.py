"""Whether vLLM can serve a pair of models on an instance: what weights and workspace leave is for the KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from toolkit.catalog.entries import BFLOAT16_SINCE
from toolkit.catalog.lookup import Instance
from toolkit.engines.vllm import kv_cache
from toolkit.engines.vllm.kv_cache import KVCache
from toolkit.engines.vllm.settings import LAYERS_VARIABLE, Settings, settings_of
from toolkit.engines.vllm.stages import Stage, stages
from toolkit.errors import ToolkitError
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing import weights
from toolkit.sizing.fit import GIB, Fit, MemoryModel, drafter_shape
from toolkit.sizing.shape import Shape, shape_of

# By how much the workspace may differ from published logs (tests/unit/sizing/published_memory.json).
_UNCERTAIN_BYTES, _UNCERTAIN_SHARE = 3 * GIB // 10, 0.4

_TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
_VOCABULARY_PADDING = 64

# The workspace: constants fitted to published start-up logs (tests/unit/sizing/published_memory.json), of which they
# give the middle. Only the engine's profiling run on the device measures it.
_VERIFICATION_BYTES_PER_LOGIT = 4
"""Logits of every draft token and the bonus token, float32 (vLLM, v1/sample/rejection_sampler.py)."""

_GRAPHS_BYTES, _DRAFTER_GRAPHS_BYTES = 3 * GIB // 8, GIB // 8
"""CUDA graphs as the engine estimates them before it plans the KV cache: 0.1 to 0.8 GiB in logs of 0.18 to 0.26."""

_NON_TORCH_BYTES = 3 * GIB // 20
"""CUDA libraries beside torch: 0.02 to 0.35 GiB in published logs (the highest: vLLM issue 10517)."""

_COMMUNICATION_BYTES = GIB // 10
"""All-reduce buffers of tensor parallelism: at most 0.25 GiB in logs with two and four GPUs."""

_CPU_PROCESS_BYTES = GIB
"""The worker process before its weights: 0.85 to 0.99 GB measured (vLLM 0.32 on CPU, eager)."""

# CUDA 13.0 release notes: compute capability below 7.5 (Maxwell, Pascal, Volta) is no longer supported.
_OLDEST_GPU = 7.5
# get_min_capability in vLLM 0.32.0's model_executor/layers/quantization/ where it is above that.
_OLDEST_GPU_OF = {"mxfp4": 8.0, "fbgemm_fp8": 8.0, "experts_int8": 8.0, "fp_quant": 10.0}


@dataclass(frozen=True)
class Pair:
    """The models with their shapes and settings, which do not depend on the instance; of a `stage`, what it holds."""

    models: Lock
    target: Shape
    drafter: Shape | None
    settings: Settings
    stage: Stage | None = None

    @property
    def max_model_len(self) -> int:
        """The longest request in tokens. Raises ToolkitError if neither the settings nor the target define it."""
        length = self.settings.max_model_len or self.target.max_position_embeddings
        if not length:
            source = self.models.target.source
            raise ToolkitError(f"{source}: no `max_position_embeddings`", hint="Set engine.max_model_len.")
        return length

    @property
    def dtype(self) -> str:
        """The dtype in which the target is served."""
        return weights.serving_dtype(self.target, self.settings.dtype)

    def on(self, stage: Stage) -> Pair:
        """What one stage of a pipeline holds of it."""
        layers = self.target.layers[stage.first : stage.end]
        shared = max(0, self.target.layers_sharing_kv - (stage.layers - stage.end))
        target = replace(self.target, layers=layers, layers_sharing_kv=min(shared, len(layers)))
        here = replace(self, target=target, stage=stage)
        return here if stage.is_last else replace(here, models=Lock(self.models.target), drafter=None)

    def share(self, name: str) -> float:
        """How much of a tensor of the target is held."""
        return self.stage.share(name, tied=self.target.tied) if self.stage else 1.0


class VllmMemory(MemoryModel):
    """vLLM on GPUs, and on this machine's CPU."""

    def fit(self, recipe: Recipe | None, models: Lock, instance: Instance, empty: Fit) -> Fit:
        """With the smallest tensor parallelism that fits."""
        pair = pair_of(recipe, models)
        if instance.neuron_cores:
            return replace(empty, reason=f"{instance.accelerator} needs another engine: engine: {{name: neuron}}")
        has_types = recipe is None or recipe.platform_rules.facts.has_instance_types
        if has_types and not runs_on(instance):
            return replace(empty, reason="images of vllm need NVIDIA GPUs of Turing or newer and x86 CPUs")
        method = pair.target.quant_method
        if has_types and float(instance.compute_capability) < (needs := _OLDEST_GPU_OF.get(method, 0.0)):
            return replace(empty, reason=f"{method} weights need a GPU of compute capability {needs} or newer")
        if has_types and pair.settings.dtype == "bfloat16" and not instance.has_bfloat16:
            # check_if_supports_dtype in vLLM 0.32.0's platforms/cuda.py
            why = f"`dtype: bfloat16` needs a GPU of compute capability {BFLOAT16_SINCE} or newer"
            return replace(empty, reason=f"{why}; with `dtype: auto` this one takes float16")
        nodes = recipe.nodes if recipe else 1
        return _fit_by_size(pair, instance, replace(empty, nodes=nodes))


def runs_on(instance: Instance) -> bool:
    """AWS's images and vLLM's own are for NVIDIA GPUs beside x86 CPUs; CUDA 13 knows none older than Turing."""
    new_enough = bool(instance.compute_capability) and float(instance.compute_capability) >= _OLDEST_GPU
    return new_enough and instance.architecture == "x86_64"


def pair_of(recipe: Recipe | None, models: Lock) -> Pair:
    """The models as they are sized. Raises ToolkitError for an unsupported config or flag."""
    return Pair(models, shape_of(models.target), drafter_shape(recipe, models), settings_of(recipe, models))


def cache_of(
    target: Shape, drafter: Shape | None, settings: Settings, *, tensor_parallel: int = 1, on_cpu: bool = False
) -> KVCache:
    """The KV cache that vLLM plans for both models on one accelerator."""
    dtype_bytes = weights.DTYPE_BYTES[weights.serving_dtype(target, settings.dtype)]
    layers = target.cached_layers + (drafter.cached_layers if drafter else ())
    chunked = any(layer.kind == "chunked" for layer in layers)
    steps = 1 if on_cpu else settings.steps_in_flight  # vLLM schedules synchronously there
    return kv_cache.plan(
        layers,
        value_bytes=kv_cache.value_bytes(settings.kv_cache_dtype, dtype_bytes),
        block_size=settings.block_size or (kv_cache.CPU_BLOCK_SIZE if on_cpu else kv_cache.GPU_BLOCK_SIZE),
        in_flight_tokens=steps * settings.max_num_batched_tokens,
        tensor_parallel=tensor_parallel,
        # vLLM 0.32, config/vllm.py: no hybrid cache for chunked attention with a head
        hybrid=settings.hybrid_kv_cache and not (chunked and drafter and drafter.is_head),
        group_factor=settings.kv_group_factor,
        states=kv_cache.States(
            dtype_bytes,
            kv_cache.STATE_BYTES.get(settings.state_dtype),
            settings.num_speculative_tokens,
            settings.prefix_caching_of_states,
        ),
    )


def _fit_by_size(pair: Pair, instance: Instance, empty: Fit) -> Fit:
    """The fit with the smallest tensor parallelism that is sufficient on GPUs, or in the host's memory."""
    count, there = pair.settings.pipeline_parallel, instance.accelerator_count * empty.nodes
    if there and (what := pair.settings.too_many(there)):
        return replace(empty, reason=f"{what} needs that many accelerators")
    if count > len(pair.target.layers):
        return replace(empty, reason=f"{len(pair.target.layers)} layers cannot be divided among {count} stages")
    written = pair.settings.stage_layers
    if written and (len(written), sum(written)) != (count, len(pair.target.layers)):
        what = f"{LAYERS_VARIABLE} {','.join(map(str, written))}"
        return replace(empty, reason=f"{what} does not divide {len(pair.target.layers)} layers among {count} stages")
    last, problems, doubtful = empty, [], False
    for size in _sizes(pair.settings, instance, empty.nodes):
        reasons = list(_problems(pair, size))
        if reasons:
            problems.append(f"tensor parallelism {size}: {reasons[0]}")
            continue
        last = _fit_stages(pair, instance, empty, size)
        doubtful |= last.doubtful
        if last.fits:
            break
    last = replace(last, doubtful=doubtful)
    if last.fits:
        return last
    return replace(last, reason="; ".join(filter(None, (last.reason, *problems[:1]))))


def _fit_stages(pair: Pair, instance: Instance, empty: Fit, size: int) -> Fit:
    """The fit of the stage with the least room, as the cache of all has as many blocks as that one's."""
    count = pair.settings.pipeline_parallel
    if count == 1:
        return _fit_size(pair, instance, empty, size)
    divided = stages(len(pair.target.layers), count, pair.settings.stage_layers)
    found = [_fit_size(pair.on(stage), instance, empty, size) for stage in divided]
    return min(found, key=lambda one: (one.fits, one.kv_tokens, -one.weights_gib))


def _sizes(settings: Settings, instance: Instance, nodes: int) -> tuple[int, ...]:
    if settings.tensor_parallel:
        return (settings.tensor_parallel,)
    all_copies = settings.data_parallel * settings.pipeline_parallel  # each copy has its own
    most = max(1, instance.accelerator_count * nodes // all_copies)
    return tuple(size for size in _TENSOR_PARALLEL_SIZES if size <= most)


def _problems(pair: Pair, size: int) -> Iterator[str]:
    """Reasons why the models cannot be split over `size` accelerators."""
    for role, shape in (("target", pair.target), ("drafter", pair.drafter)):
        if shape:
            yield from (f"{role}: {problem}" for problem in divisibility(shape, size, pair.settings.expert_parallel))


def divisibility(shape: Shape, tensor_parallel: int, expert_parallel: bool = False) -> Iterator[str]:
    """Reasons why vLLM cannot split the model over `tensor_parallel` accelerators."""
    kv_heads = {layer.kv_heads for layer in shape.layers}
    vocabulary = -(-shape.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
    sizes = [(shape.heads, "attention heads"), (vocabulary, "rows of the padded vocabulary")]
    sizes += [(heads, "KV heads") for heads in kv_heads if heads >= tensor_parallel]
    if shape.dense_layers:
        sizes.append((shape.intermediate, "values of the MLP"))
    if shape.experts and not expert_parallel:
        sizes.append((shape.expert_intermediate, "values of an expert"))
    for number, what in sizes:
        if number % tensor_parallel:
            yield f"{number:,} {what} cannot be divided by {tensor_parallel}"
    for heads in kv_heads:
        if heads < tensor_parallel and tensor_parallel % heads:
            yield f"{heads} KV heads cannot be copied evenly to {tensor_parallel} accelerators"
    yield from _block_problems(shape, tensor_parallel, expert_parallel)


def _block_problems(shape: Shape, tensor_parallel: int, expert_parallel: bool) -> Iterator[str]:
    """A quantization block must be on one accelerator (vLLM 0.32, quantization/utils/fp8_utils.py)."""
    blocks = shape.quantization.get("weight_block_size")
    if tensor_parallel == 1 or not blocks:
        return
    sizes = [] if expert_parallel or not shape.experts else [(shape.expert_intermediate, "values of an expert")]
    if shape.dense_layers:
        sizes.append((shape.intermediate, "values of the MLP"))
    for number, what in sizes:
        if number // tensor_parallel % max(blocks):
            yield (
                f"{number:,} {what} over {tensor_parallel} accelerators are not a multiple of the quantization block "
                f"{max(blocks)}"
            )


def _fit_size(pair: Pair, instance: Instance, empty: Fit, size: int) -> Fit:
    """The fit with tensor parallelism `size`, and whether the estimate's uncertainty could change the verdict."""
    on_cpu = instance.accelerator_count == 0
    settings, length = pair.settings, pair.max_model_len
    experts = size * settings.data_parallel if settings.expert_parallel else size
    target = weights.rank_bytes(pair.models.target, size, pair.dtype, experts, pair.share)
    drafter = _drafter_bytes(pair, size)
    dtype_bytes = weights.DTYPE_BYTES[pair.dtype]
    needed = workspace(
        pair.target, pair.drafter, settings, dtype_bytes=dtype_bytes, tensor_parallel=size, on_cpu=on_cpu
    )
    space = needed.total
    uncertain = uncertainty(space)
    free = _visible_bytes(instance) - target - drafter - space
    asked = settings.kv_cache_memory_bytes  # vLLM uses this value regardless of gpu-memory-utilization
    for_cache = asked or free - int(_visible_bytes(instance) * (1 - settings.memory_utilization))
    plan = replace(
        empty,
        tensor_parallel=size,
        weights_gib=target / GIB,
        drafter_gib=drafter / GIB,
        workspace_gib=space / GIB,
        kv_gib=max(0, for_cache) / GIB,
        max_model_len=length,
        uncertainty_gib=uncertain / GIB,
        copies=max(1, instance.accelerator_count * empty.nodes // (size * settings.pipeline_parallel)),
    )
    if asked and asked > free:
        reason = f"kv-cache-memory-bytes is {asked / GIB:.1f} GiB, but {max(0, free) / GIB:.1f} are free"
        return replace(plan, reason=reason, doubtful=asked <= free + uncertain)
    cache = cache_of(pair.target, pair.drafter, settings, tensor_parallel=size, on_cpu=on_cpu)
    longest = cache.largest_context(for_cache, max(length, pair.target.max_position_embeddings))
    fit = _with_room(replace(plan, largest_context=longest), cache, for_cache, settings.max_num_seqs)
    nearest = for_cache - uncertain if fit.fits else for_cache + uncertain
    return replace(fit, doubtful=not asked and fit.fits != (cache.bytes_for(length) <= nearest))


def uncertainty(workspace_bytes: int) -> int:
    """Bytes by which that estimate of the workspace may be off."""
    return round(_UNCERTAIN_BYTES + _UNCERTAIN_SHARE * workspace_bytes)


def _drafter_bytes(pair: Pair, size: int) -> int:
    """Bytes of the drafter on one accelerator; without its shape, those of all its files."""
    drafter = pair.models.drafter
    if drafter is None:
        return 0
    return weights.rank_bytes(drafter, size, pair.dtype) if pair.drafter else weights.file_bytes(drafter) or 0


def _with_room(plan: Fit, cache: KVCache, memory: int, max_num_seqs: int) -> Fit:
    """The fit with a KV cache of `memory` bytes."""
    length, needed = plan.max_model_len, cache.bytes_for(plan.max_model_len)
    used = plan.weights_gib + plan.drafter_gib + plan.workspace_gib
    if memory < 0:
        reason = f"weights and workspace need {used:.1f} GiB, {-memory / GIB:.1f} more than available"
        return replace(plan, reason=reason)
    if needed > memory:
        reason = (
            f"one request of {length:,} tokens needs {needed / GIB:.1f} GiB of KV cache, but {plan.kv_gib:.1f} are free"
        )
        return replace(plan, reason=reason)
    concurrency = cache.max_concurrency(memory, length)
    return replace(
        plan,
        fits=True,
        kv_tokens=cache.tokens(memory, length),
        max_concurrency=concurrency,
        largest_concurrency=min(int(concurrency), max_num_seqs),
    )


def _visible_bytes(instance: Instance) -> int:
    """Memory of one accelerator as the engine sees it, or of a host without accelerators."""
    if instance.accelerator_count == 0:
        return int(instance.host_memory_gib * GIB)
    return instance.usable_bytes


@dataclass(frozen=True)
class Workspace:
    """Bytes on one accelerator. Activations and sampling are not held at the same time."""

    activations: int
    sampling: int
    graphs: int
    runtime: int

    @property
    def total(self) -> int:
        """Peak bytes of everything together."""
        return max(self.activations, self.sampling) + self.graphs + self.runtime


def workspace(
    target: Shape, drafter: Shape | None, settings: Settings, *, dtype_bytes: int, tensor_parallel: int, on_cpu: bool
) -> Workspace:
    """The estimate for one of `tensor_parallel` accelerators, at `max_num_batched_tokens` and `max_num_seqs`."""
    per_token = _values_per_token(target, tensor_parallel)
    if drafter:
        per_token = max(per_token, _values_per_token(drafter, tensor_parallel))
        per_token += drafter.taps * target.hidden  # the target's hidden states are kept for the head
    positions = settings.max_num_seqs * (1 + settings.num_speculative_tokens)
    sampled = settings.max_num_seqs * settings.sampler_bytes_per_logit
    verified = positions * _VERIFICATION_BYTES_PER_LOGIT if settings.num_speculative_tokens else 0
    counted = settings.graphs_counted and not settings.enforce_eager and not on_cpu
    graphs = _GRAPHS_BYTES + (_DRAFTER_GRAPHS_BYTES if drafter else 0)
    runtime = _NON_TORCH_BYTES + (_COMMUNICATION_BYTES if tensor_parallel > 1 else 0)
    return Workspace(
        activations=settings.max_num_batched_tokens * per_token * dtype_bytes,
        sampling=(sampled + verified) * target.vocabulary,
        graphs=graphs if counted else 0,
        runtime=_CPU_PROCESS_BYTES if on_cpu else runtime,
    )


def _values_per_token(shape: Shape, tensor_parallel: int) -> int:
    """Values per token at a layer's peak, in the MLP: gate, up and their product, hidden state and residual.

    Llama-3.1-8B in bfloat16 on one GPU: 110,592 bytes here, 109,800 measured (vLLM issue 10517, 20,000 against 29,000
    tokens).
    """
    own = 3 * shape.hidden
    if shape.experts:
        expert = 3 * shape.expert_intermediate // tensor_parallel + shape.hidden
        return own + shape.experts_per_token * expert
    return own + 3 * shape.intermediate // tensor_parallel
