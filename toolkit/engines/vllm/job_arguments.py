"""Arguments of vLLM's LLM in a training job: the target as the recipe serves it, in the memory that is free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.engines.vllm.budget import limits
from toolkit.memory import free_bytes

if TYPE_CHECKING:
    from toolkit.training.job import Dtype, TrainingJob

_PARALLEL = "tensor-parallel-size"
# Of a GPU's memory: the rest is for the KV cache, the states beside it, and what vLLM computes in.
_WEIGHTS_SHARE = 0.8
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
        "tensor_parallel_size": 1 if gpu is None else tensor_parallel(job, torch.cuda.device_count(), gpu[1]),
        **{flag.replace("-", "_"): job.engine_args[flag] for flag in _AS_SERVED if flag in job.engine_args},
        **limits(job.engine_args, free_bytes(), gpu),
    }


def tensor_parallel(job: TrainingJob, gpus: int, gpu_bytes: int) -> int:
    """Over how many of the machine's GPUs the target lies: as few as hold it, and at least as many as serve it."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(job.target).get_text_config()
    weights = sum(path.stat().st_size for path in Path(job.target).glob("*.safetensors"))
    least = min(int(job.engine_args.get(_PARALLEL, 1)), gpus)
    sizes = [size for size in range(least, gpus + 1) if config.num_attention_heads % size == 0] or [least]
    return next((size for size in sizes if weights / size <= _WEIGHTS_SHARE * gpu_bytes), sizes[-1])


def _dtype(said: Dtype, *, on_cpu: bool) -> Dtype:
    """As it serves: in float32 on a CPU without arithmetic for bfloat16, which would take many times as long."""
    import torch

    return "float32" if on_cpu and said == "auto" and not torch.ops.mkldnn._is_mkldnn_bf16_supported() else said
