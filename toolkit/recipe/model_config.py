"""The keys of a model's config.json that the toolkit reads, with their types: a wrong one is reported here, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

# Far beyond any model, and small enough to reckon with.
_Size = Annotated[StrictInt, Field(gt=0, le=10**9)] | None
_Count = Annotated[StrictInt, Field(ge=0, le=10**6)] | None
_Layers = Annotated[StrictInt, Field(gt=0, le=10_000)] | None
_Token = Annotated[StrictInt, Field(ge=-(10**9), le=10**9)] | None


class _Section(BaseModel):
    # Only _Config's validator is built, once, with the others in it.
    model_config = ConfigDict(defer_build=True)


class _Quantization(_Section):
    quant_method: StrictStr | None = None
    weight_block_size: list[Annotated[StrictInt, Field(gt=0, le=10**6)]] | None = None


class _LayerIds(_Section):
    eagle_aux_hidden_state_layer_ids: list[StrictInt] | None = None


class _DFlash(_Section):
    mask_token_id: _Token = None


class _Verifier(_Section):
    name_or_path: StrictStr | None = None


class _Speculators(_Section):
    proposal_methods: list[dict[str, Any]] | None = None
    verifier: _Verifier | None = None


class _Config(_Section):
    model_config = ConfigDict(protected_namespaces=())

    architectures: list[StrictStr] | None = None
    attention_chunk_size: _Size = None
    dflash_config: _DFlash | None = None
    draft_vocab_size: _Size = None
    dtype: StrictStr | None = None
    eagle_aux_hidden_state_layer_ids: list[StrictInt] | None = None
    eagle_config: _LayerIds | None = None
    first_k_dense_replace: _Count = None
    global_head_dim: _Size = None
    head_dim: _Size = None
    hidden_size: _Size = None
    intermediate_size: _Size = None
    kv_lora_rank: _Size = None
    layer_types: list[StrictStr] | None = None
    markov_rank: _Count = None
    mask_token_id: _Token = None
    max_position_embeddings: _Size = None
    mlp_only_layers: list[StrictInt] | None = None
    model_type: StrictStr | None = None
    moe_intermediate_size: _Size = None
    n_routed_experts: _Count = None
    num_attention_heads: _Size = None
    num_aux_hidden_states: _Layers = None
    num_depths: _Size = None
    num_experts: _Count = None
    num_experts_per_tok: _Count = None
    num_global_key_value_heads: _Size = None
    num_hidden_layers: _Layers = None
    num_key_value_heads: _Size = None
    num_kv_shared_layers: _Count = None
    num_local_experts: _Count = None
    pard_token: _Token = None
    ptd_token_id: _Token = None
    qk_rope_head_dim: _Size = None
    quantization_config: _Quantization | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    sliding_window: _Count = None
    sliding_window_pattern: _Count = None
    speculators_config: _Speculators | None = None
    speculators_model_type: StrictStr | None = None
    target_hidden_size: _Size = None
    target_model: StrictStr | None = None
    target_revision: StrictStr | None = None
    text_config: _Config | None = None
    tie_word_embeddings: StrictBool | None = None
    top_k_experts: _Count = None
    torch_dtype: StrictStr | None = None
    transformer_layer_config: _Config | None = None
    vision_config: dict[str, Any] | None = None
    vocab_size: _Size = None


def problem(config: Mapping[str, Any]) -> str:
    """What is wrong with the first key of a wrong type, as a sentence; empty when all are right."""
    try:
        _Config.model_validate(config)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        return f"`{key}`: {first['msg']}, not {str(first['input'])[:40]}"
    return ""
