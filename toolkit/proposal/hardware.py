"""The hardware that is wished, its engine, and the instance types that hold a pair of models, the cheapest first."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit import registry
from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import UNSIZED, family
from toolkit.display import dollars_per_hour
from toolkit.engines import registry as engine_registry
from toolkit.errors import ToolkitError, UsageError
from toolkit.loading import able_types
from toolkit.proposal.model import Goal, Wishes
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import GIB, Fit, by_weights, fits, sizable
from toolkit.sizing.weights import file_bytes


@dataclass(frozen=True)
class Offer:
    """An instance type that holds the models: on `tensor_parallel` accelerators, with `requests` of full length."""

    instance_type: str
    tensor_parallel: int
    price: float | None
    room: str

    def __str__(self) -> str:
        return f"{self.instance_type} {dollars_per_hour(self.price)}"


def engine_for(wishes: Wishes) -> str:
    """The engine for the hardware that is wished. Raises UsageError for hardware that the platform does not have."""
    engines = (engine_registry.engine_for(item) for item in _find_wished(wishes)) if wishes.hardware else ()
    return next(filter(None, engines), lookup.default_engine())


def groups(wishes: Wishes, target: ModelFacts) -> list[tuple[Instance, ...]]:
    """The instance types that are wished; by family, the newest first, where an engine does not serve all alike.

    Without a wish none that has no arithmetic for the target's numbers: engines then change them to float16.
    """
    engine = engine_registry.engine_rules(engine_for(wishes))
    able = tuple(item for item in _find_wished(wishes) if engine.runs_on(item))
    if not wishes.hardware and _stored_dtype(target) == "bfloat16":
        able = tuple(item for item in able if item.has_bfloat16)
    if not engine.hardware:
        return [able]
    families = sorted({family(item.name) for item in able}, key=lambda name: (-int(re.sub(r"\D", "", name) or 0), name))
    return [tuple(item for item in able if family(item.name) == name) for name in families]


def _stored_dtype(target: ModelFacts) -> str:
    config = {**target.config, **target.text_config}
    return str(config.get("dtype") or config.get("torch_dtype"))


def _find_wished(wishes: Wishes) -> tuple[Instance, ...]:
    rules, wished = registry.rules_of(wishes.platform), (wishes.hardware or "").lower()
    if not rules.facts.has_instance_types:
        if wished:
            hint = f"Leave out --hardware {wishes.hardware}, or name another --platform."
            raise UsageError(f"platform `{wishes.platform}` is this machine, whatever its hardware", hint=hint)
        return ()
    matching = tuple(item for item in rules.instances() if wished in f"{item.name} {item.accelerator}".lower())
    if not matching and (why := UNSIZED.get(family(wished))):
        raise UsageError(f"nothing can be sized for {wishes.hardware}: {why}", hint="Write: --hardware trn2.")
    if not matching:
        names = {family(item.name): item for item in rules.instances()}
        near = difflib.get_close_matches(wished, names, n=3, cutoff=0.5) or sorted(names)
        hint = f"Write one of: {', '.join(f'--hardware {name}' for name in near)}."
        raise UsageError(f"{wishes.platform} has no instance type called `{wishes.hardware}`", hint=hint)
    return matching


def offers(
    recipe: Recipe, models: Lock, goal: Goal, among: Sequence[Instance], max_price: float | None = None
) -> list[Offer]:
    """Those of the types `among` that hold the models, the best for the goal first: cheapest, or by price of KV.

    Those above `max_price` or of unknown price are left out if there is a limit. Raises ToolkitError if the target's
    size is unknown.
    """
    there = [item for item in able_types(recipe) if item in among]
    try:
        sized = _size(recipe, models, there, goal)
    except ToolkitError as error:
        sized = _by_weights(recipe, models, there, error)
    return [offer for offer in sized if max_price is None or (offer.price is not None and offer.price <= max_price)]


def _size(recipe: Recipe, models: Lock, instances: Sequence[Instance], goal: Goal) -> list[Offer]:
    known, _ = sizable(models)
    accelerators = "logical cores" if any(item.neuron_cores for item in instances) else "GPUs"
    sized = fits(recipe, known, instances, "kv-price" if goal == "throughput" else "price")
    return [
        Offer(one.instance, one.tensor_parallel, one.price_per_hour, _room(one, accelerators))
        for one in sized
        if one.fits and not one.doubtful
    ]


def _room(sized: Fit, accelerators: str) -> str:
    each = f" on each of {sized.tensor_parallel} {accelerators}" if sized.tensor_parallel > 1 else ""
    return f"{sized.weights_gib + sized.drafter_gib:.0f} GiB of weights{each}, room for {sized.kv_tokens:,} tokens"


def _by_weights(recipe: Recipe, models: Lock, instances: Sequence[Instance], error: ToolkitError) -> list[Offer]:
    """By the size of the weights alone. Raises the error if that is unknown, too."""
    size = file_bytes(models.target)
    if not size:
        raise error
    room = f"by its {size / GIB:.0f} GiB of weights alone: the rest cannot be estimated"
    sized = by_weights(recipe, models, instances)
    return [Offer(one.instance, one.tensor_parallel, one.price_per_hour, room) for one in sized]
