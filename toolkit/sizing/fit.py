"""Whether a pair of models fits an instance: memory minus weights and workspace is left for the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from toolkit import registry
from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.recipe.lock import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import EngineRules
from toolkit.sizing import kv_cache, weights
from toolkit.sizing.kv_cache import KVCache
from toolkit.sizing.settings import Settings
from toolkit.sizing.shape import Shape, shape_of

GIB = 1024**3

# Of the stated memory, what CUDA reports: 94.97 of 96 GiB (RTX PRO 6000), 79.19 of 80 (H100), 44.42 of 44.7 (L40S), in
# published vLLM logs.
_VISIBLE_SHARE = 0.989

# By how much the workspace may differ from published logs (tests/unit/sizing/published_memory.json).
_UNCERTAIN_BYTES, _UNCERTAIN_SHARE = 3 * GIB // 10, 0.4

_TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
_VOCABULARY_PADDING = 64

# Keys of config.json that count a target's own drafting layers (vLLM 0.33.0, config/speculative.py hf_config_override).
OWN_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


@dataclass(frozen=True)
class Fit:
    """The fit on one instance. Memory is in GiB per accelerator; an instance without accelerators counts as one.

    On Trainium and Inferentia it is per logical core, which is also what `tensor_parallel` counts.

    `max_concurrency` is the number of requests of `max_model_len` tokens, as vLLM logs it; `largest_concurrency` is
    rounded down and at most `max_num_seqs`. `largest_context` is that of a single request, at most the target's limit.
    `workspace_gib` is an estimate, and so is everything that depends on it: it and `kv_gib` may be off by
    `uncertainty_gib` (None if it was not compared with logs). `doubtful` means that this could change the verdict, or
    the tensor parallelism that is needed. `price_per_hour` is in US dollars, None if unknown.

    `copies` of the engine, or its `data-parallel-size`, would use all accelerators; the memory is that of one copy.
    `price_per_million_kv_tokens` is the price per hour for a million tokens of KV cache, in all copies.
    """

    instance: str
    accelerators: int
    tensor_parallel: int
    fits: bool
    weights_gib: float = 0.0
    drafter_gib: float = 0.0
    workspace_gib: float = 0.0
    kv_gib: float = 0.0
    kv_tokens: int = 0
    max_model_len: int = 0
    max_concurrency: float = 0.0
    largest_concurrency: int = 0
    largest_context: int = 0
    price_per_hour: float | None = None
    reason: str = ""
    uncertainty_gib: float | None = None
    doubtful: bool = False
    copies: int = 1

    @property
    def price_per_million_kv_tokens(self) -> float | None:
        if self.price_per_hour is None or not self.kv_tokens:
            return None
        return self.price_per_hour * 1e6 / (self.kv_tokens * self.copies)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit fit --json`."""
        return {**asdict(self), "price_per_million_kv_tokens": self.price_per_million_kv_tokens}


@dataclass(frozen=True)
class Pair:
    """The models with their shapes and settings, which do not depend on the instance."""

    models: Lock
    target: Shape
    drafter: Shape | None
    settings: Settings

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


Order = Literal["price", "kv-price"]
"""What `fits` sorts by: the price per hour, or that of a million tokens of KV cache."""

Workspace = Callable[[Pair, int, bool], int]
"""Bytes besides weights and KV cache, from the pair, the number of accelerators, and whether they are a CPU."""


def fit(recipe: Recipe | None, models: Lock, instance: Instance) -> Fit:
    """The fit on `instance`, with the smallest tensor parallelism that fits. Without a recipe: the engine's defaults.

    The recipe must have the settings for that type. Raises ToolkitError for an unsupported config or flag.
    """
    here = recipe.on(instance.name) if recipe else None
    if models.drafter == models.target:
        models = Lock(
            models.target
        )  # the target drafts with layers of its own, configured in `speculation` or in engine.args
    rules: EngineRules = registry.engine_rules(here.engine.name if here else registry.default_engine())
    pair = Pair(models, shape_of(models.target), _drafter_shape(here, models), rules.settings(here, models))
    empty = Fit(instance.name, instance.accelerator_count, 1, fits=False, price_per_hour=_price(here, instance))
    return rules.fit(here, pair, instance, empty)


def _drafter_shape(recipe: Recipe | None, models: Lock) -> Shape | None:
    """The drafter's shape, or that of the target's own drafting layers; None if only the size of its files is known."""
    if models.drafter:
        try:
            return shape_of(models.drafter)
        except ToolkitError:
            if weights.file_bytes(models.drafter) is None:
                raise
            return None
    if recipe is None or recipe.speculation is None or recipe.speculation.facts.drafter != "optional":
        return None
    target = shape_of(models.target)
    config = {**models.target.config, **models.target.text_config}
    found = (config[key] for key in OWN_LAYERS if isinstance(config.get(key), int))
    return replace(target, layers=target.layers[-1:] * max(1, next(found, 1)), layers_sharing_kv=0)


def sizable(models: Lock) -> tuple[Lock, ToolkitError | None]:
    """The models without what cannot be sized, and what is missing. Raises ToolkitError for the target.

    Of a drafter whose config lacks a size, the weights count if the size of its files is known.
    """
    shape_of(models.target)
    if models.drafter is None:
        return models, None
    try:
        shape_of(models.drafter)
    except ToolkitError as error:
        if weights.file_bytes(models.drafter) is None:
            message = f"{error.message}: the estimate is without the drafter"
            return Lock(models.target), ToolkitError(message, hint=error.hint)
        message = f"{error.message}: the estimate has the drafter's weights, but not its KV cache"
        return models, ToolkitError(message, hint=error.hint)
    return models, None


def fits(recipe: Recipe | None, models: Lock, instances: Iterable[Instance], by: Order = "price") -> tuple[Fit, ...]:
    """The fit on each instance: fitting ones first, the lowest price first, unknown prices last."""

    def order(found: Fit) -> tuple[bool, bool, float, str]:
        price = found.price_per_hour if by == "price" else found.price_per_million_kv_tokens
        return not found.fits, price is None, price or 0.0, found.instance

    return tuple(sorted(_each(recipe, models, instances), key=order))


def _each(recipe: Recipe | None, models: Lock, instances: Iterable[Instance]) -> Iterator[Fit]:
    """The fit on each instance. Types that differ only in CPUs, disk and price are estimated once."""
    known: dict[Any, Fit] = {}
    for instance in instances:
        own = recipe is not None and instance.name in recipe.platform.overrides
        alike = instance.name if own or instance.neuron_cores else _hardware(instance)
        if alike not in known:
            known[alike] = fit(recipe, models, instance)
        yield replace(known[alike], instance=instance.name, price_per_hour=_price(recipe, instance))


def _hardware(instance: Instance) -> tuple[Any, ...]:
    """All of an instance on which a fit depends, but for Neuron's, whose engines know families by name."""
    host = 0.0 if instance.accelerator_count else instance.host_memory_gib
    accelerators = (instance.accelerator, instance.accelerator_count, instance.memory_per_accelerator_mib)
    return (*accelerators, instance.compute_capability, instance.architecture, host)


def _price(recipe: Recipe | None, instance: Instance) -> float | None:
    price = instance.price(recipe.region if recipe else None)
    return price.usd_per_hour if price else None


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
    )


def fit_by_size(pair: Pair, instance: Instance, empty: Fit, workspace: Workspace) -> Fit:
    """The fit with the smallest tensor parallelism that is sufficient on GPUs, or in the host's memory."""
    wanted = pair.settings.tensor_parallel or 1
    if wanted > max(1, instance.accelerator_count):
        return replace(empty, reason=f"tensor-parallel-size {wanted} needs that many accelerators")
    last, problems, doubtful = empty, [], False
    for size in _sizes(pair.settings, instance):
        found = list(_problems(pair, size))
        if found:
            problems.append(f"tensor parallelism {size}: {found[0]}")
            continue
        last = _fit_size(pair, instance, empty, size, workspace)
        doubtful |= last.doubtful
        if last.fits:
            break
    last = replace(last, doubtful=doubtful)
    if last.fits:
        return last
    return replace(last, reason="; ".join(filter(None, (last.reason, *problems[:1]))))


def _sizes(settings: Settings, instance: Instance) -> tuple[int, ...]:
    if settings.tensor_parallel:
        return (settings.tensor_parallel,)
    return tuple(size for size in _TENSOR_PARALLEL_SIZES if size <= max(1, instance.accelerator_count))


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


def _fit_size(pair: Pair, instance: Instance, empty: Fit, size: int, workspace: Workspace) -> Fit:
    """The fit with tensor parallelism `size`, and whether the estimate's uncertainty could change the verdict."""
    on_cpu = instance.accelerator_count == 0
    settings, length = pair.settings, pair.max_model_len
    target = weights.rank_bytes(pair.models.target, size, pair.dtype)
    drafter = _drafter_bytes(pair, size)
    space = workspace(pair, size, on_cpu)
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
        copies=max(1, instance.accelerator_count // size),
    )
    if asked and asked > free:
        reason = f"kv-cache-memory-bytes is {asked / GIB:.1f} GiB, but {max(0, free) / GIB:.1f} are free"
        return replace(plan, reason=reason, doubtful=asked <= free + uncertain)
    cache = cache_of(pair.target, pair.drafter, settings, tensor_parallel=size, on_cpu=on_cpu)
    longest = cache.largest_context(for_cache, max(length, pair.target.max_position_embeddings))
    found = _with_room(replace(plan, largest_context=longest), cache, for_cache, settings.max_num_seqs)
    nearest = for_cache - uncertain if found.fits else for_cache + uncertain
    return replace(found, doubtful=not asked and found.fits != (cache.bytes_for(length) <= nearest))


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
        return replace(
            plan, reason=f"weights and workspace need {used:.1f} GiB, {-memory / GIB:.1f} more than available"
        )
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
    return int(instance.memory_per_accelerator_mib * 1024**2 * _VISIBLE_SHARE)
