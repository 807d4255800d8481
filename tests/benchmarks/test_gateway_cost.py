"""What the gateway adds to a request: the same vLLM through it and directly, in turn, at concurrency 1 and 8."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.platforms.local import daemon
from toolkit.platforms.local.platform import LocalPlatform

ROUNDS = 12
TOKENS = 256


@dataclass(frozen=True)
class Timing:
    """Seconds to the first byte and to the last."""

    first: float
    last: float


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TOOLKIT_HOME", str(home))
        yield toolkit.deploy("tiny/p-eagle", progress=Silent())
    daemon.stop(home / "local")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_through_the_gateway_and_directly(
    endpoint: Endpoint, concurrency: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(endpoint.platform, LocalPlatform)
    listening = re.search(r"--uds (\S+)", next(endpoint.logs()))
    assert listening
    access = endpoint.platform.openai_access(endpoint.name)
    prompts = [prompt.text for prompt in endpoint.workloads[0].prompts]
    with (
        httpx.Client(timeout=120, transport=httpx.HTTPTransport(uds=listening[1])) as direct,
        httpx.Client(timeout=120) as client,
        ThreadPoolExecutor(concurrency) as threads,
    ):
        asks = {
            "direct": lambda prompt: _ask(direct, "http://localhost/invocations", "", prompt),
            "gateway": lambda prompt: _ask(client, f"{access.base_url}/chat/completions", access.token(), prompt),
        }
        timings: dict[str, list[Timing]] = {name: [] for name in asks}
        walls: dict[str, list[float]] = {name: [] for name in asks}
        for turn in range(ROUNDS + 1):
            batch = [prompts[(turn + i) % len(prompts)] for i in range(concurrency)]
            for name in sorted(asks, reverse=turn % 2 == 0):
                started = time.perf_counter()
                seen = list(threads.map(asks[name], batch))
                if turn:
                    walls[name].append(time.perf_counter() - started)
                    timings[name] += seen
    _report(concurrency, timings, walls, capsys)


def _ask(client: httpx.Client, url: str, token: str, prompt: str) -> Timing:
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS, "temperature": 0, "stream": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or 'unasked'}"}
    started, first = time.perf_counter(), 0.0
    with client.stream("POST", url, content=json.dumps(body), headers=headers) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw():
            first = first or time.perf_counter() - started
    return Timing(first, time.perf_counter() - started)


def _report(
    concurrency: int,
    timings: dict[str, list[Timing]],
    walls: dict[str, list[float]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = {name: statistics.median(timing.first for timing in seen) * 1000 for name, seen in timings.items()}
    ratios = [direct / gateway for direct, gateway in zip(walls["direct"], walls["gateway"], strict=True)]
    with capsys.disabled():
        print(
            f"\nconcurrency {concurrency}: first byte {first['direct']:.1f} ms directly, "
            f"{first['gateway']:.1f} ms through the gateway; "
            f"tokens/s through the gateway are {statistics.median(ratios):.3f} of those directly "
            f"({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} pairs)"
        )
