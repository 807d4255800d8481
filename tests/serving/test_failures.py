"""A real vLLM that dies: at its start, and in service."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import toolkit
from tests.processes import until
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointFailed, InvocationError
from toolkit.platforms.local.folders import endpoint_folder, endpoints_folder
from toolkit.platforms.local.platform import LocalPlatform

pytestmark = pytest.mark.serving
PROMPT = "Write JSON records of the books 205 to 215."


def test_a_vllm_that_dies_at_start_gives_its_last_words_at_once() -> None:
    recipe = toolkit.load("tiny/p-eagle")
    engine = recipe.engine.edit(args={**recipe.engine.args, "load-format": "sharded_state"})
    broken = replace(recipe, name="tiny-broken", engine=engine)

    with pytest.raises(EndpointFailed, match="Could not find checkpoint files") as failed:
        toolkit.deploy(broken, progress=Silent())

    said = time.time()
    handle = toolkit.connect("tiny-broken")
    assert isinstance(handle.platform, LocalPlatform)
    describe = handle.platform.clients.sagemaker.describe_endpoint
    # On a busy machine its log tells that it cannot start well before its process has ended.
    reason = until(lambda: describe(EndpointName="tiny-broken").get("FailureReason"))
    assert reason.endswith("It ended with exit code 1.")
    died = max(line.time for line in handle.platform.logs("tiny-broken"))
    handle.destroy()
    assert failed.value.cause
    assert failed.value.cause.code == "tensors"
    assert failed.value.logs
    assert said - died < (recipe.platform.health_check_timeout or 600) / 4, "the wait ends when the container does"


def test_a_vllm_that_is_killed_in_service_comes_back(endpoint: Endpoint) -> None:
    before = endpoint.chat(PROMPT, max_tokens=32).text
    engines = _engines(endpoint)
    assert engines
    for engine in engines:
        os.kill(engine, signal.SIGKILL)

    assert _answer_within(endpoint, seconds=240) == before


def _answer_within(endpoint: Endpoint, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return endpoint.chat(PROMPT, max_tokens=32).text
        except InvocationError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _engines(endpoint: Endpoint) -> list[int]:
    """The processes of this endpoint's vLLM in which the model runs: they work in the container's folder."""
    folder = endpoint_folder(endpoints_folder(Path(os.environ["TOOLKIT_HOME"]) / "local"), endpoint.name)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while we look
            is_engine = (process / "cmdline").read_bytes().startswith(b"VLLM::EngineCore")
            if is_engine and (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found
