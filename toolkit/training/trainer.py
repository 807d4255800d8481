"""Training a head from samples and hidden states, whatever its method."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from speculators.models.peagle import PEagleDraftModel

from toolkit.training.head import Head, build_head
from toolkit.training.job import TrainingJob
from toolkit.training.learn import Eagle3Learner, Learner, PEagleLearner, loss_function
from toolkit.training.loop import Data, Loop, Result
from toolkit.training.masks import DraftMasks
from toolkit.training.vocabulary import Vocabulary

# The others wait while the first process prepares the data.
_LONGEST_STAGE = timedelta(days=2)
# Positions of a segment, and what all matrices have a multiple of, on a CPU; a GPU wants large ones of any shape.
_CPU_SEGMENT, _CPU_ROWS = 128, 64


def train(
    job: TrainingJob, data: Data, vocabulary: Vocabulary | None = None, *, stopping: Callable[[], bool] = lambda: False
) -> tuple[Head, Result]:
    """The trained head, with its best weights. Raises as `Loop.run` does."""
    device = start_processes()
    head = build_head(job, vocabulary)
    head.to(device)  # type: ignore[arg-type]
    longest = max(*data.train.lengths, *data.held_out.lengths)
    loop = Loop(job, head, learner_of(head, job, longest, device), data, device, stopping=stopping)
    return head, loop.run()


def learner_of(head: Head, job: TrainingJob, longest: int, device: torch.device) -> Learner:
    """The method's way to learn; `longest` is the longest sequence in tokens."""
    loss = loss_function(device)
    if isinstance(head, PEagleDraftModel):
        masks = DraftMasks(longest + _CPU_ROWS, torch.bfloat16, device)
        learner = PEagleLearner(head, masks, loss, job.depth, job.partitions)
        return _on_cpu(learner) if device.type == "cpu" else learner
    return Eagle3Learner(head, loss, job.depth)


def _on_cpu(learner: PEagleLearner) -> PEagleLearner:
    """The same in less time: there, plain attention takes half the time of PyTorch's fused one with a mask."""
    attention: Any = learner.head.layers[0].self_attn
    attention.config._attn_implementation = "eager"  # all layers have the same config
    return replace(learner, longest_segment=_CPU_SEGMENT, rows=_CPU_ROWS)


def start_processes() -> torch.device:
    """This process's device; joins the others if torchrun started several."""
    accelerator = torch.accelerator.current_accelerator()
    if "RANK" in os.environ and not dist.is_initialized():
        dist.init_process_group("nccl" if accelerator else "gloo", timeout=_LONGEST_STAGE)
    if accelerator is None:
        return torch.device("cpu")
    device = torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", "0")))
    torch.accelerator.set_device_index(device.index)
    return device
