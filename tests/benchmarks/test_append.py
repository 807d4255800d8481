"""What building without Docker costs: our real layer on a base in a loopback registry, and a base copied between two.

Prints, asserts nothing about time.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "images"))

from loopback_registry import running
from small_images import push_base, spec

from toolkit.images.append import AppendBuilder, write_layer
from toolkit.images.copy import find_image, parts_of, send
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ContextFile
from toolkit.platforms.image import programs

RUNS = 5
BASE_BYTES = 200_000_000


def program() -> dict[str, ContextFile]:
    """What the vLLM container runs."""
    return {f"/opt/toolkit/{name}": file for name, file in programs("vllm").items()}


def test_append_and_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every build has a layer of its own, as after a change; the first one warms up."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    size = write_layer(program(), tmp_path / "layer").blob.size
    times: dict[str, list[float]] = {"append, base in the same registry": [], "the same image again": [], "copy": []}
    with running(folders[0]) as host, running(folders[1]) as other:
        with Registry(host) as registry:
            push_base(registry, "base", content=os.urandom(BASE_BYTES))
        append, again, copy = times
        for run in range(RUNS + 1):
            files = {**program(), "/opt/toolkit/run": ContextFile(content=str(run).encode())}
            image, place = spec(f"{host}/base:1", files=files), f"{host}/append:{run}"
            for name in (append, again):
                with measured(times[name]):
                    AppendBuilder(Registry).build(image, place, lambda _line: None)
        base = parse(f"{host}/base:1")
        with Registry(host) as origin, Registry(other) as target, measured(times[copy]):
            layers = parts_of(find_image(origin, base).parts.layers, origin, base, target)
            send(target, "copy", layers, "base", lambda _line: None)
    with capsys.disabled():
        print(f"\nour layer {size / 1e3:.1f} kB")
        for name in (append, again):
            print(f"{name:36} {statistics.median(times[name][1:]):6.2f} s   ({spread(times[name][1:])})")
        print(f"copy of a base of one {BASE_BYTES / 1e6:.0f} MB blob   {BASE_BYTES / 1e6 / times[copy][0]:6.0f} MB/s")


@contextmanager
def measured(times: list[float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    times.append(time.perf_counter() - started)


def spread(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f}"
