"""The settings of a recipe that determine memory use."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.sizing.kv_cache import GROUP_FACTOR


@dataclass(frozen=True)
class Settings:
    """The engine's settings. None means the engine's default for the device, or the model's limit.

    `steps_in_flight` is the number of concurrent steps, whose tokens a sliding window keeps in addition.
    """

    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    num_speculative_tokens: int
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    tensor_parallel: int | None = None
    enforce_eager: bool = False
    hybrid_kv_cache: bool = True
    steps_in_flight: int = 2
    expert_parallel: bool = False
    kv_group_factor: float = GROUP_FACTOR
