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

import httpx
import pytest

from toolkit.platforms.local.container import free_port

pytestmark = [pytest.mark.serving, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "recipes" / "tiny" / "models"
KEY = "hunter2"
TOKENS = 900  # of eight answers at once: seconds, even with nothing else to do
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
        basics = {
            "HOME": "/dev/null",  # as of a user without one
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder),
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
        metrics: at that moment, before any request of a client.
        finished: reasons why the answers of the stream ended that was open at SIGTERM.
        ping, invocation: meanwhile.
        exit_code, log: in the end.
    """

    pings: list[Answer]
    metrics: str
    finished: list[str]
    ping: Answer
    invocation: Answer
    exit_code: int
    log: str


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    with container(
        tmp_path_factory.mktemp("container"), {"SM_VLLM_SPECULATIVE_CONFIG": json.dumps(P_EAGLE)}
    ) as running:
        pings = []
        for answer in running.pings():
            pings.append(answer)
            if answer.status == 200:
                break
        metrics = running.ask("GET", "/metrics").text

        finished: list[str] = []
        first_token = threading.Event()
        client = threading.Thread(target=_stream, args=(running, first_token, finished))
        client.start()
        assert first_token.wait(120)
        running.process.send_signal(signal.SIGTERM)
        ping = next(answer for answer in running.pings() if answer.status != 200)
        invocation = running.ask("POST", "/invocations", {"prompt": "One", "max_tokens": 1})
        client.join()
        exit_code = running.process.wait(timeout=60)
        return Life(pings, metrics, finished, ping, invocation, exit_code, running.log)


def _stream(running: Container, first_token: threading.Event, finished: list[str]) -> None:
    body = {"prompt": "Hello", "n": 8, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    with running.client.stream("POST", "/v1/completions", json=body) as response:
        for line in response.iter_lines():
            first_token.set()
            finished += re.findall(r'"finish_reason":"(\w+)"', line)


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


def test_the_log_says_when_and_never_the_key(life: Life) -> None:
    assert "serve: the first generation worked (32 tokens in " in life.log
    assert KEY not in life.log


def test_the_start_line_names_vllms_version(life: Life) -> None:
    assert life.log.startswith("serve: vLLM 0.32.0, Python 3.")


def test_sigterm_lets_an_open_stream_finish(life: Life) -> None:
    assert life.finished == ["length"] * 8
    assert life.exit_code == 0


def test_new_requests_are_refused_meanwhile(life: Life) -> None:
    refused = Answer(503, json.dumps({"reason": "the server is shutting down"}))

    assert life.ping == refused
    assert life.invocation == refused


def test_a_head_that_dies_in_its_first_draft_is_never_healthy(tmp_path: Path) -> None:
    with container(tmp_path, {"SM_VLLM_SPECULATIVE_CONFIG": json.dumps(NOT_A_DRAFT_MODEL)}) as running:
        answers = list(running.pings())

        assert {answer.status for answer in answers} == {503}
        assert "serve: the first generation failed (/v1/completions is 500: " in running.log


def test_a_vllm_that_dies_at_start_ends_the_container_with_its_code(tmp_path: Path) -> None:
    with container(tmp_path, {"SM_VLLM_MAX_LOGPROBS": "many"}) as running:
        assert running.process.wait(timeout=300) == 2
        assert "argument --max-logprobs: invalid" in running.log
