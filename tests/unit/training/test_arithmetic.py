"""What matrices are multiplied in, by what the device can."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from toolkit.training.arithmetic import InFloat32, compute_dtype

CPU = torch.device("cpu")


def test_a_cpu_multiplies_in_bfloat16_only_if_it_has_such_arithmetic() -> None:
    """On x86 oneDNN asks for AVX-512, or for AVX2 that converts to bfloat16."""
    assert compute_dtype(torch.device("cuda")) == torch.bfloat16
    found = torch.cpu.get_capabilities()
    if found["architecture"] == "x86_64":
        has_it = all(found[f"avx512_{part}"] for part in ("bw", "vl", "dq")) or found["avx_ne_convert"]
        assert compute_dtype(CPU) == (torch.bfloat16 if has_it else torch.float32)


def test_a_step_of_muon_is_what_it_is_with_emulation() -> None:
    ends = []
    for context in (nullcontext(), InFloat32()):
        torch.manual_seed(0)
        weights = nn.Parameter(torch.randn(24, 16))
        optimizer = torch.optim.Muon([weights], lr=1.0)
        weights.grad = torch.randn(24, 16)
        with context:
            optimizer.step()
        ends.append(weights.detach())
    assert ends[1] == pytest.approx(ends[0], abs=8 * torch.finfo(torch.bfloat16).eps)
    assert (ends[0] - ends[1]).abs().mean() < torch.finfo(torch.bfloat16).eps
