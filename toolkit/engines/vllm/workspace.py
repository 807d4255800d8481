"""Memory besides weights and KV cache. An estimate: only the engine's profiling run on the device measures it.

The constants are fitted to published start-up logs (tests/unit/sizing/published_memory.json names each): they give the
middle of what was logged, and `memory` says by how much the truth may differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.engines.vllm.settings import Settings
from toolkit.sizing.fit import GIB
from toolkit.sizing.shape import Shape

VERIFICATION_BYTES_PER_LOGIT = 4
"""Logits of every draft token and the bonus token, float32 (vLLM, v1/sample/rejection_sampler.py)."""

GRAPHS_BYTES, DRAFTER_GRAPHS_BYTES = 3 * GIB // 8, GIB // 8
"""CUDA graphs as the engine estimates them before it plans the KV cache: 0.1 to 0.8 GiB in logs of 0.18 to 0.26."""

NON_TORCH_BYTES = 3 * GIB // 20
"""CUDA libraries beside torch: 0.02 to 0.35 GiB in published logs (the highest: vLLM issue 10517)."""

COMMUNICATION_BYTES = GIB // 10
"""All-reduce buffers of tensor parallelism: at most 0.25 GiB in logs with two and four GPUs."""

CPU_PROCESS_BYTES = GIB
"""The worker process before its weights: 0.85 to 0.99 GB measured (vLLM 0.32 on CPU, eager)."""


@dataclass(frozen=True)
class Workspace:
    """Bytes on one accelerator. Activations and sampling are not held at the same time."""

    activations: int
    sampling: int
    graphs: int
    runtime: int

    @property
    def total(self) -> int:
        """Peak bytes of everything together."""
        return max(self.activations, self.sampling) + self.graphs + self.runtime


def workspace(
    target: Shape, drafter: Shape | None, settings: Settings, *, dtype_bytes: int, tensor_parallel: int, on_cpu: bool
) -> Workspace:
    """The estimate for one of `tensor_parallel` accelerators, at `max_num_batched_tokens` and `max_num_seqs`."""
    per_token = _values_per_token(target, tensor_parallel)
    if drafter:
        per_token = max(per_token, _values_per_token(drafter, tensor_parallel))
        per_token += drafter.taps * target.hidden  # the target's hidden states are kept for the head
    positions = settings.max_num_seqs * (1 + settings.num_speculative_tokens)
    sampled = settings.max_num_seqs * settings.sampler_bytes_per_logit
    verified = positions * VERIFICATION_BYTES_PER_LOGIT if settings.num_speculative_tokens else 0
    counted = settings.graphs_counted and not settings.enforce_eager and not on_cpu
    graphs = GRAPHS_BYTES + (DRAFTER_GRAPHS_BYTES if drafter else 0)
    runtime = NON_TORCH_BYTES + (COMMUNICATION_BYTES if tensor_parallel > 1 else 0)
    return Workspace(
        activations=settings.max_num_batched_tokens * per_token * dtype_bytes,
        sampling=(sampled + verified) * target.vocabulary,
        graphs=graphs if counted else 0,
        runtime=CPU_PROCESS_BYTES if on_cpu else runtime,
    )


def _values_per_token(shape: Shape, tensor_parallel: int) -> int:
    """Values per token at a layer's peak, in the MLP: gate, up and their product, hidden state and residual.

    Llama-3.1-8B in bfloat16 on one GPU: 110,592 bytes here, 109,800 measured (vLLM issue 10517, 20,000 against 29,000
    tokens).
    """
    own = 3 * shape.hidden
    if shape.experts:
        expert = 3 * shape.expert_intermediate // tensor_parallel + shape.hidden
        return own + shape.experts_per_token * expert
    return own + 3 * shape.intermediate // tensor_parallel
