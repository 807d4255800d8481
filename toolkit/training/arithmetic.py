"""What matrices are multiplied in: what the device has arithmetic for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16, but float32 on CPUs that have no arithmetic for it and emulate it."""
    if device.type != "cpu":
        return torch.bfloat16
    mkldnn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return torch.bfloat16 if mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def computing(device: torch.device) -> torch.autocast:
    """A context in which matrices are multiplied as training does it."""
    dtype = compute_dtype(device)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def without_emulation(device: torch.device) -> AbstractContextManager[object]:
    """A context for code that multiplies in bfloat16 wherever it runs, as torch's Muon does.

    A CPU that has no arithmetic for it takes 25 times as long as in float32 (AVX2, torch 2.13): there matrices are
    multiplied in float32, and products rounded to bfloat16.
    """
    return nullcontext() if compute_dtype(device) == torch.bfloat16 else InFloat32()  # type: ignore[no-untyped-call]


class InFloat32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, matrices in bfloat16 are multiplied in float32, and the product is rounded to bfloat16."""

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _PRODUCTS and args[0].dtype is torch.bfloat16:
            return func(*(matrix.float() for matrix in args), **(kwargs or {})).bfloat16()
        return func(*args, **(kwargs or {}))
