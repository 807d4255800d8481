"""Does the target fit the accelerators of the training job, where it answers and gives hidden states?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.training_schema import TrainingSection
from toolkit.sizing.fit import TENSOR_PARALLEL
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import rank_bytes, serving_dtype
from toolkit.training.plan import machines
from toolkit.training.split import fewest, sizes, weights_room

_GIB = 1024**3
_OFFERED = 3


def check_target_memory(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    """An error for weights alone that do not fit. The target is loaded, whoever gives its answers."""
    try:
        for instance in machines(recipe, training):
            if split_of(recipe, training, target, instance):
                continue
            split = _sizes(recipe, training, target, instance)[-1]
            needed, room = _rank_bytes(recipe, target, split), weights_room(instance.usable_bytes)
            over = f"each of the {split} accelerators that share them" if split > 1 else "one accelerator"
            message = (
                f"the target's weights take {needed / _GIB:.1f} GiB on {over} ({instance.name}), and there they can "
                f"have {room / _GIB:.1f}: the rest is for its work"
            )
            yield Finding("training.target-memory", message, training.types_key, hint=_hint(recipe, training, target))
    except (ToolkitError, ValueError):
        return  # another check says that the size, or the flag's value, is not known


def _hint(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> str:
    """Types that hold the target when the engine divides it, the recipe's own first."""
    divided, own = training.edit(states="engine"), training.types or recipe.platform.types[:1]
    able = [
        (one.name not in own, one.accelerator_count * one.usable_bytes, one.name)
        for one in recipe.platform_rules.instances()
        if recipe.engine_rules.runs_on(one) and one.accelerator and split_of(recipe, divided, target, one)
    ]
    named = ", ".join(name for *_, name in sorted(able)[:_OFFERED]) or "none is known"
    begin = "Set" if training.states == "engine" else "Write `states: engine`, which divides the target, and set"
    return f"{begin} `{training.types_key}` to a type with enough memory: {named}."


def split_of(recipe: Recipe, training: TrainingSection, target: ModelFacts, instance: Instance) -> int | None:
    """Over how many accelerators of that instance the job divides the target; None if it does not fit.

    As `engines/vllm/job_arguments` does it there: over as few as hold it, and at least as many as serve it.
    """
    able = _sizes(recipe, training, target, instance)
    return fewest(able, lambda size: _rank_bytes(recipe, target, size), instance.usable_bytes)


def _sizes(recipe: Recipe, training: TrainingSection, target: ModelFacts, instance: Instance) -> list[int]:
    if training.states == "transformers":
        return [1]
    shape, least = shape_of(target), int(str(recipe.engine.args.get(TENSOR_PARALLEL, 1)))
    return sizes(shape.heads, shape.layers[0].kv_heads, least, instance.accelerator_count)


def _rank_bytes(recipe: Recipe, target: ModelFacts, split: int) -> int:
    return rank_bytes(target, split, serving_dtype(shape_of(target), str(recipe.engine.args.get("dtype", "auto"))))
