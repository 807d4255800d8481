"""Training of any model here: Muon for matrices, AdamW for the rest, a fixed number of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon
from torch.optim.lr_scheduler import LambdaLR

from toolkit.training.arithmetic import without_emulation

WARMUP_SHARE = 0.05
LOGGED_STEPS = 50
CPU = torch.device("cpu")
MATRIX = 2


@dataclass(frozen=True)
class Schedule:
    """How long to train, and at which rate after the warm-up."""

    steps: int
    learning_rate: float


def fit(model: nn.Module, loss_of_step: Callable[[], Tensor], schedule: Schedule, log: Callable[[str], None]) -> None:
    """Trains the model in bfloat16 autocast; `log` gets the mean loss every `LOGGED_STEPS` steps."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizers = _optimizers(model, schedule.learning_rate)
    rates = [LambdaLR(optimizer, lambda step: _rate(step, schedule.steps)) for optimizer in optimizers]
    losses: list[float] = []
    for step in range(1, schedule.steps + 1):
        with without_emulation(CPU):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of_step()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer in optimizers:
                optimizer.step()
        for optimizer, rate in zip(optimizers, rates, strict=True):
            optimizer.zero_grad()
            rate.step()
        losses.append(loss.item())
        if step % LOGGED_STEPS == 0 or step == schedule.steps:
            log(f"step {step}/{schedule.steps} loss {sum(losses) / len(losses):.3f}")
            losses.clear()


def _optimizers(model: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
    """Muon updates are scaled to the size of AdamW's, so that both take the same learning rate."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_table = "embed_tokens" in name or "lm_head" in name
        (matrices if parameter.ndim == MATRIX and not is_table else others).append(parameter)
    return [
        Muon(matrices, lr=learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        AdamW(others, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _rate(step: int, steps: int) -> float:
    warmup = max(1, round(steps * WARMUP_SHARE))
    return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
