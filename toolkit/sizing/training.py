"""What training a head needs: memory of one accelerator and disk. Estimates, which no GPU has confirmed."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.recipe.training_schema import TrainingSection
from toolkit.sizing.shape import Shape

# Mixed precision with Adam: bf16 weight and gradient, float32 weight, momentum and variance (ZeRO, arXiv 1910.02054).
_BYTES_PER_PARAMETER = 16
# P-EAGLE keeps this share of the positions of one depth at the next (arXiv 2602.01469, conditional drop).
_KEPT = 0.8
# bf16 logits and their float32 softmax and gradient.
_BYTES_PER_LOGIT = 10
# bf16 activations of one decoder layer per position, in hidden sizes (arXiv 2205.05198, flash attention).
_HIDDEN_SIZES_PER_LAYER = 34
_STATE_BYTES = 2
# Layers of the target that a head reads.
_TAPS = 3
# UTF-8 of English text and JSON with usual vocabularies; other languages take fewer.
_BYTES_PER_TOKEN = 3.5


@dataclass(frozen=True)
class TrainingSize:
    """Parameters of the head, and bytes on one accelerator while it trains."""

    parameters: int
    memory_bytes: int


def training_size(target: Shape, training: TrainingSection) -> TrainingSize:
    """The size of a head for that target; it has the target's hidden size, heads and intermediate size.

    The target's own weights are not in it: its hidden states are computed before the head trains.
    """
    hidden, drafted = target.hidden, training.draft_vocab_size or target.vocabulary
    layer = target.layers[0]
    attention = hidden * (2 * target.heads * layer.key_size + 2 * layer.kv_heads * layer.key_size)
    intermediate = target.intermediate or 4 * hidden
    per_layer = attention + 3 * hidden * intermediate
    # Layer 0 reads the token's embedding beside the hidden state.
    parameters = (
        training.layers * per_layer
        + hidden * (target.heads + 2 * layer.kv_heads) * layer.key_size
        + _TAPS * hidden * hidden
        + (target.vocabulary + drafted) * hidden
    )
    positions = training.max_length * sum(_KEPT**depth for depth in range(training.depth)) / training.partitions
    per_position = _HIDDEN_SIZES_PER_LAYER * hidden * training.layers + _BYTES_PER_LOGIT * drafted
    states = state_bytes(hidden)
    memory = parameters * _BYTES_PER_PARAMETER + positions * per_position + training.max_length * states
    return TrainingSize(parameters, round(memory))


def state_bytes(hidden: int) -> int:
    """Bytes of one token's hidden states, in bfloat16: of the layers that the head reads, and the last one."""
    return (_TAPS + 1) * hidden * _STATE_BYTES


def most_tokens(rows: int, size: int, training: TrainingSection) -> int:
    """Tokens that rows of data with so many bytes give at most, with the target's answers where it gives new ones."""
    answer = training.max_new_tokens if training.responses != "keep" else 0
    return rows * min(training.max_length, round(size / rows / _BYTES_PER_TOKEN) + answer)
