"""A real vLLM behind the local gateway under a light load for `--minutes`: what grows?

`pytest tests/benchmarks/test_soak.py -s --minutes 120`. A line for each twentieth of the time: memory, descriptors and
threads of the platform, of the engine and of this process, which asks; the disk that the platform takes; and latency.
Each minute it is also looked at as its owner would: `status`, `logs --tail 1`, `metrics`. Garbage is collected as in a
user's process: the other tests collect it so seldom that it would look like a leak here.
"""

from __future__ import annotations

import gc
import os
import re
import stat
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.errors import ToolkitError
from toolkit.platforms.local import daemon

CLIENTS, TOKENS, PAUSE_SECONDS, LOOK_SECONDS, LINES = 2, 48, 1.6, 60, 20
PYTHONS_OWN = (700, 10, 10)
COLUMNS = (
    "minutes",
    "requests",
    "failed",
    "TTFT p50/p99 ms",
    "whole p50/p99 ms",
    "platform",
    "engine",
    "we",
    "disk MB",
)


@dataclass(frozen=True)
class Taken:
    """What processes take: MB of memory (each page shared out among those that have it), descriptors, threads."""

    memory: float
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.memory:.1f} MB, {self.descriptors} fd, {self.threads} threads"


@dataclass(frozen=True)
class Asked:
    ended: float
    first: float
    whole: float
    ok: bool


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    ours = gc.get_threshold()
    gc.set_threshold(*PYTHONS_OWN)
    yield toolkit.deploy("tiny/p-eagle", progress=Silent())
    gc.set_threshold(*ours)
    daemon.stop(tmp_path / "local")


@pytest.mark.timeout(0)
def test_soak(
    served: Endpoint, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = 60 * float(request.config.getoption("--minutes", default=1))
    platform = daemon.running(tmp_path / "local")
    assert platform
    over, began, asked, unseen = threading.Event(), time.monotonic(), list[Asked](), list[str]()
    prompts = [prompt.text for prompt in served.workloads[0].prompts]

    def ask(number: int) -> None:
        turn = number
        while not over.wait(PAUSE_SECONDS):
            asked.append(_ask(served, prompts[turn % len(prompts)]))
            turn += CLIENTS

    def print_line(since: float) -> None:
        with capsys.disabled():
            print(" | ".join(_line(tmp_path, platform.pid, began, [item for item in asked if item.ended >= since])))

    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(ask, number) for number in range(CLIENTS)]
        with capsys.disabled():
            print("\n" + " | ".join(COLUMNS))
        line_began = last_look = began
        try:
            while (now := time.monotonic()) - began < seconds and not over.wait(1):
                if now - last_look >= LOOK_SECONDS:
                    last_look = now
                    unseen += _look(served)
                if now - line_began >= seconds / LINES:
                    print_line(line_began)
                    line_began = now
            print_line(line_began)
        finally:
            over.set()
    for one in running:
        one.result()
    assert all(item.ok for item in asked)
    assert not unseen


def _ask(endpoint: Endpoint, prompt: str) -> Asked:
    try:
        stream = endpoint.stream(prompt, max_tokens=TOKENS)
        for _ in stream:
            pass
    except ToolkitError:
        return Asked(time.monotonic(), 0, 0, ok=False)
    return Asked(time.monotonic(), stream.result.ttft, stream.result.latency, ok=True)


def _look(endpoint: Endpoint) -> list[str]:
    """What went wrong, which ends nothing: the rest of the hours still shows what grows."""
    try:
        toolkit.status()
        list(endpoint.logs(tail=1))
        endpoint.metrics(10)
    except (ToolkitError, BotoCoreError) as error:
        return [f"{datetime.now():%H:%M:%S} {error}"]
    return []


def _line(home: Path, pid: int, began: float, asked: list[Asked]) -> Iterator[str]:
    now = time.monotonic()
    engine = _below(pid)
    yield f"{(now - began) / 60:.1f}"
    yield f"{len(asked)}"
    yield f"{sum(not item.ok for item in asked)}"
    for values in ([item.first for item in asked if item.ok], [item.whole for item in asked if item.ok]):
        yield f"{statistics.median(values) * 1000:.0f}/{statistics.quantiles(values, n=100)[98] * 1000:.0f}"
    yield str(_taken([pid]))
    yield str(_taken(engine))
    yield str(_taken([os.getpid()]))
    yield f"{_disk(home, [pid, *engine]) / 1e6:.2f}"


def _below(pid: int) -> list[int]:
    """The processes that it has started, and those that they have."""
    children = list[int]()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            children += map(int, (task / "children").read_text().split())
    return [one for child in children for one in (child, *_below(child))]


def _taken(pids: Iterable[int]) -> Taken:
    memory, descriptors, threads = 0, 0, 0
    for pid in pids:
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        assert found
        memory += int(found[1])
        descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
        threads += len(list(Path(f"/proc/{pid}/task").iterdir()))
    return Taken(memory / 1024, descriptors, threads)


def _disk(home: Path, pids: Iterable[int]) -> float:
    """Bytes of the files in a folder, and of those without a name that processes hold open, as the logs are."""
    files = dict[tuple[int, int], int]()
    held = [fd for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()]
    for path in [*home.rglob("*"), *held]:
        with suppress(FileNotFoundError):
            seen = path.stat() if path in held else path.lstat()
            is_disk = path not in held or (
                seen.st_nlink == 0 and not str(path.readlink()).startswith(("/dev", "/memfd"))
            )
            if stat.S_ISREG(seen.st_mode) and is_disk:
                files[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
    return sum(files.values())
