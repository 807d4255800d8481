"""Training a head from samples and hidden states, whatever its method."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from speculators.models.dflash import DFlashDraftModel
from speculators.models.mtp import MTPDraftModel
from speculators.models.peagle import PEagleDraftModel

from toolkit.errors import PlatformError
from toolkit.training.arithmetic import compute_dtype
from toolkit.training.block import BlockLearner
from toolkit.training.checkpoint import load_best
from toolkit.training.head import Head, build_head, layers_read, target_config
from toolkit.training.job import TrainingJob, is_divided
from toolkit.training.launch import MEETING, is_worker
from toolkit.training.learn import Eagle3Learner, Learner, PEagleLearner, loss_function
from toolkit.training.loop import Data, Loop, Result
from toolkit.training.mtp import MtpLearner
from toolkit.training.partition import DraftMasks
from toolkit.training.sharded import shard
from toolkit.training.vocabulary import Vocabulary

# Positions of a segment, and what all matrices have a multiple of, on a CPU; a GPU wants large ones of any shape.
_CPU_SEGMENT, _CPU_ROWS = 128, 64


def memory_of(device: torch.device) -> float:
    """Bytes of a GPU. Processes on a CPU share the machine's, and divide no head."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else math.inf


def train(
    job: TrainingJob,
    data: Data,
    vocabulary: Vocabulary | None = None,
    *,
    end: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
    memory: Callable[[torch.device], float] = memory_of,
) -> tuple[Head, Result | None]:
    """The trained head, with its best weights; no result if there is more to learn after step `end`.

    Where it is divided over processes, the first one has the head. Raises as `Loop.run` does.
    """
    device = join_processes()
    _require_same_data(data)
    _require_fit(job, data)
    head = build_head(job, vocabulary)
    divided = _is_divided(job, head, _least(memory(device), device))
    if divided:
        shard(head, device, compute_dtype(device))
    head.to(device)
    longest = max(*data.train.lengths, *data.held_out.lengths)
    loop = Loop(job, head, learner_of(head, job, longest, device), data, device, stopping=stopping)
    result = loop.run(end)
    if result and divided and dist.get_rank() == 0:
        head = build_head(job, vocabulary)
        weights = {name: value for name, value in head.named_parameters() if value.requires_grad}
        head.load_state_dict(load_best(Path(job.checkpoints), weights), strict=False)
    return head, result


def _least(memory: float, device: torch.device) -> float:
    """That of all processes: they divide a head together, or not at all."""
    if not dist.is_initialized():
        return memory
    least = torch.tensor(memory, dtype=torch.float64, device=device)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return float(least)


def _is_divided(job: TrainingJob, head: Head, memory: float) -> bool:
    learned = sum(weights.numel() for weights in head.parameters() if weights.requires_grad)
    return is_divided(job.method, learned, memory, dist.get_world_size() if dist.is_initialized() else 1)


def _require_fit(job: TrainingJob, data: Data) -> None:
    """Raise UsageError for samples or hidden states of another target."""
    target = target_config(job)
    for samples in (data.train, data.held_out):
        samples.require_vocabulary(target.vocab_size)
        samples.require_states((len(set(layers_read(job))) * target.hidden_size, target.hidden_size))


def learner_of(head: Head, job: TrainingJob, longest: int, device: torch.device) -> Learner:
    """The method's way to learn; `longest` is the longest sequence in tokens."""
    loss = loss_function(device)
    if isinstance(head, PEagleDraftModel):
        masks = DraftMasks(longest + _CPU_ROWS, compute_dtype(device), device)
        learner = PEagleLearner(head, masks, loss, job.depth, job.partitions)
        return _on_cpu(learner) if device.type == "cpu" else learner
    if isinstance(head, DFlashDraftModel):
        blocks = BlockLearner(head, loss, job.depth)
        return _blocks_on_cpu(blocks) if device.type == "cpu" else blocks
    if isinstance(head, MTPDraftModel):
        return MtpLearner(head, loss, job.depth)
    return Eagle3Learner(head, loss_function(device, is_compiled=True), job.depth)  # speculators compiles it whole


def _on_cpu(learner: PEagleLearner) -> PEagleLearner:
    """The same in less time: there, plain attention takes half the time of PyTorch's fused one with a mask."""
    _attend_plainly(learner.head)
    return replace(learner, longest_segment=_CPU_SEGMENT, rows=_CPU_ROWS)


def _blocks_on_cpu(learner: BlockLearner) -> BlockLearner:
    _attend_plainly(learner.head)
    return replace(learner, rows=_CPU_ROWS)


def _attend_plainly(head: PEagleDraftModel | DFlashDraftModel) -> None:
    attention: Any = head.layers[0].self_attn
    attention.config._attn_implementation = "eager"  # all layers have the same config


def join_processes() -> torch.device:
    """This process's device; joins the others if several were started."""
    accelerator = torch.accelerator.current_accelerator()
    if is_worker() and not dist.is_initialized():
        dist.init_process_group(
            "nccl" if accelerator else "gloo",
            init_method=os.environ.get(MEETING),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )
    if accelerator is None:
        return torch.device("cpu")
    device = torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", "0")))
    torch.accelerator.set_device_index(device.index)
    return device


def _require_same_data(data: Data) -> None:
    """Raise PlatformError if another machine prepared other samples, as its target may have answered otherwise."""
    if not dist.is_initialized():
        return
    mine = (data.train.lengths, data.held_out.lengths)
    all_of_them: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(all_of_them, mine)
    if any(theirs != mine for theirs in all_of_them):
        hint = "Write `training.responses: keep` with answers of the target, or `instance_count: 1`."
        raise PlatformError("the machines have prepared different samples", hint=hint)
