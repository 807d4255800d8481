"""Read a recipe, then complete it: what its file leaves open is chosen for its models, engine and platform."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit import registry
from toolkit.catalog import methods
from toolkit.catalog.lookup import Instance
from toolkit.display import dollars_per_hour
from toolkit.engines import registry as engine_registry
from toolkit.engines.arguments import versions
from toolkit.errors import ToolkitError
from toolkit.recipe.facts import Lock
from toolkit.recipe.known import known_facts
from toolkit.recipe.load import LoadedRecipe, load_file
from toolkit.recipe.recipe import EngineRules, PlatformTraits, Recipe
from toolkit.recipe.schema import ContainerSection, EngineSection, RecipeFile, SpeculationSection
from toolkit.recipe.source import absolute, model_source
from toolkit.recipe.training_schema import SharedSource, TrainingSection
from toolkit.recipe.values import INSTANCE_TYPES, VERSION
from toolkit.sizing.fit import TENSOR_PARALLEL, Fit, by_weights, divided, fits, has_enough, sizable

RecipeLike = str | os.PathLike[str] | Recipe
# What stands for an instance type until JumpStart's own is read.
_OF_JUMPSTART = "ml.m7i.large"
_CLUSTER = "platform.kubernetes"


def load(recipe: RecipeLike, platform: str | None = None) -> Recipe:
    """The complete recipe of a path, of a catalogue name such as `tiny/p-eagle`, or of a Recipe.

    With `platform` it is moved to that one. Raises RecipeNotFound, UnreadableRecipe, RecipeError with all findings, or
    UsageError for an unknown platform.
    """
    return on_platform(recipe if isinstance(recipe, Recipe) else complete(read(recipe)), platform)


def read(recipe: str | os.PathLike[str]) -> LoadedRecipe:
    """What the file of a path or of a catalogue name says. Raises as `load` does."""
    return load_file(recipe, registry.recipe_schema())


def complete(loaded: LoadedRecipe) -> Recipe:
    """Fill in what the file leaves out. Reads only the recipe's folder, its lock and its models' folders."""
    file, folder = loaded.file, loaded.path.resolve().parent
    rules: PlatformTraits = registry.rules_of(file.platform.name)
    platform = rules.fill_in(file.platform)
    engine = engine_registry.engine_rules(file.engine.name).fill_in(
        file.engine, file.speculation.method, next(iter(platform.types), "")
    )
    engine_rules: EngineRules = engine_registry.engine_rules(engine.name)
    sections: dict[str, Any] = {key: getattr(file, key) for key in RecipeFile.model_fields}
    sections |= {
        "target": file.target.edit(model=model_source(file.target.model, folder).model),
        "speculation": _speculation(file.speculation, engine, engine_rules, folder),
        "training": _training(file.training, file.speculation.method, folder),
        "engine": engine,
        "container": _container(file.container, folder),
        "platform": platform,
        "workloads": {name: Path(absolute(folder, path)) for name, path in file.workloads.items()},
    }
    recipe = Recipe(
        **sections,
        path=loaded.path,
        engine_rules=engine_rules,
        platform_rules=rules,
        lines={_with_dashes(path): line for path, line in loaded.lines.items()},
        left_open=frozenset(_left_open(file)),
    )
    return _with_choices(recipe)


def on_platform(recipe: Recipe, name: str | None) -> Recipe:
    """The recipe on another platform; None keeps its own. Raises UsageError for an unknown one."""
    if name in (None, recipe.platform.name):
        return recipe
    rules: PlatformTraits = registry.rules_of(name)
    here = recipe.platform.edit(name=name)
    platform = rules.facts.adopt(here) if rules.facts.adopt else here
    lines = {path: line for path, line in recipe.lines.items() if path != _CLUSTER}
    if INSTANCE_TYPES in recipe.left_open:
        platform = rules.fill_in(platform.edit(instance_types=None))
    args = {flag: value for flag, value in recipe.engine.args.items() if f"engine.args.{flag}" not in recipe.chosen}
    version = None if VERSION in recipe.chosen else recipe.engine.version
    engine = recipe.engine.edit(args=args, version=version)
    return _with_choices(
        replace(recipe, platform=platform, platform_rules=rules, engine=engine, lines=lines, chosen={})
    )


def _left_open(file: RecipeFile) -> Iterator[str]:
    if not file.engine.version:
        yield VERSION
    if not file.platform.instance_types:
        yield INSTANCE_TYPES


def _speculation(
    written: SpeculationSection, engine: EngineSection, rules: EngineRules, folder: Path
) -> SpeculationSection | None:
    if written.method == methods.BASELINE:
        return None
    k = written.num_speculative_tokens or rules.default_tokens(engine, written.method)
    model = model_source(written.model, folder).model if written.model else None
    return written.edit(num_speculative_tokens=k, model=model)


def _container(written: str | ContainerSection, folder: Path) -> ContainerSection | None:
    if isinstance(written, str):
        return ContainerSection() if written == "custom" else None
    return written.edit(dockerfile=absolute(folder, written.dockerfile)) if written.dockerfile else written


def _training(written: TrainingSection | None, method: str, folder: Path) -> TrainingSection | None:
    if written is None:
        return None
    data = [_data_source(item, folder) for item in written.data]
    start = model_source(written.start_from, folder).model if written.start_from else None
    head = model_source(written.head, folder).model if written.head else None
    return written.filled(method).edit(data=data, start_from=start, head=head)


def _data_source(written: str | SharedSource, folder: Path) -> str | SharedSource:
    if isinstance(written, SharedSource):
        return written.edit(source=_data_source(written.source, folder))
    return written if "://" in written else absolute(folder, written)


def _with_dashes(path: str) -> str:
    """The path of a key with engine flags as `engine.args` holds them, however they are written."""
    above, args, flag = path.partition("engine.args.")
    return f"{above}{args}{flag.replace('_', '-')}"


def _with_choices(recipe: Recipe) -> Recipe:
    """The recipe with a version and an instance type where it leaves them open, and the reasons in `chosen`.

    A JumpStart model's instance type is JumpStart's to choose.
    """
    if recipe.leaves_instance_type_open:
        recipe = replace(recipe, platform=recipe.platform.on(_OF_JUMPSTART))
    elif not recipe.left_open:
        return recipe
    leaves_type = INSTANCE_TYPES in recipe.left_open and recipe.target.kind != "jumpstart"
    leaves_type &= recipe.platform_rules.facts.has_instance_types
    if recipe.engine.version and not leaves_type:
        return recipe
    models = known_facts(recipe)
    if not recipe.engine.version:
        recipe = _with_version(recipe, models)
    return _with_instance_type(recipe, models) if leaves_type else recipe


def able_types(recipe: Recipe) -> list[Instance]:
    """Instance types of the recipe's platform and region that its engine runs on, the cheapest first."""
    region = recipe.region
    able = [item for item in recipe.platform_rules.instances() if recipe.engine_rules.runs_on(item)]
    in_region = [item for item in able if not (region and item.regions) or region in item.regions]
    return sorted(in_region, key=lambda item: (_price(item, region), item.name))


def _price(instance: Instance, region: str | None) -> float:
    price = instance.price(region)
    return price.usd_per_hour if price else float("inf")


def _with_version(recipe: Recipe, models: Lock | None) -> Recipe:
    """With the newest version that has no error. If each has one, with the newest: the checks then say its errors."""
    released, refused = versions(recipe), ""
    for version in released:
        here = _at(recipe, version)
        errors = (each for each in here.engine_rules.check(here, models) if each.severity == "error")
        wrong = next(errors, None)
        if wrong is None:
            why = "the newest that works" if refused else "the newest with an image there"
            return _choose(here, VERSION, f"{recipe.engine.name} {version}: {why}{refused}")
        refused = refused or f"; {version} does not: {wrong.message}"
    newest = next(iter(released), "0.0.0")
    return _choose(_at(recipe, newest), VERSION, f"{recipe.engine.name} {newest}: the newest; none works")


def _at(recipe: Recipe, version: str) -> Recipe:
    return replace(recipe, engine=recipe.engine.edit(version=version))


def _with_instance_type(recipe: Recipe, models: Lock | None) -> Recipe:
    """With the cheapest type that fits its models. If none is known to fit, with the cheapest of all."""
    runs = able_types(recipe)
    if not runs:
        why = f"{recipe.engine.name} runs on no type of that platform and region"
        return _choose(_on(recipe, recipe.platform_rules.instances()[0].name), INSTANCE_TYPES, why)
    hardware = recipe.engine_rules.hardware
    able = [item for item in runs if hardware is None or hardware.drafts_on(recipe, item)] or runs
    if recipe.engine.args.get("dtype") == "bfloat16":
        able = [item for item in able if item.has_bfloat16] or able
    fitting = _fitting(recipe, models, able)
    if not fitting:
        why = "nothing fits" if models else f"the size of {recipe.target} is not known; run: toolkit lock {recipe.path}"
        enough = next((item for item in able if has_enough(recipe, item)), able[0])
        return _choose(_on(recipe, enough.name), INSTANCE_TYPES, f"{enough.name}: {why}")
    first, *others = fitting
    also = f"; others that fit: {', '.join(map(_offer, others[:3]))}" if others else ""
    return _choose(
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


def _on(recipe: Recipe, instance_type: str, tensor_parallel: int = 1) -> Recipe:
    here = replace(recipe, platform=recipe.platform.on(instance_type))
    if tensor_parallel == 1 or TENSOR_PARALLEL in recipe.engine.args:
        return here
    why = f"{tensor_parallel}: as many as the models need there"
    return _choose(divided(here, tensor_parallel), f"engine.args.{TENSOR_PARALLEL}", why)


def _offer(found: Fit) -> str:
    return f"{found.instance} ({dollars_per_hour(found.price_per_hour)})"


def _choose(recipe: Recipe, key: str, why: str) -> Recipe:
    return replace(recipe, chosen={**recipe.chosen, key: why})
