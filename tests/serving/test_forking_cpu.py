"""Our platform for vLLM on a CPU: its own, but that its processes are forked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.serving

CONFIGURED = """
import os
from vllm.config import CacheConfig, VllmConfig
from vllm.platforms import current_platform

VllmConfig(cache_config=CacheConfig(kv_cache_memory_bytes=2**20))
print(type(current_platform).__name__, current_platform.is_cpu(), os.environ["VLLM_WORKER_MULTIPROC_METHOD"])
"""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({"TOOLKIT_VLLM_FORKS": "1"}, "ForkingCpu True fork"), ({}, "CpuPlatform True spawn")],
)
def test_a_server_forks_its_engine_where_the_local_platform_asks_for_it(
    variables: dict[str, str], expected: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TOOLKIT_VLLM_FORKS"}
    command = [sys.executable, "-c", CONFIGURED]
    ended = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == [expected], ended.stderr
