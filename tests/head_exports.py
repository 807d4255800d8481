"""Heads of a few kB with the config keys and tensor names of each exporter (sources: toolkit/engines/vllm/convert.py).

The numbers in the tensors are random, so that no two are alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

HIDDEN, VOCAB, DRAFTED, WIDTH, MASK_TOKEN = 8, 32, 16, 24, 3
Tensors = dict[str, np.ndarray[Any, Any]]
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 256,
}


def layer(name: str, inputs: int) -> dict[str, tuple[int, ...]]:
    projections = {"q": (8, inputs), "k": (4, inputs), "v": (4, inputs), "o": (8, 8)}
    return {
        f"{name}.input_layernorm.weight": (HIDDEN,),
        f"{name}.post_attention_layernorm.weight": (HIDDEN,),
        **{f"{name}.self_attn.{which}_proj.weight": shape for which, shape in projections.items()},
        **{f"{name}.mlp.{which}_proj.weight": (16, HIDDEN) for which in ("gate", "up")},
        f"{name}.mlp.down_proj.weight": (HIDDEN, 16),
    }


def weights(*, first: str = "layers.0", layers: int = 1, drafted: int = VOCAB, parallel: bool = False) -> Tensors:
    """A head's tensors without the maps `d2t` and `t2d`."""
    shapes = {
        "embed_tokens.weight": (VOCAB, HIDDEN),
        "fc.weight": (HIDDEN, WIDTH),
        f"{first}.hidden_norm.weight": (HIDDEN,),
        **layer(first, 2 * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (drafted, HIDDEN),
    }
    for number in range(1, layers):
        shapes |= layer(f"layers.{number}", HIDDEN)
    if parallel:
        shapes["mask_hidden"] = (1, 1, WIDTH)
    random = np.random.default_rng(7)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def maps(drafted: int) -> Tensors:
    """`d2t` in offsets (target token = draft token + d2t) and the mask `t2d`, for draft tokens at even distances."""
    step = VOCAB // drafted
    t2d = np.zeros(VOCAB, dtype=bool)
    t2d[::step] = True
    return {"d2t": np.arange(drafted, dtype=np.int64) * (step - 1), "t2d": t2d}


def export(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def specforge_peagle(folder: Path, **changes: Any) -> Path:
    """Its export names no mask token: whoever exports adds it, here `mask_token_id`."""
    config = {
        **SIZES,
        "architectures": ["PEagleDraftModel"],
        "model_type": "llama",
        "num_hidden_layers": 2,
        "draft_vocab_size": VOCAB,
        "norm_before_residual": True,
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0},
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
        "rope_theta": 5e5,
        "mask_token_id": MASK_TOKEN,
        **changes,
    }
    return export(folder, config, weights(layers=2, parallel=True) | maps(VOCAB))


def specforge_eagle3(folder: Path, **changes: Any) -> Path:
    config = {
        **SIZES,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": DRAFTED,
        "norm_output": True,
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [1, 3, 5]},
        **changes,
    }
    return export(folder, config, weights(first="midlayer", drafted=DRAFTED) | maps(DRAFTED))


def nemo(folder: Path, parallel: bool = True, **changes: Any) -> Path:
    """NeMo keeps the target's config around the head's own keys, also for one layer of EAGLE-3."""
    config = {
        **SIZES,
        "architectures": ["LlamaEagle3DraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2 if parallel else 8,
        "layer_types": ["sliding_attention"] * (2 if parallel else 8),
        "sliding_window": 128,
        "quantization_config": {"quant_method": "fp8"},
        "draft_vocab_size": DRAFTED,
        "target_hidden_size": HIDDEN,
        "parallel_drafting": parallel,
        **({"mask_token_id": MASK_TOKEN, "num_depths": 8} if parallel else {}),
        **changes,
    }
    stored = weights(layers=2 if parallel else 1, drafted=DRAFTED, parallel=parallel)
    top = ("lm_head.weight", "mask_hidden")
    return export(
        folder, config, {name if name in top else f"model.{name}": stored[name] for name in stored} | maps(DRAFTED)
    )


def speculators(folder: Path, kind: str = "peagle", **changes: Any) -> Path:
    layers = 2 if kind == "peagle" else 1
    config = {
        "architectures": ["PEagleDraftModel" if kind == "peagle" else "Eagle3DraftModel"],
        "speculators_model_type": kind,
        "speculators_config": {
            "algorithm": kind,
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 8}],
            "verifier": {"name_or_path": "someone/target", "architectures": ["Qwen3ForCausalLM"]},
        },
        "transformer_layer_config": {**SIZES, "model_type": "qwen3", "num_hidden_layers": layers},
        "draft_vocab_size": DRAFTED,
        "target_hidden_size": None,
        "norm_before_residual": True,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        **({"mask_token_id": MASK_TOKEN} if kind == "peagle" else {}),
        **changes,
    }
    tensors = weights(layers=layers, drafted=DRAFTED, parallel=kind == "peagle") | maps(DRAFTED)
    norms = {
        f"layers.{n}.self_attn.{which}_norm.weight": np.ones(4, np.float32) for n in range(layers) for which in "qk"
    }
    return export(folder, config, tensors | norms)


EXPORTS = {
    ("specforge", "p-eagle"): specforge_peagle,
    ("specforge", "eagle3"): specforge_eagle3,
    ("nemo-automodel", "p-eagle"): nemo,
    ("nemo-automodel", "eagle3"): lambda folder: nemo(folder, parallel=False),
    ("speculators", "p-eagle"): speculators,
    ("speculators", "eagle3"): lambda folder: speculators(folder, "eagle3"),
}
