"""Arguments of vLLM's LLM in a training job: the target as the recipe serves it, in the memory that is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.engines.vllm.budget import limits
from toolkit.memory import free_bytes

if TYPE_CHECKING:
    from toolkit.training.job import Dtype, TrainingJob

_PARALLEL = "tensor-parallel-size"
_AS_SERVED = (
    *("quantization", "load-format", "hf-overrides", "kv-cache-dtype", "cpu-offload-gb"),
    *("enable-expert-parallel", "moe-backend", "attention-backend"),
)
"""Flags of the recipe that decide what the target computes and where its weights lie."""


def job_arguments(job: TrainingJob) -> dict[str, Any]:
    """All but the longest sequence."""
    import torch

    # On a CPU, compiling takes longer than the answers of a small model, and it is a small model there.
    eager = not torch.cuda.is_available()
    gpu = None if eager else torch.cuda.mem_get_info()
    return {
        "model": job.target,
        "dtype": _dtype(job.dtype, on_cpu=eager),
        "seed": job.seed,
        "enforce_eager": eager,
        "disable_log_stats": True,
        "tensor_parallel_size": 1 if eager else tensor_parallel(job, torch.cuda.device_count()),
        **{flag.replace("-", "_"): job.engine_args[flag] for flag in _AS_SERVED if flag in job.engine_args},
        **limits(job.engine_args, free_bytes(), gpu),
    }


def tensor_parallel(job: TrainingJob, gpus: int) -> int:
    """Over how many of the machine's GPUs the target lies: as many as the recipe says, else one."""
    return min(int(job.engine_args.get(_PARALLEL, 1)), gpus)


def _dtype(said: Dtype, *, on_cpu: bool) -> Dtype:
    """As it serves: in float32 on a CPU without arithmetic for bfloat16, which would take many times as long."""
    import torch

    return "float32" if on_cpu and said == "auto" and not torch.ops.mkldnn._is_mkldnn_bf16_supported() else said
