"""One training on several GPUs, of one or more machines: a process for each GPU, as torchrun starts them.

torchrun's own program is for trainings that change their size. It opens a port to the network also on one machine, and
loses its processes' exit codes; its process manager, which this uses, does neither.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes

from toolkit import documents
from toolkit.children import python_command
from toolkit.errors import PlatformError

MEETING = "TOOLKIT_MEETING"
"""The variable with the address at which the processes meet, as `torch.distributed` writes it."""

STOPPED = 128 + signal.SIGTERM
_PORT = "29400"
# A spot instance is taken away two minutes after SIGTERM.
_STOP_SECONDS = 100
_TOLD_CODES = (2, 3)
_TAKEN_OVER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PR_SET_PDEATHSIG = 1


class Machines(NamedTuple):
    """All machines of a training in an order that all of them know, and which of them this is."""

    hosts: Sequence[str]
    this: int


@dataclass(frozen=True)
class _Resources:
    """What is read of SageMaker's resourceconfig.json."""

    hosts: list[str]
    current_host: str


def job_machines(ml: Path = Path("/opt/ml")) -> Machines:
    """The machines that SageMaker lists for its job; elsewhere this one alone. Raises PlatformError."""
    path = ml / "input" / "config" / "resourceconfig.json"
    try:
        found = documents.parse(_Resources, documents.read_file(path))
    except FileNotFoundError:
        return Machines(["localhost"], 0)
    except (OSError, ValueError) as error:
        raise PlatformError(
            f"{path} cannot be used: {error}", hint="SageMaker writes it: start the job again."
        ) from error
    hosts = sorted(found.hosts)
    if found.current_host not in hosts:
        raise PlatformError(f"{path} does not list this machine", hint="SageMaker writes it: start the job again.")
    return Machines(hosts, hosts.index(found.current_host))


def gpus() -> int:
    """Processes of this machine: one for each GPU, or one on the CPU."""
    return max(1, torch.accelerator.device_count())


def free_gpus() -> None:
    """Give back the GPUs' memory that this process no longer uses: others are to take it."""
    gc.collect()
    torch.cuda.empty_cache()


def is_worker() -> bool:
    """Whether this is one of several processes that were started together."""
    return MEETING in os.environ


def is_first_here() -> bool:
    """Whether it is the first of this machine."""
    return os.environ["LOCAL_RANK"] == "0"


def end_with_parent() -> None:
    """Have a worker save a checkpoint and end when whoever started it is killed: the next start must be alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def launch(folder: Path, count: int, machines: Machines, method: str) -> int:
    """Train the head of a folder's job in `count` processes of this machine; their exit code, 143 if it was stopped."""
    free_gpus()
    with TemporaryDirectory(prefix="toolkit-") as scratch, _signals_as_before():
        environment = [environment_of(rank, count, machines, Path(scratch)) for rank in range(count)]
        program, *arguments = python_command("-m", "toolkit.training", str(folder), "--method", method)
        processes = start_processes(
            "train",
            program,
            dict.fromkeys(range(count), tuple(arguments)),
            dict(enumerate(environment)),
            DefaultLogsSpecs(),
        )
        try:
            ended = processes.wait()
        except SignalException as error:
            processes.close(error.sigval, _STOP_SECONDS)
            return STOPPED
        finally:
            processes.close()  # whatever ends the wait, such as a second Ctrl-C
    codes = [failure.exitcode for failure in ended.failures.values()] if ended else []
    return exit_code(codes)


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """Afterwards signals do again what they did: the process manager takes them over, and keeps them."""
    before = {number: signal.getsignal(number) for number in _TAKEN_OVER}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(codes: Sequence[int]) -> int:
    """Of several processes that failed: one that says why, and not one that only lost the others."""
    if not codes:
        return 0
    found = next((code for code in _TOLD_CODES if code in codes), codes[0])
    return found if found > 0 else 128 - found


def environment_of(rank: int, count: int, machines: Machines, scratch: Path) -> dict[str, str]:
    """Variables of one process, by torchrun's names. On one machine they meet in a file, and open no port."""
    alone = len(machines.hosts) == 1
    meeting = {MEETING: f"file://{scratch}/meeting", "GLOO_SOCKET_IFNAME": "lo"} if alone else {MEETING: "env://"}
    return {
        "LOCAL_RANK": str(rank),
        "RANK": str(machines.this * count + rank),
        "WORLD_SIZE": str(len(machines.hosts) * count),
        "MASTER_ADDR": machines.hosts[0],
        "MASTER_PORT": _PORT,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        **meeting,
    }
