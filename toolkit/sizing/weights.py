"""Bytes of a model's weights on one accelerator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod

from toolkit.errors import ToolkitError
from toolkit.recipe.facts import ModelFacts, Tensor
from toolkit.sizing.shape import Attention, Shape, shape_of

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
"""Bytes of a value, by the engine's `--dtype`."""

_STORED_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    "F4": 4,
}
_VOCABULARY_PADDING = 64  # vLLM 0.32, vocab_parallel_embedding.py

# vLLM 0.32, fused_moe/oracle/mxfp4.py: Marlin and TRT-LLM kernels round an expert's sizes up to these. So
# gpt-oss-120b needs 65.97 GiB when loaded (vLLM issue 23278), and 60.77 GiB are stored.
_MXFP4_INTERMEDIATE, _MXFP4_HIDDEN = 128, 256
_MXFP4_BITS = 4 + 8 / 32  # one scale byte for 32 values


def serving_dtype(shape: Shape, flag: str) -> str:
    """The dtype that the engine serves with: `--dtype`, or the model's own, with float32 changed to bfloat16."""
    dtype = flag if flag != "auto" else shape.stored_dtype
    if flag == "auto" and dtype not in ("bfloat16", "float16"):
        return "bfloat16"
    if dtype not in DTYPE_BYTES:
        raise ToolkitError(f"cannot estimate memory with dtype {dtype}", hint=f"Use one of {', '.join(DTYPE_BYTES)}.")
    return dtype


def rank_bytes(
    facts: ModelFacts,
    tensor_parallel: int,
    dtype: str,
    expert_ranks: int = 0,
    share: Callable[[str], float] = lambda name: 1.0,
) -> int:
    """Bytes of the model's weights on one of `tensor_parallel` accelerators, served in `dtype`.

    Experts may be divided among more of them, `expert_ranks`: also those of other copies of the model. `share` is how
    much is held at all of a tensor of that name, where layers are divided as well.
    Computed from the stored tensors. If they are unknown, computed from the tensors that the config implies, scaled to
    the total stored size if known. Raises ToolkitError for a config without sizes.
    """
    held = sum(share(name) * size for name, size in _held(facts, tensor_parallel, dtype, expert_ranks).items())
    if facts.tensors or not facts.weight_bytes:
        return round(held)
    return round(held * facts.weight_bytes / _implied_bytes(facts))


@lru_cache(maxsize=256)
def _held(facts: ModelFacts, tensor_parallel: int, dtype: str, expert_ranks: int) -> Mapping[str, float]:
    """Bytes of each tensor on one accelerator. They are the same on all instance types, of which dozens are asked."""
    shape = shape_of(facts)
    return {
        name: _held_bytes(name, tensor, shape, (".experts." in name and expert_ranks) or tensor_parallel, dtype)
        for name, tensor in (facts.tensors or expected_tensors(shape)).items()
    }


def file_bytes(facts: ModelFacts) -> int | None:
    """Bytes of the model's files, from its tensors or as stated; None if neither is known."""
    if facts.tensors:
        return round(sum(_stored_bytes(tensor) for tensor in facts.tensors.values()))
    return facts.weight_bytes


def stored_bytes(facts: ModelFacts) -> int:
    """Size of the model's weights, as stated or by its config. Raises ToolkitError if neither says it."""
    known = file_bytes(facts)
    return known if known is not None else round(_implied_bytes(facts))


@lru_cache(maxsize=256)
def _implied_bytes(facts: ModelFacts) -> float:
    """Stored size of the tensors that the config implies."""
    return sum(map(_stored_bytes, expected_tensors(shape_of(facts)).values()))


def active_bytes(facts: ModelFacts) -> float:
    """Size of the large tensors that one token passes through. Raises ToolkitError for a config without sizes."""
    shape = shape_of(facts)
    share = shape.experts_per_token / shape.experts if shape.experts else 1.0
    tensors = expected_tensors(shape).items()
    return sum(_stored_bytes(tensor) * (share if "experts" in name else 1.0) for name, tensor in tensors)


def read_bytes(facts: ModelFacts) -> float:
    """Size of the large tensors that are read whole for one token.

    In an embedding that is no output layer as well, a row is looked up. Matrices of layers that are quantized have the
    size that the files leave for them. Raises ToolkitError for a config without sizes, and for a quantization whose
    size neither the config nor the files say.
    """
    shape = shape_of(facts)
    embedding = 0 if shape.tied else _stored_bytes(expected_tensors(shape)["embed_tokens.weight"])
    read = active_bytes(facts) - embedding
    if shape.quant_method in ("", "fp8", "mxfp4"):  # then expected_tensors have their own types
        return read
    stored, tensors = file_bytes(facts), expected_tensors(shape)
    if stored is None:
        raise ToolkitError(f"the size of {facts.model}, quantized with {shape.quant_method}, is not known")
    rest = sum(_stored_bytes(tensor) for name, tensor in tensors.items() if not _is_quantized(name))
    matrices = sum(_stored_bytes(tensor) for name, tensor in tensors.items() if _is_quantized(name))
    if stored <= rest:
        raise ToolkitError(f"the files of {facts.model} are smaller than its embeddings")
    unquantized = rest - embedding
    return unquantized + (read - unquantized) * (stored - rest) / matrices


def active_parameters(facts: ModelFacts) -> float:
    """How many weights of matrices one token passes through. Raises ToolkitError for a config without sizes."""
    shape = shape_of(facts)
    share = shape.experts_per_token / shape.experts if shape.experts else 1.0
    tensors = expected_tensors(shape).items()
    return sum(
        tensor.numel * (share if "experts" in name else 1.0) * (8 / _MXFP4_BITS if tensor.dtype == "U8" else 1.0)
        for name, tensor in tensors
        if name != "embed_tokens.weight"
    )


def expected_tensors(shape: Shape) -> dict[str, Tensor]:
    """The large tensors in a checkpoint of this shape; biases and scales (below 0.5 %) are omitted."""
    hidden = shape.hidden
    tensors = {"embed_tokens.weight": Tensor("BF16", (shape.vocabulary, hidden))}
    if not shape.tied:
        tensors["lm_head.weight"] = Tensor("BF16", (shape.output_vocabulary, hidden))
    if shape.is_head:
        tensors["fc.weight"] = Tensor("BF16", (hidden, shape.taps * shape.target_hidden))
    for index, attention in enumerate(shape.layers):
        inputs = 2 * hidden if shape.is_head and index == 0 else hidden  # token embedding and hidden state side by side
        layer = {**_attention_tensors(shape, attention, inputs), **_mlp_tensors(shape, index)}
        tensors.update({f"layers.{index}.{name}": tensor for name, tensor in layer.items()})
    return tensors


def _attention_tensors(shape: Shape, attention: Attention, inputs: int) -> dict[str, Tensor]:
    dtype, queries = _linear_dtype(shape), shape.heads * attention.key_size
    if state := attention.state:
        return {
            "linear_attn.in_proj.weight": Tensor(dtype, (state.channels + state.inner, inputs)),
            "linear_attn.out_proj.weight": Tensor(dtype, (shape.hidden, state.inner)),
        }
    return {
        "self_attn.q_proj.weight": Tensor(dtype, (queries, inputs)),
        "self_attn.k_proj.weight": Tensor(dtype, (attention.kv_heads * attention.key_size, inputs)),
        "self_attn.v_proj.weight": Tensor(dtype, (attention.kv_heads * attention.value_size, inputs)),
        "self_attn.o_proj.weight": Tensor(dtype, (shape.hidden, queries)),
    }


def _mlp_tensors(shape: Shape, index: int) -> dict[str, Tensor]:
    if index < shape.dense_layers:
        return {"mlp.weight": Tensor(_linear_dtype(shape), (3 * shape.intermediate, shape.hidden))}
    expert = 3 * shape.expert_intermediate * shape.hidden
    packed = shape.quant_method == "mxfp4"
    return {
        "mlp.router.weight": Tensor("BF16", (shape.experts, shape.hidden)),
        "mlp.experts.weight": Tensor("U8", (shape.experts, round(expert * _MXFP4_BITS / 8)))
        if packed
        else Tensor(_linear_dtype(shape), (shape.experts, expert)),
    }


def _is_quantized(name: str) -> bool:
    """Whether a quantized checkpoint has few bits of it: embedding, output layer and routers stay as they were."""
    return name.startswith("layers.") and "router" not in name


def _linear_dtype(shape: Shape) -> str:
    """The dtype of a checkpoint's matrices; quantizations other than fp8 count as bfloat16, an upper bound."""
    return "F8_E4M3" if shape.quant_method == "fp8" else "BF16"


def _stored_bytes(tensor: Tensor) -> float:
    bits = _STORED_BITS.get(tensor.dtype)
    if bits is None:
        raise ToolkitError(f"cannot estimate the memory of tensors of type {tensor.dtype}")
    return tensor.numel * tensor.count * bits / 8


def _held_bytes(name: str, tensor: Tensor, shape: Shape, tensor_parallel: int, dtype: str) -> float:
    """Bytes on one accelerator of a stored tensor, or of all tensors that it stands for."""
    if name.endswith("t2d") or (shape.tied and not shape.is_head and "lm_head" in name):
        return 0
    held = _stored_bytes(tensor)
    if tensor.dtype in ("F32", "F16", "BF16") and "scale" not in name:
        held = tensor.numel * tensor.count * DTYPE_BYTES[dtype]
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        rows = tensor.shape[0]
        return held * _round_up(rows, _VOCABULARY_PADDING) / rows / tensor_parallel
    if _is_replicated(name, tensor):
        return held
    if ".k_proj." in name or ".v_proj." in name:
        attention = _attention_of(name, shape)
        return held * attention.kv_heads_per_rank(tensor_parallel) / attention.kv_heads
    if ".experts." in name and shape.quant_method == "mxfp4":
        return held * _mxfp4_padding(shape, tensor_parallel) / tensor_parallel
    return held / tensor_parallel


def _is_replicated(name: str, tensor: Tensor) -> bool:
    """Whether every accelerator holds the whole tensor: vectors, routers, and a head's extra layers."""
    return len(tensor.shape) == 1 or name.startswith(("fc.", "mask_hidden")) or ".router." in name or ".gate." in name


def _attention_of(name: str, shape: Shape) -> Attention:
    """Attention of the layer that a tensor belongs to, the first of a range; `midlayer` is a head's first."""
    layer = re.search(r"layers\.\{?(\d+)", name)
    return shape.layers[min(int(layer[1]), len(shape.layers) - 1) if layer else 0]


def _mxfp4_padding(shape: Shape, tensor_parallel: int) -> float:
    """The factor by which an expert's weights grow because the kernel rounds sizes up."""
    share = shape.expert_intermediate / tensor_parallel
    padded = _round_up(share, _MXFP4_INTERMEDIATE), _round_up(shape.hidden, _MXFP4_HIDDEN)
    return prod(padded) / (share * shape.hidden)


def _round_up(size: float, multiple: int) -> int:
    return -int(-size // multiple) * multiple
