"""Writing models the way vLLM reads them: config.json and model.safetensors, in bfloat16."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM

from tools.tiny.head import DraftHead


def save_language_model(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Writes a target or draft model, which is in bfloat16 then."""
    model.bfloat16().save_pretrained(folder)


def save_head(head: DraftHead, folder: Path) -> None:
    """Writes a head for vLLM's method `eagle3`."""
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(head.checkpoint_config(), indent=2) + "\n")
