"""The process in which vLLM answers, without vLLM: its bounds, and that it asks nobody else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from toolkit.engines.vllm import answering, process
from toolkit.engines.vllm.process import NoAnswer

AMPLE = {"seconds": 60, "memory": 2**30}


def forked(ask: Callable[[Mapping[str, Any]], dict[str, str]], **bounds: float) -> dict[str, str]:
    return answering._in_fork(ask, {"x": "y"}, {**AMPLE, **bounds})


def test_an_answer_comes_out_of_its_fork_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEFT", raising=False)

    def ask(question: Mapping[str, Any]) -> dict[str, str]:
        answering.os.environ["LEFT"] = "1"
        return {"refused": question["x"]}

    assert forked(ask) == {"refused": "y"}
    assert "LEFT" not in answering.os.environ


def test_what_computes_too_long_is_ended() -> None:
    def ask(question: Mapping[str, Any]) -> dict[str, str]:
        while True:
            pass

    assert forked(ask, seconds=0.2) == {"failed": "its process ended with -27"}


def test_what_takes_too_much_memory_is_ended() -> None:
    def ask(question: Mapping[str, Any]) -> dict[str, str]:
        return {"refused": str(len(bytearray(2**29)))}

    assert forked(ask) == {"refused": str(2**29)}
    assert "failed" in forked(ask, memory=2**20)


ASKS = """
import socket, sys, tempfile
from toolkit.engines.vllm import answering
sys.addaudithook(answering._no_network)
local = socket.socketpair()
beside = socket.socket(socket.AF_UNIX)
try:
    beside.connect(tempfile.mkdtemp() + "/none")
except FileNotFoundError:
    print("a process of this machine may be asked")
for ask in (lambda: socket.create_connection(("127.0.0.1", PORT)), lambda: socket.getaddrinfo("example.com", 80)):
    try:
        ask()
    except answering.NoNetwork as error:
        print(error)
"""


def test_no_address_is_looked_up_or_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = ASKS.replace("PORT", str(server.getsockname()[1]))
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [
        "a process of this machine may be asked",
        *(["nothing is downloaded here"] * 2),
    ]


def test_the_process_gets_few_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "https_proxy", "VLLM_PLUGINS", "TOOLKIT_HOME"):
        monkeypatch.setenv(name, "x")
    given = process._environment(str(tmp_path), None)
    assert set(given.values()).isdisjoint({"x"})
    assert (given["HOME"], given["HF_HUB_OFFLINE"]) == (str(tmp_path), "1")


@pytest.mark.parametrize("part", ["common", "launchers", "openai"])
def test_the_servers_parser_is_found_where_its_version_has_it(part: str, tmp_path: Path) -> None:
    """In `common` from vLLM 0.33 on, in `launchers` from 0.29 on, and in `openai` before."""
    folder = tmp_path / "vllm" / "entrypoints" / part
    folder.mkdir(parents=True)
    for file in (tmp_path / "vllm" / "__init__.py", folder / "cli_args.py"):
        file.touch()
    program = "from toolkit.engines.vllm.answering import serving_module; print(serving_module().__name__)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    assert ended.stdout.strip() == f"vllm.entrypoints.{part}.cli_args"


def child(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def test_a_process_that_does_not_answer_is_ended() -> None:
    silent, started = child("import time; time.sleep(600)"), time.monotonic()
    with pytest.raises(NoAnswer, match="it took more than 1 s"):
        process._answer(silent, {}, 1.0)
    assert silent.returncode == -9
    assert time.monotonic() - started < 300


def test_a_process_that_ends_gives_no_answer() -> None:
    with pytest.raises(NoAnswer, match="its process ended with exit code 3"):
        process._answer(child("raise SystemExit(3)"), {}, 60.0)
