"""Flags that vLLM needs on a CPU, for recipes that leave them open."""

from __future__ import annotations

import pytest

from toolkit.engines.vllm.cpu import cpu_variables

GIB = 1024**3


def test_memory_dtype_and_eager_mode_of_a_plain_cpu() -> None:
    assert cpu_variables((), 12 * GIB, {"avx2"}) == {
        "SM_VLLM_KV_CACHE_MEMORY_BYTES": str(3 * GIB),
        "SM_VLLM_DTYPE": "float32",
        "SM_VLLM_ENFORCE_EAGER": "true",
    }


def test_a_cpu_with_bfloat16_and_much_memory() -> None:
    found = cpu_variables((), 500 * GIB, {"avx512f", "avx512_bf16"})
    assert (found["SM_VLLM_DTYPE"], found["SM_VLLM_KV_CACHE_MEMORY_BYTES"]) == ("bfloat16", str(8 * GIB))


@pytest.mark.parametrize(
    ("given", "left_alone"),
    [
        ("SM_VLLM_DTYPE", "SM_VLLM_DTYPE"),
        ("SM_VLLM_GPU_MEMORY_UTILIZATION", "SM_VLLM_KV_CACHE_MEMORY_BYTES"),
        ("SM_VLLM_NO_ENFORCE_EAGER", "SM_VLLM_ENFORCE_EAGER"),
    ],
)
def test_what_the_recipe_says_stays(given: str, left_alone: str) -> None:
    found = cpu_variables({given}, GIB, ())
    assert left_alone not in found
    assert len(found) == 2
