"""What a training job needs, before it starts: hours, and the memory of this machine where it runs here.

Hours are arithmetic. Unverified: no such job has been timed on GPUs. Numbers of multiplications are what they are (2
for each weight that a token passes, 6 where it is learned); which share of its peak a GPU reaches is a guess, so a
range is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolkit.catalog.lookup import Instance
from toolkit.checks.training import head_parameters, kept_positions, training_bytes
from toolkit.checks.training_fit import local_tokens, parts_of, split_of, state_bytes, states_room
from toolkit.errors import PlatformError, ToolkitError
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import heads_of
from toolkit.recipe.training_schema import EPOCHS, TrainingSection
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import active_parameters, rank_bytes, serving_dtype
from toolkit.training.job import IN_PARTS
from toolkit.training.plan import machines, step_tokens

# Dense bfloat16 (float16 where there is none), in 10^12 operations a second: NVIDIA's data sheets.
_PEAKS: Mapping[str, float] = {
    "T4": 65, "V100": 125, "A10G": 70, "L4": 121, "L40S": 362, "A100": 312, "H100": 989, "H200": 989,
    "B200": 2250, "GB200": 2250, "B300": 2250,
}  # fmt: skip
_SHARES = (0.5, 0.1)
# Answering is bound by memory, not by arithmetic.
_ANSWERING_SHARES = (0.1, 0.01)
_SECONDS = 3600
# Of a machine with its image, and of the target before each part of its states: guesses.
_START_SECONDS, _PART_SECONDS = (120, 600), (30, 300)


@dataclass(frozen=True)
class Expected:
    """Least and most hours of a job with so many tokens of data, and the bytes of its hidden states.

    `parts` is 0 where not even a step's states fit the disk.
    """

    least: float
    most: float
    tokens: int
    states: int
    parts: int
    machine: str


def expected(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Expected | None:
    """None where data, target or machine are not known."""
    tokens, known = local_tokens(training), machines(recipe, training)
    instance = next((one for one in known if one.accelerator in _PEAKS), None)
    if not tokens or instance is None:
        return None
    states = tokens * state_bytes(recipe, target)
    ask = recipe.platform_rules.facts.training_disk
    parts = parts_of(recipe, tokens, training, target, states_room(recipe, ask(recipe), target) if ask else math.inf)
    try:
        least, most = (_hours(recipe, training, target, tokens, parts, instance, one) for one in (0, 1))
    except ToolkitError:
        return None
    machine = f"{instance.accelerator_count} {instance.accelerator}"
    count = training.machine_count
    return Expected(least, most, tokens, states, parts, f"{count} machines of {machine}" if count > 1 else machine)


def _hours(
    recipe: Recipe,
    training: TrainingSection,
    target: ModelFacts,
    tokens: int,
    parts: int,
    instance: Instance,
    guess: int,
) -> float:
    shape, active = shape_of(target), active_parameters(target)
    epochs = training.steps * step_tokens(recipe, training) / tokens if training.steps else training.epochs or EPOCHS
    heads = heads_of(recipe)
    embedding = shape.vocabulary * shape.hidden
    learned = sum((head_parameters(head, shape, active=True) - embedding) * kept_positions(head) for head in heads)
    peak = _PEAKS[instance.accelerator] * 1e12
    reading = peak * (split_of(recipe, training, target, instance) or 1)
    # What does not fit is computed again in each epoch, and for each head that is compared.
    times_read = epochs * len(heads) if parts > 1 else 1
    seconds = _START_SECONDS[guess] + _PART_SECONDS[guess] * parts * times_read
    # Every machine reads all that it learns from; what they learn is divided.
    seconds += 2 * active * tokens * times_read / (reading * _SHARES[guess])
    learning = peak * instance.accelerator_count * training.machine_count
    seconds += 6 * learned * tokens * epochs / (learning * _SHARES[guess])
    if training.responses == "target":
        seconds += 2 * active * tokens / (reading * _ANSWERING_SHARES[guess])
    return seconds / _SECONDS


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
