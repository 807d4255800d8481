"""`containers/vllm/serve` as a process with a real vLLM: when it says that it is healthy, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit.home import cache
from toolkit.platforms.local.container import free_port

pytestmark = pytest.mark.serving

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "recipes" / "tiny" / "models"
KEY = "hunter2"
STREAMS, TOKENS = 8, 900  # at once: seconds, even with nothing else to do
REST_SECONDS = 5  # that they have still to go at SIGTERM; they get 25
STEP_SECONDS = 4  # without a step, and an engine is stuck
P_EAGLE = {"method": "eagle3", "model": str(MODELS / "p-eagle"), "num_speculative_tokens": 7, "parallel_drafting": True}
# vLLM loads this head as if it were a model of its own, and finds out with the first draft that it is not.
NOT_A_DRAFT_MODEL = {"method": "draft_model", "model": str(MODELS / "p-eagle"), "num_speculative_tokens": 4}


@dataclass(frozen=True)
class Answer:
    status: int
    text: str


class Container:
    """The entrypoint's process, and a client of it."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        port = free_port()
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {KEY}"}, timeout=120
        )
        self._log = folder / "log"
        (folder / ".cache").mkdir()
        (folder / ".cache" / "vllm").symlink_to(vllm_cache())
        basics = {
            "HOME": "/dev/null",  # as of a user without one
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder),  # and of the home that `serve` makes there
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "SAGEMAKER_BASE_DIR": str(folder),
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "SM_VLLM_HOST": "127.0.0.1",
            "SM_VLLM_MODEL": str(MODELS / "target"),
            "SM_VLLM_API_KEY": KEY,
            "SM_VLLM_MAX_MODEL_LEN": "1024",
            "SM_VLLM_DTYPE": "float32",
            "SM_VLLM_ENFORCE_EAGER": "true",
            "SM_VLLM_KV_CACHE_MEMORY_BYTES": "268435456",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else all of them on this machine share one core
            "OMP_NUM_THREADS": "1",
            "TOOLKIT_VLLM_FORKS": "1",  # as the local platform sets it: that halves the start
        }
        program = [sys.executable, ROOT / "containers" / "vllm" / "serve", "serve"]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                program, env=basics | dict(env), stdout=log, stderr=log, cwd=folder, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        response = self.client.request(method, path, json=body)
        return Answer(response.status_code, response.text)

    def pings(self) -> Iterator[Answer]:
        """Its answers from the first on, for as long as the process lives."""
        while self.process.poll() is None:
            try:
                answer = self.ask("GET", "/ping")
            except httpx.TransportError:  # not yet, or not any more
                time.sleep(0.2)
            else:
                yield answer


@contextmanager
def container(folder: Path, env: Mapping[str, str]) -> Iterator[Container]:
    started = Container(folder, env)
    try:
        yield started
    finally:
        started.client.close()
        if started.process.poll() is None:
            os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()


@dataclass(frozen=True)
class Life:
    """What was seen of a container from its start to its end.

    Fields:
        pings: answers up to the first 200.
        stuck, going_on: answers of a ping while the engine was stopped and a request waited, and afterwards.
        metrics: at that moment, before any request of a client.
        finished: reasons why the answers of the stream ended that was open at SIGTERM.
        ping, invocation: meanwhile.
        exit_code, log: in the end.
    """

    pings: list[Answer]
    stuck: Answer
    going_on: Answer
    metrics: str
    finished: list[str]
    ping: Answer
    invocation: Answer
    exit_code: int
    log: str


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    with container(
        tmp_path_factory.mktemp("container"),
        {"SM_VLLM_SPECULATIVE_CONFIG": json.dumps(P_EAGLE), "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(STEP_SECONDS)},
    ) as running:
        pings = []
        for answer in running.pings():
            pings.append(answer)
            if answer.status == 200:
                break
        metrics = running.ask("GET", "/metrics").text

        stuck, going_on = stopped_for_a_while(running)
        streams = Streams(running)
        client = threading.Thread(target=streams.read)
        client.start()
        assert streams.near_their_end.wait(600)
        running.process.send_signal(signal.SIGTERM)
        ping = next(answer for answer in running.pings() if answer.status != 200)
        invocation = running.ask("POST", "/invocations", {"prompt": "One", "max_tokens": 1})
        client.join()
        exit_code = running.process.wait(timeout=60)
        return Life(pings, stuck, going_on, metrics, streams.finished, ping, invocation, exit_code, running.log)


def stopped_for_a_while(running: Container) -> tuple[Answer, Answer]:
    """The first ping that fails while the engine's process is stopped and a request waits, and the first good one."""
    engine = engine_process(running.process.pid)
    body = {"prompt": "One", "max_tokens": 5, "ignore_eos": True}
    os.kill(engine, signal.SIGSTOP)
    try:
        request = threading.Thread(target=running.ask, args=("POST", "/invocations", body))
        request.start()
        stuck = next(answer for answer in slowly(running.pings()) if answer.status != 200)
    finally:
        os.kill(engine, signal.SIGCONT)
    request.join()
    return stuck, next(answer for answer in slowly(running.pings()) if answer.status == 200)


def engine_process(server: int) -> int:
    """vLLM's EngineCore, by the name that it gives itself."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    (found,) = [pid for pid in children if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text()]
    return int(found)


def slowly(answers: Iterator[Answer]) -> Iterator[Answer]:
    """As a platform asks, for two minutes."""
    for _ in range(240):
        yield next(answers)
        time.sleep(0.5)


class Streams:
    """The answers of one request, read as they come."""

    def __init__(self, running: Container) -> None:
        self._running = running
        self.near_their_end = threading.Event()
        self.finished: list[str] = []

    def read(self) -> None:
        """Until all have ended, or the connection breaks. As fast as they came so far they are near their end."""
        body = {"prompt": "One", "n": STREAMS, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        arrived, began = 0, 0.0
        with self._running.client.stream("POST", "/v1/completions", json={**body, "return_token_ids": True}) as answer:
            for line in answer.iter_lines():
                for choice in _choices(line):
                    arrived += len(choice["token_ids"])
                    began = began or time.monotonic()
                    rest = (STREAMS * TOKENS - arrived) * (time.monotonic() - began) / arrived
                    if arrived > STREAMS * 10 and rest < REST_SECONDS:
                        self.near_their_end.set()
                    if choice["finish_reason"]:
                        self.finished.append(choice["finish_reason"])


def _choices(line: str) -> list[dict[str, Any]]:
    """Of one line of a stream."""
    data = line.removeprefix("data: ")
    return json.loads(data)["choices"] if data and data != "[DONE]" else []


def vllm_cache() -> Path:
    """What vLLM finds out about a model's class takes it 8 s a model, and is kept there for all tests."""
    folder = cache() / "vllm"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_ping_fails_until_a_generation_has_worked(life: Life) -> None:
    *before, healthy = [answer.status for answer in life.pings]

    assert before
    assert set(before) == {503}
    assert healthy == 200
    assert "the first generation has not finished" in life.pings[0].text


def test_the_generation_drafted_several_times(life: Life) -> None:
    def counted(name: str) -> float:
        return sum(float(count) for count in re.findall(rf"(?m)^vllm:{name}_total{{.*}} (.+)$", life.metrics))

    assert counted("generation_tokens") >= 32
    assert counted("spec_decode_num_drafts") >= 3


def test_an_engine_that_is_stopped_while_a_request_waits_fails_the_ping_until_it_goes_on(life: Life) -> None:
    assert life.stuck.status == 503
    assert re.search("requests wait, and the engine has made no step for [4-9]", life.stuck.text)
    assert life.going_on.status == 200
    assert "serve: requests wait, and the engine makes no step" in life.log
    assert "serve: the engine makes steps again" in life.log


def test_the_log_says_when_and_never_the_key(life: Life) -> None:
    assert "serve: the first generation worked (32 tokens in " in life.log
    assert KEY not in life.log


def test_the_start_line_names_vllms_version(life: Life) -> None:
    assert life.log.startswith("serve: vLLM 0.32.0, Python 3.")


def test_sigterm_lets_an_open_stream_finish(life: Life) -> None:
    assert life.finished == ["length"] * STREAMS
    assert life.exit_code == 0


def test_the_forked_engine_does_not_hold_the_servers_port(life: Life) -> None:
    assert "[shutdown] API server: shutting down FastAPI HTTP server" in life.log
    assert "is used by process" not in life.log


def test_new_requests_are_refused_meanwhile(life: Life) -> None:
    refused = Answer(503, json.dumps({"reason": "the server is shutting down"}))

    assert life.ping == refused
    assert life.invocation == refused


def test_a_head_that_dies_in_its_first_draft_is_never_healthy(tmp_path_factory: pytest.TempPathFactory) -> None:
    # vLLM makes its sockets in the folder, and a socket's path has at most 107 characters.
    folder = tmp_path_factory.mktemp("dies")
    with container(folder, {"SM_VLLM_SPECULATIVE_CONFIG": json.dumps(NOT_A_DRAFT_MODEL)}) as running:
        assert {answer.status for answer in running.pings()} == {503}
        assert "serve: the first generation failed (/v1/completions is 500: " in running.log
