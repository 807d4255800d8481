"""The estimate of what weights and KV cache leave no room for, against published startup logs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from models import GPT_OSS_20B, GPT_OSS_120B, GPT_OSS_HEAD, LLAMA_8B, facts

from toolkit.engines.vllm.memory import Workspace, workspace
from toolkit.engines.vllm.settings import Settings, sampler_bytes_per_logit
from toolkit.sizing.fit import GIB
from toolkit.sizing.shape import shape_of

LLAMA, GPT_OSS, HEAD = shape_of(facts(LLAMA_8B)), shape_of(facts(GPT_OSS_20B)), shape_of(facts(GPT_OSS_HEAD))


def settings(tokens: int = 8192, sequences: int = 128, drafted: int = 0, eager: bool = False) -> Settings:
    return Settings(None, sequences, tokens, drafted, enforce_eager=eager)


def on_one_gpu(of: Settings) -> Workspace:
    return workspace(LLAMA, None, of, dtype_bytes=2, tensor_parallel=1, on_cpu=False)


@pytest.mark.parametrize(("tokens", "measured_gib"), [(20_000, 17.06 - 14.99), (29_000, 17.98 - 14.99)])
def test_activations_that_were_measured(tokens: int, measured_gib: float) -> None:
    """Llama-3.1-8B, vLLM issue 10517: peak torch memory less weights."""
    assert on_one_gpu(settings(tokens)).activations / GIB == pytest.approx(measured_gib, rel=0.02)


def test_sampling_that_was_measured() -> None:
    """gpt-oss-120b on an H100, vLLM issue 23278: -2.14 GiB were left of 0.9 x 79.19 after 65.97 of weights."""
    measured = 0.9 * 79.19 - 65.97 + 2.14
    shape = shape_of(facts(GPT_OSS_120B))
    old = replace(settings(sequences=1024), sampler_bytes_per_logit=sampler_bytes_per_logit("0.10.1"))
    space = workspace(shape, None, old, dtype_bytes=2, tensor_parallel=1, on_cpu=False)
    assert (space.sampling + space.runtime) / GIB == pytest.approx(measured, rel=0.06)


def test_activations_and_sampling_take_turns() -> None:
    space = Workspace(activations=3, sampling=2, graphs=10, runtime=20)
    assert space.total == 33


def test_eager_needs_no_graphs() -> None:
    assert on_one_gpu(settings(eager=True)).graphs == 0
    assert on_one_gpu(settings()).graphs > 0


def test_a_drafter_adds_its_graphs_its_taps_and_the_logits_to_verify() -> None:
    with_head = workspace(GPT_OSS, HEAD, settings(drafted=7), dtype_bytes=2, tensor_parallel=1, on_cpu=False)
    alone = workspace(GPT_OSS, None, settings(), dtype_bytes=2, tensor_parallel=1, on_cpu=False)
    assert with_head.activations - alone.activations == 8192 * 3 * 2880 * 2
    assert with_head.sampling - alone.sampling == 128 * 8 * 201088 * 4
    assert with_head.graphs > alone.graphs


def test_on_a_cpu_the_process_itself_counts() -> None:
    space = workspace(LLAMA, None, settings(), dtype_bytes=4, tensor_parallel=1, on_cpu=True)
    assert (space.graphs, space.runtime) == (0, GIB)
