"""The KV cache as vLLM plans it: layers in groups, memory in blocks, requests in blocks of every group.

Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py (get_kv_cache_groups, get_kv_cache_capacity) and
vllm/v1/kv_cache_interface.py (max_admission_blocks_per_request).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from toolkit.errors import ToolkitError
from toolkit.sizing.shape import Attention, State

GPU_BLOCK_SIZE, CPU_BLOCK_SIZE = 16, 128
"""Default tokens per block (config/cache.py, platforms/cpu.py)."""

GROUP_FACTOR = 1.5
"""Below this ratio, groups have the size of the largest kind of layer, not the smallest; 1.25 before vLLM 0.18.1."""

KV_DTYPE_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("bfloat16", "float16"), 2),
}
"""Bytes of a cached value, by the engine's `--kv-cache-dtype` other than `auto`."""


@dataclass(frozen=True)
class Group:
    """Layers that share one block table: `block_size` tokens per block, kept as long as `attention` needs them.

    `states` is the number of states that a layer without attention keeps of each request: a block for each.
    """

    attention: Attention
    layers: int
    block_size: int
    states: int = 0

    def blocks_per_request(self, tokens: int, in_flight_tokens: int) -> int:
        """Maximum blocks of a request of `tokens`. A sliding window also keeps the tokens of running steps."""
        if self.attention.kind == "state":
            return self.states
        if self.attention.kind == "sliding":  # plus one, because a window may begin inside a block
            return _blocks(min(self.attention.reach - 1 + in_flight_tokens, tokens), self.block_size) + 1
        if self.attention.kind == "chunked":
            return _blocks(min(self.attention.reach + in_flight_tokens, tokens), self.block_size)
        return _blocks(tokens, self.block_size)


@dataclass(frozen=True)
class KVCache:
    """KV cache of one accelerator. A block has `bytes_per_block` in every group.

    Lookahead slots for draft tokens need no memory at full length: vLLM cuts them off at `max_model_len`.
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    in_flight_tokens: int

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks of a request of `tokens`, over all groups."""
        return sum(group.blocks_per_request(tokens, self.in_flight_tokens) for group in self.groups)

    def blocks(self, memory: int) -> int:
        """Number of blocks in `memory` bytes."""
        return max(0, memory // self.bytes_per_block)

    def max_concurrency(self, memory: int, max_model_len: int) -> float:
        """vLLM's "Maximum concurrency for `max_model_len` tokens per request"."""
        return self.blocks(memory) / self.blocks_per_request(max_model_len)

    def tokens(self, memory: int, max_model_len: int) -> int:
        """vLLM's "KV cache size": requests of full length times their length.

        Versions up to 0.20 log blocks per group times block size instead, which is less exact with sliding windows.
        """
        return int(self.max_concurrency(memory, max_model_len) * max_model_len)

    def bytes_for(self, tokens: int) -> int:
        """Bytes that one request of `tokens` needs, including the one block that vLLM reserves."""
        return (self.blocks_per_request(tokens) + 1) * self.bytes_per_block

    def largest_context(self, memory: int, limit: int) -> int:
        """Tokens of the longest request that fits by itself, at most `limit`; 0 if none does."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.bytes_for(middle) <= memory else (low, middle - 1)
        return low


def plan(
    layers: Sequence[Attention],
    *,
    value_bytes: int,
    block_size: int,
    in_flight_tokens: int,
    tensor_parallel: int = 1,
    hybrid: bool = True,
    group_factor: float = GROUP_FACTOR,
    states: States | None = None,
) -> KVCache:
    """The cache of all layers, including the drafter's, on one of `tensor_parallel` accelerators.

    `value_bytes` is the size of a cached value, `in_flight_tokens` the tokens of concurrent steps. Without
    `hybrid` (vLLM's hybrid KV cache manager) every layer keeps every token. `states` says what layers without attention
    keep; without it there are none.
    """
    if any(layer.state for layer in layers):
        states = states or States(value_bytes)
        block_size = _for_states(layers, states, value_bytes, block_size, tensor_parallel)
    elif not hybrid and len({attention.kind for attention in layers}) > 1:
        layers = [Attention(layer.kv_heads, layer.key_size, layer.value_size) for layer in layers]

    def page(attention: Attention) -> int:
        if attention.state and states:
            return states.bytes_of(attention.state, tensor_parallel)
        heads = attention.kv_heads_per_rank(tensor_parallel)
        token = heads * (attention.key_size + attention.value_size) * value_bytes + attention.index
        return token * block_size

    if (
        len({(layer.kind, layer.reach) for layer in layers}) == 1
    ):  # one block table for all layers; pages may differ in size
        return KVCache((Group(layers[0], len(layers), block_size),), sum(map(page, layers)), in_flight_tokens)
    largest = max(map(page, layers))
    counts = Counter(layers)
    size = _group_size(counts.values(), group_factor)
    kept = states.kept if states else 0
    groups = tuple(
        Group(attention, layers_in_group, _unified_block_size(block_size, page(attention), largest), kept)
        for attention, count in counts.items()
        for layers_in_group in _split(count, size)
    )
    return KVCache(groups, size * largest, in_flight_tokens)


@dataclass(frozen=True)
class States:
    """How layers without attention keep their states: bytes of a value, and states of each request.

    `own_bytes` are those of a recurrence, by its dtype if that is not the model's. A request has a state, one more for
    each draft token, and with prefix caching one that is being left; the convolution has `draft_tokens` more tokens.
    """

    value_bytes: int
    own_bytes: int | None = None
    draft_tokens: int = 0
    prefix_caching: bool = False

    @property
    def kept(self) -> int:
        return 1 + self.draft_tokens + self.prefix_caching

    def bytes_of(self, state: State, tensor_parallel: int) -> int:
        """Of one layer on one of the accelerators (MambaStateShapeCalculator)."""
        own = self.own_bytes or STATE_BYTES.get(state.dtype, self.value_bytes)
        convolution = state.channels // tensor_parallel * (state.window + self.draft_tokens) * self.value_bytes
        return convolution + state.heads // tensor_parallel * state.per_head * own


STATE_BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}


def _for_states(
    layers: Sequence[Attention], states: States, value_bytes: int, block_size: int, tensor_parallel: int
) -> int:
    """Tokens of a block of attention that is no smaller than a state (platforms/interface.py, _align_hybrid…)."""
    sizes = [states.bytes_of(layer.state, tensor_parallel) for layer in layers if layer.state]
    tokens = [
        layer.kv_heads_per_rank(tensor_parallel) * (layer.key_size + layer.value_size) * value_bytes
        for layer in layers
        if not layer.state
    ]
    return block_size * ceil(max(sizes) / (block_size * max(tokens))) if tokens else block_size


def value_bytes(flag: str, dtype_bytes: int) -> int:
    """Bytes of a cached value for the engine's `--kv-cache-dtype`; `auto` is the model's dtype."""
    if flag == "auto":
        return dtype_bytes
    if flag not in KV_DTYPE_BYTES:
        known = ", ".join(["auto", *KV_DTYPE_BYTES])
        raise ToolkitError(f"cannot estimate memory with kv-cache-dtype {flag}", hint=f"Supported: {known}.")
    return KV_DTYPE_BYTES[flag]


def _group_size(counts: Collection[int], factor: float) -> int:
    """Layers per group: as many as the rarest kind has, or the most frequent kind if that wastes little padding."""
    return max(counts) if max(counts) < min(counts) * factor else min(counts)


def _split(layers: int, size: int) -> list[int]:
    """Sizes of the groups into which one kind of layer is split."""
    groups = -(-layers // size)
    return [len(range(first, layers, groups)) for first in range(groups)]


def _unified_block_size(block_size: int, page: int, largest: int) -> int:
    """All groups have one page size: smaller pages get more tokens, or padding if the sizes are not multiples."""
    return block_size * largest // page if largest % page == 0 else block_size


def _blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)
