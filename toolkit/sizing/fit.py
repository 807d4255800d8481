"""Whether a pair of models fits an instance: what is sized, by whom, and the order of what fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import EngineRules, Recipe
from toolkit.sizing import weights
from toolkit.sizing.shape import Shape, shape_of

GIB = 1024**3
TENSOR_PARALLEL, DATA_PARALLEL = "tensor-parallel-size", "data-parallel-size"
# Where the rest cannot be estimated, weights may take this share of the memory, on one of so many accelerators.
_WEIGHTS_SHARE, _SIZES = 0.65, (1, 2, 4, 8)

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

    `nodes` of that type run one copy together: `accelerators` are those of one, the price is that of all.

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
    nodes: int = 1

    @property
    def price_per_million_kv_tokens(self) -> float | None:
        if self.price_per_hour is None or not self.kv_tokens:
            return None
        return self.price_per_hour * 1e6 / (self.kv_tokens * self.copies)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit fit --json`."""
        return {**asdict(self), "price_per_million_kv_tokens": self.price_per_million_kv_tokens}


class MemoryModel(ABC):
    """How an engine plans the memory of its hardware: the `memory` of its EngineRules."""

    @abstractmethod
    def fit(self, recipe: Recipe | None, models: Lock, instance: Instance, empty: Fit) -> Fit:
        """How the models fit the instance, with the engine's defaults where there is no recipe.

        `empty` is a fit that does not, to be filled in. Raises ToolkitError for an unsupported config or flag.
        """


Order = Literal["price", "kv-price"]
"""What `fits` sorts by: the price per hour, or that of a million tokens of KV cache."""


def fit(asking: Recipe | EngineRules, models: Lock, instance: Instance) -> Fit:
    """The fit of a recipe's models on `instance`, or of any models with the defaults of an engine.

    The recipe must have the settings for that type. Raises ToolkitError for an unsupported config or flag, and for an
    engine without a memory model.
    """
    recipe: Recipe | None = None
    if isinstance(asking, Recipe):
        recipe = asking.on(instance.name)
        memory = recipe.engine_rules.memory
    else:
        memory = asking.memory
    if not isinstance(memory, MemoryModel):
        raise ToolkitError("the engine has no model of its memory", hint="Deploy once and read the engine's log.")
    if models.drafter == models.target:  # which drafts with layers of its own
        models = Lock(models.target)
    empty = Fit(instance.name, instance.accelerator_count, 1, fits=False, price_per_hour=hourly(recipe, instance))
    return memory.fit(recipe, models, instance, empty)


def drafter_shape(recipe: Recipe | None, models: Lock) -> Shape | None:
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
    counts = (config[key] for key in OWN_LAYERS if isinstance(config.get(key), int))
    return replace(target, layers=target.layers[-1:] * max(1, next(counts, 1)), layers_sharing_kv=0)


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


def fits(
    asking: Recipe | EngineRules, models: Lock, instances: Iterable[Instance], by: Order = "price"
) -> tuple[Fit, ...]:
    """The fit on each instance: fitting ones first, the lowest price first, unknown prices last."""

    def order(one: Fit) -> tuple[bool, bool, float, str]:
        price = one.price_per_hour if by == "price" else one.price_per_million_kv_tokens
        return not one.fits, price is None, price or 0.0, one.instance

    return tuple(sorted(_each(asking, models, instances), key=order))


def _each(asking: Recipe | EngineRules, models: Lock, instances: Iterable[Instance]) -> Iterator[Fit]:
    """The fit on each instance. Types that differ only in CPUs, disk and price are estimated once."""
    recipe = asking if isinstance(asking, Recipe) else None
    known: dict[Any, Fit] = {}
    for instance in instances:
        own = recipe is not None and instance.name in recipe.platform.overrides
        alike = instance.name if own or instance.neuron_cores else hardware(instance)
        if alike not in known:
            known[alike] = fit(asking, models, instance)
        yield replace(known[alike], instance=instance.name, price_per_hour=hourly(recipe, instance))


def by_weights(recipe: Recipe, models: Lock, able: Iterable[Instance]) -> list[Fit]:
    """The fit on each type by the size of the weights alone, for models whose KV cache cannot be estimated."""
    sizes = [weights.file_bytes(facts) for facts in (models.target, models.drafter) if facts]
    total, heads = sum(size or 0 for size in sizes), models.target.text_config.get("num_attention_heads") or 1
    if not sizes[0]:
        return []
    found = []
    for item in able:
        memory = item.usable_bytes * _WEIGHTS_SHARE
        sizes_there = [size for size in _SIZES if size <= item.accelerator_count and heads % size == 0]
        size = next((size for size in sizes_there if total / size <= memory), None)
        if size and has_enough(divided(recipe, size), item):
            price = item.price(recipe.region)
            dollars = price.usd_per_hour if price else None
            each = total / size / GIB
            found.append(Fit(item.name, item.accelerator_count, size, True, each, price_per_hour=dollars))
    return found


def divided(recipe: Recipe, tensor_parallel: int) -> Recipe:
    """The recipe with that tensor parallelism, where it has none of its own."""
    args = {TENSOR_PARALLEL: tensor_parallel, **recipe.engine.args}
    return replace(recipe, engine=recipe.engine.edit(args=args))


def copies(recipe: Recipe) -> int:
    """How many copies of the engine share the requests; what is no whole number counts as 1, as its check tells."""
    written = str(recipe.engine.args.get(DATA_PARALLEL, 1))
    return max(1, int(written)) if written.isdecimal() else 1


def has_enough(recipe: Recipe, instance: Instance) -> bool:
    """Whether the instance has as many accelerators as the engine's settings want."""
    return recipe.engine_rules.accelerators(recipe, instance) <= instance.accelerator_count * recipe.nodes


def hardware(instance: Instance) -> tuple[Any, ...]:
    """All of an instance on which a fit depends, but for Neuron's, whose engines know families by name.

    The engine is as fast on one of these types as on another, but where CPUs compute.
    """
    host = 0.0 if instance.accelerator_count else instance.host_memory_gib
    accelerators = (instance.accelerator, instance.accelerator_count, instance.memory_per_accelerator_mib)
    return (*accelerators, instance.compute_capability, instance.architecture, host)


def hourly(recipe: Recipe | None, instance: Instance) -> float | None:
    """US dollars per hour of as many instances as run one copy, by list price; None if unknown."""
    price = instance.price(recipe.region if recipe else None)
    return price.usd_per_hour * (recipe.nodes if recipe else 1) if price else None
