"""Our platform for vLLM on a CPU: its own, but that the engine is forked, with the worker in it, and compiles less."""

from __future__ import annotations

import pytest
from forked_vllm import ForkedVllm

pytestmark = pytest.mark.serving


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("1", ["ForkingCpu", True, "fork", "uni", "eager", "inductor"]),
        ("", ["CpuPlatform", True, "spawn", "mp", "inductor", "inductor"]),
    ],
)
def test_a_server_forks_its_engine_and_compiles_models_only_where_the_local_platform_asks_for_it(
    vllm: ForkedVllm, variable: str, expected: list[object]
) -> None:
    assert vllm.run("platform", {"TOOLKIT_VLLM_FORKS": variable, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}) == expected
