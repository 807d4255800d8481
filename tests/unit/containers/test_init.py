"""Every program of ours as the first process of a container: what serves, compiles and trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from neuron_machine import ARTIFACT_VARIABLES, CONTAINERS, NXD_INFERENCE, VLLM_NEURON, Engine, Machine
from processes import until

ALONE = ["unshare", "--pid", "--fork", "--kill-child"]
PROGRAMS = ["serve", "compile NxD", "compile vLLM Neuron", "train"]

# What they run, while it loads: it has no handler yet. A child of it is left alone by its own parent, and ends.
LOADS = """
import os, signal, subprocess
subprocess.run(["sh", "-c", "sleep 0.1 & sleep 0.1 &"])
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""
HANDLES = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))
print("ready", flush=True)
while True:
    signal.pause()
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture(params=PROGRAMS)
def start(request: pytest.FixtureRequest, machine: Machine) -> Start:
    """Starts one of the programs as a container's first process; the text is what it runs: an engine, a training."""
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: only root may start processes in a namespace of their own")

    def run(text: str) -> subprocess.Popen[str]:
        machine.server.write_text(text)
        if request.param == "train":
            return train(machine, text)
        if request.param == "serve":
            return subprocess.Popen(
                [*ALONE, sys.executable, str(CONTAINERS / "vllm" / "serve")],
                env={**machine.variables, "HF_MODEL_ID": "hub"},
                stdout=subprocess.PIPE,
                text=True,
            )
        engine: Engine = NXD_INFERENCE if request.param == "compile NxD" else VLLM_NEURON
        variables = ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)}
        return machine.start("compile_for", engine, variables, before=ALONE)

    return run


def train(machine: Machine, text: str) -> subprocess.Popen[str]:
    package = machine.packages / "toolkit" / "training"
    package.mkdir(parents=True)
    for name in ("__init__.py", "../__init__.py"):
        (package / name).touch()
    (package / "__main__.py").write_text(text)
    command = [*ALONE, sys.executable, str(CONTAINERS / "train" / "train"), "job"]
    return subprocess.Popen(command, env=machine.variables, stdout=subprocess.PIPE, text=True)


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[tuple[int, str]]:
    """The id of the container's first process, and what was said first; it ends with the block."""
    with process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            (first,) = children(process.pid)
            yield first, said
        finally:
            process.kill()


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def test_a_stop_is_passed_on_while_it_loads(start: Start) -> None:
    process = start(LOADS)
    with running(process) as (first, said):
        assert int(said) > 1, "what loads is not the first"
        os.kill(first, signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM


def test_what_others_left_is_reaped(start: Start) -> None:
    with running(start(LOADS)) as (first, _):
        (child,) = until(lambda: found if len(found := children(first)) == 1 else None) or []
        until(lambda: not any(state(pid) == "Z" for pid in [*children(first), *children(child)]))


def state(pid: int) -> str:
    """As /proc says it: Z for one that has ended and is not reaped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_ends_with_the_code_of_what_it_runs(start: Start) -> None:
    process = start("raise SystemExit(17)")
    process.communicate(timeout=30)
    assert process.returncode == 17


def test_a_handler_of_what_it_runs_is_heard(start: Start, request: pytest.FixtureRequest) -> None:
    process = start(HANDLES)
    with running(process) as (first, _):
        os.kill(first, signal.SIGTERM)
        compiles = "compile" in request.node.name
        assert process.wait(timeout=30) == (128 + signal.SIGTERM if compiles else 43), "what compiles has ended early"
