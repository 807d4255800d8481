"""Whether what a head is trained towards is what its target says: found out before answers and states are paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from toolkit.errors import UsageError
from toolkit.training.target_logits import OTHER_TARGET, TargetLogits, final_norm, target_logits

PROBES = (
    "The quick brown fox jumps over the lazy dog, and then it rains for 40 days.",
    'def area(width, height):\n    return width * height  # {"unit": "m²"}',
    "1, 2, 3, 5, 8, 13, 21, 34, 55, 89: what comes next, and why?",
)
"""What the target reads for it."""
_ROUNDING = 4.0
"""So many steps of the target's own numbers may be lost by rounding; another norm, scale or cap is far from it."""
_LEAST_TOLERANCE = 1e-4
_HINT = f"A head would learn to draft for another model than this one. {OTHER_TARGET}"


@dataclass
class _Seen:
    """What went into the final norm, and what came out of it, of the output layer, and of the whole model."""

    states: list[Tensor] = field(default_factory=list)
    normed: list[Tensor] = field(default_factory=list)
    scored: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Said:
    """Logits that an engine told, each of a token and of the position after which it would stand."""

    positions: list[int]
    tokens: list[int]
    logits: list[float]


@torch.inference_mode()
def require_same_logits(folder: str, states: Tensor, said: Said, dtype: torch.dtype) -> None:
    """Raise UsageError if `target_logits` of a folder gives other logits of these states than its engine, in `dtype`.

    `states` [positions, H] are those before the final norm.
    """
    ours = target_logits(folder)
    logits = ours.output(ours.norm(states.float()))
    error = _off(logits[torch.tensor(said.positions), torch.tensor(said.tokens)], torch.tensor(said.logits))
    if not _is_rounding(error, dtype):
        message = f"the logits that training computes for {folder} are not those of its engine ({error:.1%} off)"
        raise UsageError(message, hint=_HINT)


@torch.inference_mode()
def require_exact(folder: str, target: PreTrainedModel, prompts: Sequence[list[int]]) -> None:
    """Raise UsageError if `target_logits` of its folder gives other logits than the loaded target, beyond rounding."""
    ours = target_logits(folder)
    seen = _run(target, prompts)
    if not (len(seen.states) == len(seen.scored) == len(prompts)):
        raise UsageError(f"{type(target).__name__} passes its final norm or output layer by", hint=OTHER_TARGET)
    for what, found, wanted in _compared(ours, target, seen):
        error = _off(found, wanted)
        if not _is_rounding(error, target.dtype):
            message = f"{what} of {type(target).__name__} gives other numbers in training than in the target itself "
            raise UsageError(f"{message}({error:.1%} off)", hint=_HINT)


def _off(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-9))


def _is_rounding(error: float, dtype: torch.dtype) -> bool:
    return error <= max(_LEAST_TOLERANCE, _ROUNDING * torch.finfo(dtype).eps)


def _compared(ours: TargetLogits, target: PreTrainedModel, seen: _Seen) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each module by its name, what it gives in training, and what in the target, both of what the target gave it."""
    states, normed, scored, logits = (torch.cat(each) for each in vars(seen).values())
    found = final_norm(target.base_model)
    name, norm = found or ("norm", ours.norm)
    yield f"the final norm `{name}` ({type(norm).__name__})", ours.norm(states), normed
    yield "the output layer `lm_head`", functional.linear(normed, ours.output.weight, ours.output.bias), scored
    yield "what is done to the logits (a scale or a soft cap)", ours.output.finish(scored), logits


def _run(target: PreTrainedModel, prompts: Sequence[list[int]]) -> _Seen:
    seen = _Seen()
    found = final_norm(target.base_model)
    output = target.get_output_embeddings()
    if found is None or not isinstance(output, nn.Module):
        return seen
    with _hooked(found[1], output, seen):
        for prompt in prompts:
            tokens = torch.tensor([prompt], device=target.device)
            seen.logits.append(_flat(target(input_ids=tokens, use_cache=False).logits))
    return seen


@contextmanager
def _hooked(norm: nn.Module, output: nn.Module, seen: _Seen) -> Iterator[None]:
    def record(into: list[Tensor]) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _, __, result: into.append(_flat(result))

    def record_input(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        seen.states.append(_flat(inputs[0] if inputs else options["hidden_states"]))

    hooks = [
        norm.register_forward_pre_hook(record_input, with_kwargs=True),
        norm.register_forward_hook(record(seen.normed)),
        output.register_forward_hook(record(seen.scored)),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _flat(values: Tensor) -> Tensor:
    """[tokens, width] in float32, beside the tensors that are compared."""
    return values.flatten(0, -2).float().cpu()
