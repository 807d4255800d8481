"""How long a training job may take, by arithmetic. Unverified: no such job has been timed on GPUs.

Numbers of multiplications are what they are (2 for each weight that a token passes, 6 where it is learned); which share
of its peak a GPU reaches is a guess, so a range is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.catalog.lookup import Instance
from toolkit.checks.training import head_parameters, kept_positions, local_tokens, state_bytes
from toolkit.checks.training_target import machines, split_of
from toolkit.errors import ToolkitError
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.training_schema import EPOCHS, TrainingSection
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import active_parameters

# Dense bfloat16 (float16 where there is none), in 10^12 operations a second: NVIDIA's data sheets.
_PEAKS: Mapping[str, float] = {
    "T4": 65, "V100": 125, "A10G": 70, "L4": 121, "L40S": 362, "A100": 312, "H100": 989, "H200": 989,
    "B200": 2250, "GB200": 2250, "B300": 2250,
}  # fmt: skip
_SHARES = (0.5, 0.1)
# Answering is bound by memory, not by arithmetic.
_ANSWERING_SHARES = (0.1, 0.01)
_SECONDS = 3600


@dataclass(frozen=True)
class Expected:
    """Least and most hours of a job with so many tokens of data, and the bytes of its hidden states."""

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
    states = tokens * state_bytes(target.hidden_size)
    ask = recipe.platform_rules.facts.training_disk
    room = ask(recipe).free_bytes if ask else states
    bound = min(room, training.states_gb * 1e9) if training.states_gb else room
    parts = -int(-states // bound)
    try:
        least, most = (_hours(recipe, training, target, tokens, parts, instance, one) for one in (0, 1))
    except ToolkitError:
        return None
    return Expected(least, most, tokens, states, parts, f"{instance.accelerator_count} {instance.accelerator}")


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
    epochs = training.steps * training.batch_tokens / tokens if training.steps else training.epochs or EPOCHS
    learned = head_parameters(shape, training) - shape.vocabulary * shape.hidden
    peak = _PEAKS[instance.accelerator] * 1e12
    reading = peak * (split_of(recipe, training, target, instance) or 1)
    times_read = epochs if parts > 1 else 1
    seconds = 2 * active * tokens * times_read / (reading * _SHARES[guess])
    seconds += (
        6 * learned * tokens * epochs * kept_positions(training) / (peak * instance.accelerator_count * _SHARES[guess])
    )
    if training.responses == "target":
        seconds += 2 * active * tokens / (reading * _ANSWERING_SHARES[guess])
    return seconds / _SECONDS
