"""vLLM's CPU platform, whose engine is forked from the server. Imported by vLLM only, see `fork_plugin`.

vLLM starts the engine and each worker as new interpreters, since it gives each worker its own OpenMP variables, which
are read once in a process. Each then imports PyTorch and vLLM again: half the time, and half the CPU time, until a
server is ready. Where the variables are those of the server (`cpu_variables`), a copy of the server does; a single
worker then needs no process of its own, and none that busily waits for the next step.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

if TYPE_CHECKING:
    from vllm.config import VllmConfig  # is being imported when vLLM asks for its platform


class ForkingCpu(CpuPlatform):
    # Small functions that vLLM compiles even with `enforce-eager`, such as that of an engine's first log-probabilities:
    # inductor takes seconds for each, and saves microseconds.
    simple_compile_backend = "eager"

    @classmethod
    def get_compile_backend(cls) -> str:
        """That of whole models, where they are compiled."""
        return CpuPlatform.simple_compile_backend

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        executor = vllm_config.parallel_config.distributed_executor_backend
        super().check_and_update_config(vllm_config)
        vllm_config.parallel_config.distributed_executor_backend = executor
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"


def _leave_to_server() -> None:
    """Let the engine have none of the server's TCP sockets, nor tell the server of the engine's signals.

    Else vLLM finds at its end that the engine holds its port, asks what that process is, and fails if it has just gone.
    """
    signal.set_wakeup_fd(-1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # it is no socket
            found = socket.socket(fileno=descriptor)
            if found.family in (socket.AF_INET, socket.AF_INET6):
                os.dup2(nothing, descriptor)  # not closed: objects of the server's will close that number once more
            found.detach()
    os.close(nothing)


os.register_at_fork(after_in_child=_leave_to_server)
