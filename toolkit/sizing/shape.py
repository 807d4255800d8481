"""The sizes of a model that determine its memory use, read from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from toolkit.errors import ToolkitError
from toolkit.recipe.facts import ModelFacts

AttentionKind = Literal["full", "sliding", "chunked", "state"]
_KINDS: Mapping[str, AttentionKind] = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "attention": "full",
    "linear_attention": "state",
    "mamba": "state",
}
# Nemotron-H's word for the same: layers without a letter of these have no cache.
_LETTERS: Mapping[str, AttentionKind] = {"M": "state", "*": "full"}
_WITHOUT_CACHE = ("moe", "mlp")


@dataclass(frozen=True)
class State:
    """What a layer keeps of the text so far, in a fixed size: of a convolution and of a recurrence.

    `channels` pass through a convolution of `window` tokens before the one at hand; each of `heads` has `per_head`
    values. `inner` is the width of what the layer computes. `dtype` is the recurrence's own; empty where it is the
    model's.
    """

    channels: int
    window: int
    heads: int
    per_head: int
    inner: int
    dtype: str = ""


@dataclass(frozen=True)
class Attention:
    """Attention of one layer, or the `state` that it has instead. `reach` is the window or chunk in tokens, else 0.

    MLA stores one latent vector for all heads: one KV head with keys of that size, and no values. `index` are the bytes
    of a token in the index by which sparse attention (DSA) chooses tokens.
    """

    kv_heads: int
    key_size: int
    value_size: int
    kind: AttentionKind = "full"
    reach: int = 0
    state: State | None = None
    index: int = 0

    def kv_heads_per_rank(self, tensor_parallel: int) -> int:
        """KV heads on one accelerator. vLLM copies heads if there are fewer heads than accelerators."""
        return max(1, self.kv_heads // tensor_parallel)


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, in values. `experts` is 0 for a dense model; `taps` counts the hidden states a head reads."""

    layers: tuple[Attention, ...]
    layers_sharing_kv: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    output_vocabulary: int
    tied: bool
    experts: int
    experts_per_token: int
    expert_intermediate: int
    dense_layers: int
    is_head: bool
    taps: int
    target_hidden: int
    quantization: Mapping[str, Any]
    stored_dtype: str
    max_position_embeddings: int

    @property
    def cached_layers(self) -> tuple[Attention, ...]:
        """Layers with their own KV cache: the last ones may share the cache of earlier layers (Gemma)."""
        return self.layers[: len(self.layers) - self.layers_sharing_kv]

    @property
    def quant_method(self) -> str:
        """`mxfp4`, `fp8`, ...; empty for an unquantized model."""
        return str(self.quantization.get("quant_method", ""))


@lru_cache(maxsize=256)
def shape_of(facts: ModelFacts) -> Shape:
    """The model's shape. Raises ToolkitError, which names the config key that is missing or unsupported."""
    # Heads in speculators' format have some keys outside of the decoder's config.
    config = {**facts.config, **facts.text_config}
    experts = _number(config, "num_experts", "num_local_experts", "n_routed_experts")
    intermediate = _number(config, "intermediate_size")
    quantization = facts.config.get("quantization_config") or config.get("quantization_config") or {}
    layers = _layers(facts.model, config)
    return Shape(
        layers=layers,
        layers_sharing_kv=_number(config, "num_kv_shared_layers"),
        hidden=facts.hidden_size,
        heads=_number(config, "num_attention_heads"),
        intermediate=intermediate,
        vocabulary=facts.vocab_size,
        output_vocabulary=_number(config, "draft_vocab_size") or facts.vocab_size,
        tied=bool(config.get("tie_word_embeddings", facts.config.get("tie_word_embeddings", False))),
        experts=experts,
        experts_per_token=_number(config, "num_experts_per_tok", "top_k_experts"),
        expert_intermediate=_number(config, "moe_intermediate_size") or intermediate,
        dense_layers=_dense_layers(config) if experts else len(layers),
        is_head=_is_head(config),
        taps=_taps(config),
        target_hidden=_number(config, "target_hidden_size") or facts.hidden_size,
        quantization=quantization if isinstance(quantization, Mapping) else {},
        stored_dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16"),
        max_position_embeddings=_number(config, "max_position_embeddings"),
    )


def _number(config: Mapping[str, Any], *keys: str) -> int:
    """The first of the keys with a number, else 0."""
    return next((int(config[key]) for key in keys if isinstance(config.get(key), int)), 0)


def _layers(model: str, config: Mapping[str, Any]) -> tuple[Attention, ...]:
    count = _number(config, "num_hidden_layers")
    if not count or not _number(config, "num_attention_heads"):
        missing = "num_attention_heads" if count else "num_hidden_layers"
        hint = "The memory estimate needs it. To read it from the hub: toolkit lock RECIPE"
        raise ToolkitError(f"{model}: its config has no `{missing}`", hint=hint)
    if not _number(config, "head_dim") and _number(config, "hidden_size") < _number(config, "num_attention_heads"):
        hint = "It must be the model's own config."
        raise ToolkitError(f"{model}: its config has more attention heads than hidden-state values", hint=hint)
    if config.get("compress_ratios"):
        hint = "Deploy once and read the engine's log."
        raise ToolkitError(f"{model}: cannot estimate the memory of attention that compresses its cache", hint=hint)
    return tuple(_attention(model, config, kind, layer) for layer, kind in enumerate(_kinds(model, config, count)))


def _attention(model: str, config: Mapping[str, Any], kind: AttentionKind, layer: int) -> Attention:
    if kind == "state":
        groups, state = _state(model, config)
        return Attention(groups, 0, 0, kind, state=state)
    latent = _number(config, "kv_lora_rank")
    if latent:
        return Attention(1, latent + _number(config, "qk_rope_head_dim"), 0, index=_index(config, layer))
    heads = _number(config, "num_attention_heads")
    size = _number(config, "head_dim") or _number(config, "hidden_size") // heads
    kv_heads = _number(config, "num_key_value_heads") or heads
    if kind == "full":  # Gemma 4's global layers have another head size and number of heads
        size = _number(config, "global_head_dim") or size
        kv_heads = _number(config, "num_global_key_value_heads") or kv_heads
        return Attention(kv_heads, size, size)
    reach = _number(config, "sliding_window" if kind == "sliding" else "attention_chunk_size")
    return Attention(kv_heads, size, size, kind, reach)


def _index(config: Mapping[str, Any], layer: int) -> int:
    """Bytes of a token: fp8, a scale for 128 values. Some layers take an earlier one's (vLLM 0.32, deepseek_v2.py)."""
    size = _number(config, "index_head_dim") if config.get("index_topk") else 0
    offset = _number(config, "index_skip_topk_offset") if "index_skip_topk_offset" in config else 2
    kept = max(layer - offset + 1, 0) % max(_number(config, "index_topk_freq"), 1) == 0
    if isinstance(pattern := config.get("index_topk_pattern"), str | list):
        kept = pattern[layer : layer + 1] not in ("S", ["S"])
    return size + size // 128 * 4 if kept else 0


def _state(model: str, config: Mapping[str, Any]) -> tuple[int, State]:
    """Groups of heads, which accelerators share, and the state, as vLLM 0.33's MambaStateShapeCalculator has it."""
    if _number(config, "linear_num_value_heads"):  # a gated delta net (Qwen3-Next, Qwen3.5 and later)
        keys, heads = _number(config, "linear_num_key_heads"), _number(config, "linear_num_value_heads")
        key, value = _number(config, "linear_key_head_dim"), _number(config, "linear_value_head_dim")
        window, inner = _number(config, "linear_conv_kernel_dim") - 1, heads * value
        own = str(config.get("mamba_ssm_dtype") or "")
        return keys, State(2 * keys * key + inner, window, heads, value * key, inner, own)
    heads = _number(config, "mamba_num_heads", "mamba_n_heads")
    size = _number(config, "ssm_state_size", "mamba_d_state")
    groups, width = _number(config, "n_groups", "mamba_n_groups"), _number(config, "mamba_head_dim", "mamba_d_head")
    if not (heads and size and groups and width):
        hint = "Supported: gated delta nets and Mamba 2, whose sizes toolkit lock RECIPE reads."
        raise ToolkitError(f"{model}: cannot estimate the memory of its layers without attention", hint=hint)
    inner, window = heads * width, _number(config, "conv_kernel", "mamba_d_conv") - 1
    nemotron = "float32" if str(config.get("model_type", "")).startswith("nemotron_h") else ""
    own = str(config.get("mamba_ssm_cache_dtype") or nemotron)
    return groups, State(inner + 2 * groups * size, window, heads, width * size, inner, own)


def _kinds(model: str, config: Mapping[str, Any], count: int) -> tuple[AttentionKind, ...]:
    """The kind of each layer, as vLLM's model classes read it from the config."""
    if isinstance(pattern := config.get("hybrid_override_pattern"), str):
        return tuple(_LETTERS[letter] for letter in pattern if letter in _LETTERS)
    types = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(types, list | tuple):
        types = [kind for kind in types if kind not in _WITHOUT_CACHE]
        unknown = sorted(set(types) - set(_KINDS))
        if unknown:
            known = "full, sliding and chunked attention, gated delta nets and Mamba 2"
            hint = f"Supported: {known}. Deploy once and read the engine's log."
            raise ToolkitError(f"{model}: cannot estimate the memory of layers of type `{unknown[0]}`", hint=hint)
        return tuple(_KINDS[kind] for kind in types[:count])
    full: AttentionKind = "full"
    sliding: AttentionKind = "sliding"
    if not _number(config, "sliding_window") or config.get("use_sliding_window") is False:
        return (full,) * count
    if config.get("model_type") == "gpt_oss":
        return tuple(full if index % 2 else sliding for index in range(count))
    pattern = _number(config, "sliding_window_pattern")
    if pattern:
        return tuple(sliding if (index + 1) % pattern else full for index in range(count))
    return (sliding,) * count


def _dense_layers(config: Mapping[str, Any]) -> int:
    listed = config.get("mlp_only_layers")
    return _number(config, "first_k_dense_replace") or (len(listed) if isinstance(listed, list) else 0)


def _is_head(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures")
    named = any("eagle" in str(name).lower() for name in names) if isinstance(names, list) else False
    return named or "draft_vocab_size" in config or "target_hidden_size" in config


def _taps(config: Mapping[str, Any]) -> int:
    """The number of the target's hidden states that a head reads; vLLM's default is 3."""
    if not _is_head(config):
        return 0
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    return _number(config, "num_aux_hidden_states") or (len(ids) if isinstance(ids, list) else 3)
