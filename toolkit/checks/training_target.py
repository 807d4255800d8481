"""Does the target fit the accelerators of the training job, where it answers and gives hidden states?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.training_schema import TrainingSection
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import rank_bytes, serving_dtype

_GIB = 1024**3
_SPLIT = "tensor-parallel-size"
# Of a GPU's memory vLLM takes so much by default.
_SHARE = 0.92
_OFFERED = 3


def machines(recipe: Recipe, training: TrainingSection) -> list[Instance]:
    """The instances that the job may have, as far as they are known and have accelerators."""
    if not recipe.platform_rules.facts.has_instance_types:
        return []
    found = map(recipe.platform_rules.instance, training.types or recipe.platform.types[:1])
    return [instance for instance in found if instance and instance.memory_per_accelerator_mib]


def check_target_memory(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    """An error for weights alone that do not fit. The target is loaded, whoever gives its answers."""
    try:
        for instance in machines(recipe, training):
            if split_of(recipe, training, target, instance):
                continue
            splits = _splits(recipe, training, target, instance)
            needed, room = _rank_bytes(recipe, target, splits[-1]), _room(instance)
            message = (
                f"the target's weights take {needed / _GIB:.0f} GiB of each accelerator that the job divides them over "
                f"({splits[-1]} of {instance.name}), and {room / _GIB:.0f} can be had there"
            )
            yield Finding("training.target-memory", message, training.types_key, hint=_hint(recipe, training, target))
    except (ToolkitError, ValueError):
        return  # another check says that the size, or the flag's value, is not known


def _hint(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> str:
    able = [
        (one.accelerator_count * one.usable_bytes, one.name)
        for one in recipe.platform_rules.instances()
        if recipe.engine_rules.runs_on(one) and one.accelerator and split_of(recipe, training, target, one)
    ]
    named = ", ".join(name for _, name in sorted(able)[:_OFFERED]) or "none is known"
    other = ", or `states: engine`, which divides the target" if training.states == "transformers" else ""
    return f"Set `{training.types_key}` to a type with more memory: {named}{other}."


def split_of(recipe: Recipe, training: TrainingSection, target: ModelFacts, instance: Instance) -> int | None:
    """Over how many accelerators of that instance the job divides the target; None if it does not fit.

    As `engines/vllm/job_arguments` does it there: over as few as hold it, and at least as many as serve it.
    """
    sizes = _splits(recipe, training, target, instance)
    return next((size for size in sizes if _rank_bytes(recipe, target, size) <= _room(instance)), None)


def _splits(recipe: Recipe, training: TrainingSection, target: ModelFacts, instance: Instance) -> list[int]:
    if training.states == "transformers":
        return [1]
    heads, count = shape_of(target).heads, instance.accelerator_count
    least = min(int(str(recipe.engine.args.get(_SPLIT, 1))), count)
    return [size for size in range(least, count + 1) if heads % size == 0] or [least]


def _rank_bytes(recipe: Recipe, target: ModelFacts, split: int) -> int:
    return rank_bytes(target, split, serving_dtype(shape_of(target), str(recipe.engine.args.get("dtype", "auto"))))


def _room(instance: Instance) -> float:
    return instance.usable_bytes * _SHARE
