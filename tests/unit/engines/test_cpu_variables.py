"""Flags that vLLM needs on a CPU, for recipes that leave them open."""

from __future__ import annotations

import pytest

from toolkit.engines.vllm.rules import VllmOnCpu

GIB = 1024**3


def test_memory_dtype_eager_mode_and_threads_of_a_plain_cpu() -> None:
    assert VllmOnCpu().variables((), 12 * GIB, {"avx2"}, cores=8) == {
        "SM_VLLM_KV_CACHE_MEMORY_BYTES": str(3 * GIB),
        "SM_VLLM_DTYPE": "float32",
        "SM_VLLM_ENFORCE_EAGER": "true",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "7",
        "NUMBA_NUM_THREADS": "7",
        "TOOLKIT_VLLM_FORKS": "1",
    }


def test_a_machine_with_one_core_has_a_thread() -> None:
    assert VllmOnCpu().variables((), GIB, (), cores=1)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("given", ["VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"])
def test_who_sets_threads_sets_all_of_them(given: str) -> None:
    ours = {"VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TOOLKIT_VLLM_FORKS"}
    assert ours.isdisjoint(VllmOnCpu().variables({given}, GIB, (), cores=8))


def test_a_cpu_with_bfloat16_and_much_memory() -> None:
    found = VllmOnCpu().variables((), 500 * GIB, {"avx512f", "avx512_bf16"}, cores=8)
    assert (found["SM_VLLM_DTYPE"], found["SM_VLLM_KV_CACHE_MEMORY_BYTES"]) == ("bfloat16", str(8 * GIB))


def test_vllm_that_compiles_keeps_it_in_the_form_that_it_can_load() -> None:
    assert VllmOnCpu().variables({"SM_VLLM_NO_ENFORCE_EAGER"}, GIB, (), cores=8)["VLLM_USE_AOT_COMPILE"] == "0"


@pytest.mark.parametrize(
    ("given", "not_set"),
    [
        ("SM_VLLM_DTYPE", "SM_VLLM_DTYPE"),
        ("SM_VLLM_GPU_MEMORY_UTILIZATION", "SM_VLLM_KV_CACHE_MEMORY_BYTES"),
        ("SM_VLLM_NO_ENFORCE_EAGER", "SM_VLLM_ENFORCE_EAGER"),
    ],
)
def test_what_the_recipe_says_stays(given: str, not_set: str) -> None:
    found = VllmOnCpu().variables({given}, GIB, (), cores=8)
    assert set(VllmOnCpu().variables((), GIB, (), cores=8)) - set(found) == {not_set}
