"""What a recipe leaves open, chosen for its models: the newest version that works, the cheapest type that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.known import known_model
from toolkit.recipe.lock import Lock, lock_path, pins, read_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.resolve import INSTANCE_TYPES, VERSION, Recipe
from toolkit.recipe.source import ModelSource
from toolkit.sizing.fit import GIB, Fit, fits, sizable
from toolkit.sizing.weights import file_bytes

Check = Callable[[Recipe, Lock | None], Iterator[Finding]]
_TENSOR_PARALLEL, _SIZES = "tensor-parallel-size", (1, 2, 4, 8)
# Without an estimate of the rest, weights may take this share of the memory.
_WEIGHTS_SHARE = 0.65


def with_choices(recipe: Recipe, check: Check) -> Recipe:
    """The recipe with a version and an instance type where it leaves them open, and the reasons in `chosen`.

    `check` says what the engine finds wrong with a recipe of one version.
    """
    if VERSION in recipe.left_open:
        recipe = _with_version(recipe, _models(recipe), check)
    return with_instance_type(recipe, able_types(recipe))


def versions(recipe: Recipe) -> list[str]:
    """Versions of the recipe's engine that have an image on its platform, the newest first; no pre-releases."""
    listed = (image.version for image in recipe.platform_rules.images(recipe))
    return list(dict.fromkeys(version for version in listed if version.replace(".", "").isdigit()))


def newest_with(recipe: Recipe, works: Callable[[str], bool]) -> str:
    """The newest such version that has an image on the recipe's platform; empty if there is none."""
    return next((version for version in versions(recipe) if works(version)), "")


def able_types(recipe: Recipe) -> list[Instance]:
    """Instance types of the recipe's platform and region that its engine runs on, the cheapest first."""
    region = recipe.platform.region
    able = [item for item in recipe.platform_rules.instances() if recipe.engine_rules.runs_on(item)]
    in_region = [item for item in able if not (region and item.regions) or region in item.regions]
    return sorted(in_region, key=lambda item: (_price(item, region), item.name))


def _price(instance: Instance, region: str | None) -> float:
    price = instance.price(region)
    return price.usd_per_hour if price else float("inf")


def _with_version(recipe: Recipe, models: Lock | None, check: Check) -> Recipe:
    """The newest version without an error; if all have some, the newest, of which the checks then tell."""
    released, refused = versions(recipe), ""
    for version in released:
        here = _at(recipe, version)
        wrong = next((finding for finding in check(here, models) if finding.severity == "error"), None)
        if wrong is None:
            why = "the newest that works" if refused else "the newest with an image there"
            return _chosen(here, VERSION, f"{recipe.engine.name} {version}: {why}{refused}")
        refused = refused or f"; {version} does not: {wrong.message}"
    newest = next(iter(released), "0.0.0")
    return _chosen(_at(recipe, newest), VERSION, f"{recipe.engine.name} {newest}: the newest; none works")


def _at(recipe: Recipe, version: str) -> Recipe:
    return replace(recipe, engine=replace(recipe.engine, version=version))


def with_instance_type(recipe: Recipe, able: Sequence[Instance]) -> Recipe:
    """The recipe with the cheapest of these types that fits, if it leaves the type open; else with the cheapest."""
    open_here = INSTANCE_TYPES in recipe.left_open and recipe.target.kind != "jumpstart"
    if not (open_here and recipe.platform_rules.facts.has_instance_types):
        return recipe
    if not able:
        why = f"{recipe.engine.name} runs on no type of that platform and region"
        return _chosen(_on(recipe, recipe.platform_rules.instances()[0].name), INSTANCE_TYPES, why)
    models = _models(recipe)
    found = _fitting(recipe, models, able)
    if not found:
        why = "nothing fits" if models else f"the size of {recipe.target} is not known; run: toolkit lock {recipe.path}"
        return _chosen(_on(recipe, able[0].name), INSTANCE_TYPES, f"{able[0].name}: {why}")
    first, *others = found
    also = f"; others that fit: {', '.join(map(_offer, others[:3]))}" if others else ""
    return _chosen(
        _on(recipe, first.instance, first.tensor_parallel),
        INSTANCE_TYPES,
        f"{_offer(first)}: the cheapest that fits{also}",
    )


def _fitting(recipe: Recipe, models: Lock | None, able: Sequence[Instance]) -> list[Fit]:
    if models is None:
        return []
    try:
        known, _ = sizable(models)
        return [one for one in fits(recipe, known, able) if one.fits and not one.doubtful]
    except ToolkitError:
        return by_weights(recipe, models, able)


def by_weights(recipe: Recipe, models: Lock, able: Sequence[Instance]) -> list[Fit]:
    """The fit on each type by the size of the weights alone, for models whose KV cache cannot be estimated."""
    sizes = [file_bytes(facts) for facts in (models.target, models.drafter) if facts]
    weights, heads = sum(size or 0 for size in sizes), models.target.text_config.get("num_attention_heads") or 1
    if not sizes[0]:
        return []
    found = []
    for item in able:
        memory = item.memory_per_accelerator_mib * 2**20 * _WEIGHTS_SHARE
        sizes_there = [size for size in _SIZES if size <= item.accelerator_count and heads % size == 0]
        if size := next((size for size in sizes_there if weights / size <= memory), None):
            price = item.price(recipe.platform.region)
            dollars = price.usd_per_hour if price else None
            each = weights / size / GIB
            found.append(Fit(item.name, item.accelerator_count, size, True, each, price_per_hour=dollars))
    return found


def _on(recipe: Recipe, instance_type: str, tensor_parallel: int = 1) -> Recipe:
    here = replace(recipe, platform=replace(recipe.platform, instance_types=(instance_type,)))
    if tensor_parallel == 1 or _TENSOR_PARALLEL in recipe.engine.args:
        return here
    args = {**recipe.engine.args, _TENSOR_PARALLEL: tensor_parallel}
    chosen = replace(here, engine=replace(recipe.engine, args=args))
    return _chosen(chosen, f"engine.args.{_TENSOR_PARALLEL}", f"{tensor_parallel}: as many as the models need there")


def _offer(found: Fit) -> str:
    price = "price unknown" if found.price_per_hour is None else f"{found.price_per_hour:.2f} $/h"
    return f"{found.instance} ({price})"


def _chosen(recipe: Recipe, key: str, why: str) -> Recipe:
    return replace(recipe, chosen={**recipe.chosen, key: why})


def _models(recipe: Recipe) -> Lock | None:
    """Facts of both models, from folders, the lock, or what the toolkit knows; None if the target is unknown."""
    lock = None
    with suppress(ToolkitError):
        lock = read_lock(lock_path(recipe))
    target = _facts(recipe.target, lock.target if lock else None)
    drafter = _facts(recipe.drafter, lock.drafter if lock else None) if recipe.drafter else None
    return Lock(target, drafter) if target else None


def _facts(source: ModelSource, locked: ModelFacts | None) -> ModelFacts | None:
    if source.folder:
        with suppress(ToolkitError):
            return read_folder(source.folder)
        return None
    if locked and pins(locked, source):
        return locked
    return known_model(source.written)
