"""The keys of `speculation` that are vLLM's own: fields of its SpeculativeConfig."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr, StringConstraints, model_validator

from toolkit.recipe.assemble import Sections
from toolkit.recipe.schema import EngineSection, SpeculationSection
from toolkit.recipe.section import PositiveInt

BackendName = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
"""Names of kernels, types and backends, which engines add to: FLASH_ATTN, fp8_e4m3."""


BatchSizeRange = tuple[PositiveInt, PositiveInt, Annotated[StrictInt, Field(ge=0)]]


class VllmEngine(EngineSection):
    """vLLM on GPUs, or on this machine."""

    warm_start: StrictBool = Field(
        False,
        description="vLLM starts with what an earlier start compiled and tuned: `toolkit compile` makes that on "
        "SageMaker, in a container of the toolkit's; this machine keeps it from the first start on",
    )


class VllmSpeculation(SpeculationSection):
    """How vLLM drafts."""

    num_speculative_tokens_per_batch_size: list[BatchSizeRange] = Field(
        default_factory=list, description="[from, to, K] by requests in a step, both ends included; K may be 0"
    )
    draft_tensor_parallel_size: PositiveInt | None = Field(
        None, description="accelerators that share the drafter: 1, or as many as the target's; default: the target's"
    )
    attention_backend: BackendName | None = Field(
        None, description="attention backend of the drafter, such as FLASH_ATTN; default: the engine's choice"
    )
    draft_sample_method: Literal["greedy", "probabilistic"] | None = Field(
        None, description="how the drafter samples: its first choice, or from its distribution; default: greedy"
    )
    enable_adaptive_verification: StrictBool | None = Field(
        None, description="dspark: verify fewer drafts of a request where the drafter is less sure; default: all"
    )
    enforce_eager: StrictBool | None = Field(None, description="run the drafter without CUDA graphs")
    kv_cache_dtype: BackendName | None = Field(
        None, description="type of the drafter's KV cache; default: the target's"
    )
    max_model_len: PositiveInt | None = Field(
        None, description="tokens of a request up to which the drafter drafts; default: the target's limit"
    )
    moe_backend: BackendName | None = Field(None, description="kernels of the drafter's experts; default: the target's")
    quantization: BackendName | None = Field(None, description="how the drafter's weights are quantized")
    rejection_sample_method: Literal["standard", "block"] | None = Field(
        None, description="drafts are verified one by one, or as a block; default: standard"
    )
    use_heterogeneous_vocab: StrictBool | None = Field(
        None,
        description="draft-model: the drafter may have another vocabulary than the target; it drafts the tokens that "
        "both have",
    )
    prompt_lookup_min: PositiveInt | None = Field(
        None, description="ngram: shortest run of tokens that is looked up in the text so far"
    )
    prompt_lookup_max: PositiveInt | None = Field(
        None, description="ngram: longest run of tokens that is looked up in the text so far"
    )
    suffix_decoding_max_tree_depth: PositiveInt | None = Field(
        None, description="suffix: most tokens of a match and its draft together"
    )
    suffix_decoding_max_cached_requests: Annotated[StrictInt, Field(ge=0)] | None = Field(
        None, description="suffix: finished requests that are kept to draft from; 0 keeps none"
    )
    suffix_decoding_max_spec_factor: Annotated[float, Field(ge=0, strict=True)] | None = Field(
        None, description="suffix: draft tokens per token of the match, at most"
    )
    suffix_decoding_min_token_prob: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        None, description="suffix: least estimated probability of a token that is drafted"
    )

    @property
    def schedule(self) -> Sequence[tuple[int, int, int]]:
        return self.num_speculative_tokens_per_batch_size

    @property
    def own_vocabulary(self) -> bool:
        return bool(self.use_heterogeneous_vocab)

    @property
    def adaptive(self) -> bool:
        return bool(self.enable_adaptive_verification)

    @model_validator(mode="after")
    def _lookup_in_order(self) -> VllmSpeculation:
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        if least and most and least > most:
            raise ValueError(f"prompt_lookup_min {least} is above prompt_lookup_max {most}")
        return self


SECTIONS: Sections = {"engine": VllmEngine, "speculation": VllmSpeculation}
