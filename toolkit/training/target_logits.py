"""What the target itself would say after a hidden state: its final norm, its output layer, and what it does to logits.

A head is trained towards these logits, so they have to be the target's own. The norm is the very class that
transformers has for the target (some norms multiply by 1 + w, others have a bias or no weight), the rest is what its
config names. What that leaves out is found by `require_exact`, before anything is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from speculators.utils.loading import load_model_layers
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM

from toolkit.errors import UsageError
from toolkit.training.reading import reading

NORMS = ("norm", "final_layernorm")
"""What transformers' decoder-only models call their final norm."""


class OutputLayer(nn.Module):
    """Normed hidden states to logits [N, draft tokens]."""

    def __init__(self, weight: Tensor, bias: Tensor | None, scale: float = 1.0, cap: float | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.float(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.float(), requires_grad=False)
        self.scale, self.cap = scale, cap

    def forward(self, normed: Tensor) -> Tensor:
        return self.finish(functional.linear(normed, self.weight, self.bias))

    def finish(self, logits: Tensor) -> Tensor:
        """Scaled and capped as the target does it."""
        logits = logits * self.scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap


@dataclass(frozen=True)
class TargetLogits:
    """The two modules that follow a target's last layer."""

    norm: nn.Module
    output: OutputLayer


def final_norm(base: Any) -> tuple[str, nn.Module] | None:
    """The final norm of a decoder-only model, and its name; None of a model that is built otherwise."""
    language_model = getattr(base, "language_model", base)
    found = ((name, getattr(language_model, name, None)) for name in NORMS)
    return next(((name, norm) for name, norm in found if isinstance(norm, nn.Module)), None)


def target_logits(target: str, drafted: Tensor | None = None) -> TargetLogits:
    """What follows the last layer of the target in a folder, for the tokens where `drafted` is true. Raises UsageError.

    Only its own few tensors are read.
    """
    with reading(f"the target {target}", "Check that it is a language model that transformers knows.", target):
        config = AutoConfig.from_pretrained(target)  # nosec B615
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    found = final_norm(model.base_model)
    if found is None:
        raise no_norm(model.base_model)
    name, norm = found
    with reading(f"the final norm and output layer of {target}", _HINT, target):
        _fill(norm, f"model.{name}", target)
        layers = load_model_layers(["lm_head.weight", "embed_tokens.weight"], target)
        weight = layers["lm_head.weight" if "lm_head.weight" in layers else "embed_tokens.weight"]
        bias = getattr(model.get_output_embeddings(), "bias", None)
        bias = None if bias is None else load_model_layers(["lm_head.bias"], target)["lm_head.bias"]
    if drafted is not None:
        weight, bias = weight[drafted], None if bias is None else bias[drafted]
    text = config.get_text_config()
    return TargetLogits(norm, OutputLayer(weight, bias, _scale(text), getattr(text, "final_logit_softcapping", None)))


def _fill(norm: nn.Module, name: str, target: str) -> None:
    """Give the norm, which has shapes only, its weights in float32. Some have none."""
    wanted = list(norm.state_dict())
    found = load_model_layers([f"{name}.{one}" for one in wanted], target) if wanted else {}
    norm.to_empty(device="cpu")
    norm.load_state_dict({one: found[f"{name}.{one}"] for one in wanted})
    norm.float().requires_grad_(False)


def _scale(config: Any) -> float:
    """Granite divides its logits, Cohere multiplies them."""
    divisor, factor = getattr(config, "logits_scaling", None), getattr(config, "logit_scale", None)
    return float(factor or 1.0) / float(divisor or 1.0)


def no_norm(base: Any) -> UsageError:
    """The error for a target that is built otherwise."""
    return UsageError(f"{type(base).__name__} has no `layers` and `norm` to take hidden states from", hint=OTHER_TARGET)


OTHER_TARGET = "A head cannot be trained for this target; use a drafter that needs no training, such as ngram."
_HINT = "Check that the target's files are complete, and that its weights are *.safetensors."
