"""The memory that vLLM takes where the recipe does not say: one rule for endpoints of this machine and for answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# vLLM writes to the whole KV cache when it makes it, and an endpoint may have several variants.
_KV_CACHE_SHARE, _MOST_KV_CACHE_BYTES = 0.25, 8 * 1024**3
# vLLM's own default, and what others may still take of a GPU while it starts.
_GPU_SHARE, _OF_FREE = 0.92, 0.95
_KV_CACHE, _UTILIZATION = "kv-cache-memory-bytes", "gpu-memory-utilization"


def kv_cache_bytes(free_bytes: int) -> int:
    """Of the KV cache on a CPU."""
    return round(min(free_bytes * _KV_CACHE_SHARE, _MOST_KV_CACHE_BYTES))


def reserved_bytes(args: Mapping[str, Any]) -> int:
    """What a recipe's flags say of it; 0 if nothing."""
    return int(args.get(_KV_CACHE, 0))


def limits(args: Mapping[str, Any], free_bytes: int, gpu: tuple[int, int] | None) -> dict[str, Any]:
    """Arguments of vLLM's LLM that bound its memory: those of the recipe, else by what is free.

    `gpu` is a GPU's memory, (free, all), None on a CPU. By default vLLM asks for 92 % of either, and does not start
    where others have some of that.
    """
    said = {flag.replace("-", "_"): args[flag] for flag in (_KV_CACHE, _UTILIZATION) if flag in args}
    if said:
        return said
    if gpu is None:
        return {"kv_cache_memory_bytes": kv_cache_bytes(free_bytes)}
    free, every = gpu
    return {"gpu_memory_utilization": round(min(_GPU_SHARE, _OF_FREE * free / every), 3)}
