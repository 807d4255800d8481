"""Over how many GPUs a training job divides its target: one rule, for `check` and for the job itself."""

from __future__ import annotations

from collections.abc import Callable

# Of a GPU's memory: the rest is for the KV cache, the states beside it, and what the target computes in.
_WEIGHTS_SHARE = 0.85


def sizes(heads: int, kv_heads: int, least: int, gpus: int) -> list[int]:
    """In how many parts vLLM divides a model: query heads evenly, KV heads evenly or each copied equally often."""
    found = [
        size
        for size in range(min(least, gpus), gpus + 1)
        if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    ]
    return found or [min(least, gpus)]


def fewest(sizes: list[int], weight_bytes: Callable[[int], float], gpu_bytes: float) -> int | None:
    """The fewest parts of which each GPU holds one, of so many bytes, with room for its work; None if none do."""
    return next((size for size in sizes if weight_bytes(size) <= weights_room(gpu_bytes)), None)


def weights_room(gpu_bytes: float) -> float:
    """What weights may take of a GPU's memory."""
    return _WEIGHTS_SHARE * gpu_bytes
