"""A head that is divided over processes (FSDP2), each of which keeps a part of every large matrix.

So are its gradient and what optimizers know of it. A matrix is whole only while it is multiplied with, and its gradient
only until it is summed. For that all processes have to go through the same modules in the same order.

What else is here takes heads and tensors that are not divided, too, and processes that are alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from speculators.models.mtp import MTPDraftModel
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from toolkit.training.head import Head


def shard(head: Head, device: torch.device, dtype: torch.dtype) -> None:
    """Divide the head's large modules over all processes, each on its device; `dtype` is what is multiplied in.

    The rest of the head stays where it is.
    """
    assert not isinstance(head, MTPDraftModel)  # which is never divided
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    # The embedding's rows are looked up and not multiplied: they stay as exact as they are.
    modules: dict[nn.Module, torch.dtype] = {head.embed_tokens: torch.float32}
    modules |= dict.fromkeys([head.fc, *head.layers, head.lm_head, head.verifier_lm_head], dtype)
    for module, computed in modules.items():
        policy = MixedPrecisionPolicy(computed, reduce_dtype=torch.float32, cast_forward_inputs=False)
        divided = fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
        divided.set_gradient_divide_factor(1.0)  # gradients are summed; the loop divides them
        divided.set_force_sum_reduction_for_comms(True)  # gloo knows no other sum


def is_part(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether each process has a part of the tensor."""
    return isinstance(tensor, DTensor)


def own(tensor: Tensor) -> Tensor:
    """The part of this process. What is written to it is written to the tensor."""
    return tensor.to_local() if is_part(tensor) else tensor


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all, also of those parts that other processes have."""
    norm = nn.utils.get_total_norm([gradient for gradient in gradients if not is_part(gradient)])
    parts = [own(gradient) for gradient in gradients if is_part(gradient)]
    if not parts:
        return norm
    squares = nn.utils.get_total_norm(parts) ** 2
    dist.all_reduce(squares)
    return (norm**2 + squares).sqrt()


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of all of them, whole, in the first process, and none in the others; all processes have to ask.

    They are in the machine's memory: an accelerator may have no room for what is divided.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if is_part(tensor) else tensor
        if _is_first():
            found[name] = whole.to("cpu", copy=not is_part(tensor))
    return found


def gathered_state(optimizer: Optimizer) -> dict[str, Any]:
    """What the optimizer knows, in the same way."""
    known = optimizer.state_dict()
    return {**known, "state": {number: gathered(state) for number, state in known["state"].items()}}


def fill(tensors: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Write what the first process has `found` into the tensors of all, one after the other."""
    for name, tensor in tensors.items():
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        if _is_first():
            whole.copy_(found[name])
        if dist.is_initialized():
            dist.broadcast(whole, 0)
        if is_part(tensor):
            whole = distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None).to_local()
        own(tensor).copy_(whole)


def handed_out(state: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """The state of the optimizer that the first process has, in all of them."""
    outline = [{**state, "state": {number: _outline(known) for number, known in state.get("state", {}).items()}}]
    if dist.is_initialized():
        dist.broadcast_object_list(outline)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, known in outline[0]["state"].items():
        tensors = {name: torch.zeros_like(weights[number]) for name, value in known.items() if value is None}
        fill(tensors, state["state"][number] if _is_first() else {})
        known |= tensors
    return outline[0]


def _outline(known: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Its single numbers, and None for what has the weight's shape."""
    return {name: value if value.ndim == 0 else None for name, value in known.items()}


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0
