"""Does a training job fit the memory of this machine, before it starts: the target as it answers, and the training."""

from __future__ import annotations

from collections.abc import Callable

from toolkit.checks.training import training_bytes
from toolkit.errors import PlatformError, ToolkitError
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import heads_of
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import rank_bytes, serving_dtype
from toolkit.training.job import IN_PARTS

_GIB = 1024**3
# The job and its engine with their libraries: two processes.
_PROGRAMS_BYTES = 2 * _GIB


def require_memory(recipe: Recipe, target: ModelFacts, free: int, say: Callable[[str], None]) -> None:
    """Raise PlatformError if the target cannot answer beside what others use; `say` if training may not fit."""
    assert recipe.training
    try:
        shape = shape_of(target)
        weights = rank_bytes(target, 1, serving_dtype(shape, str(recipe.engine.args.get("dtype", "auto"))))
        heads = heads_of(recipe)
        trained = max(training_bytes(head, shape) for head in heads) + _PROGRAMS_BYTES / 2
    except ToolkitError:
        return  # a check has said that its size is unknown
    cpu = recipe.engine_rules.cpu
    cache = cpu.reserved_bytes(recipe.engine.args) if cpu and recipe.training.responses == "target" else 0
    needed = weights + cache + _PROGRAMS_BYTES
    room = f"{free / _GIB:.1f} are free"
    if needed > free:
        of = f"{weights / _GIB:.1f} GiB of weights, " + (f"{cache / _GIB:.1f} of KV cache, " if cache else "")
        message = (
            f"the target needs about {needed / _GIB:.1f} GiB of this machine's memory as it answers ({of}the rest "
        )
        lower = ", lower what engine.args reserve" if cache else ""
        others = "other programs (of the local platform's: toolkit local stop)"
        hint = f"End {others}{lower}, or train elsewhere: add --platform sagemaker"
        raise PlatformError(f"{message}for programs), and {room}", hint=hint)
    if trained > free:
        estimate = f"training may need {trained / _GIB:.1f} GiB (an estimate, for sequences of training.max_length)"
        parts = ", or more `partitions`," if any(head.method in IN_PARTS for head in heads) else ""
        say(f"{estimate}, and {room}: a smaller `max_length` or `draft_vocab_size`{parts} takes less")
