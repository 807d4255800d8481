"""Arguments of vLLM's LLM in a training job: the target as the recipe serves it, in the memory that is free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.engines.vllm.budget import limits
from toolkit.memory import free_bytes
from toolkit.training.split import fewest, sizes

if TYPE_CHECKING:
    from toolkit.training.job import Dtype, TrainingJob

_PARALLEL, _OVERRIDES = "tensor-parallel-size", "hf-overrides"
# How the weights are read and where they lie; what decides what they compute is in the job's `as_served`.
_PLACES = ("load-format", "cpu-offload-gb")


def job_arguments(job: TrainingJob) -> dict[str, Any]:
    """All but the longest sequence."""
    import torch

    # On a CPU, compiling takes longer than the answers of a small model, and it is a small model there.
    eager = not torch.cuda.is_available()
    gpu = None if eager else torch.cuda.mem_get_info()
    flags = {**{flag: job.engine_args[flag] for flag in _PLACES if flag in job.engine_args}, **job.as_served}
    if isinstance(text := flags.get(_OVERRIDES), str):  # as on a command line
        flags[_OVERRIDES] = json.loads(text)
    return {
        "model": job.target,
        "dtype": _dtype(job.dtype, on_cpu=eager),
        "seed": job.seed,
        "enforce_eager": eager,
        "disable_log_stats": True,
        "tensor_parallel_size": 1 if gpu is None else tensor_parallel(job, torch.cuda.device_count(), gpu[1]),
        **{flag.replace("-", "_"): value for flag, value in flags.items()},
        **limits(job.engine_args, free_bytes(), gpu),
    }


def tensor_parallel(job: TrainingJob, gpus: int, gpu_bytes: int) -> int:
    """Over how many of the machine's GPUs the target lies: as few as hold it, and at least as many as serve it."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(job.target, local_files_only=True).get_text_config()  # nosec B615
    weights = sum(path.stat().st_size for path in Path(job.target).glob("*.safetensors"))
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    able = sizes(heads, kv_heads, int(job.engine_args.get(_PARALLEL, 1)), gpus)
    return fewest(able, lambda size: weights / size, gpu_bytes) or able[-1]


def _dtype(said: Dtype, *, on_cpu: bool) -> Dtype:
    """As it serves: in float32 on a CPU without arithmetic for bfloat16, which would take many times as long."""
    import torch

    return "float32" if on_cpu and said == "auto" and not torch.ops.mkldnn._is_mkldnn_bf16_supported() else said
