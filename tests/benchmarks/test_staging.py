"""Weights from a hub whose connections are slow to S3, beside what plain connections carry: all on loopback.

The limit is what so many connections bring that throw everything away. "One after the other" is how weights were
staged before: a range of 32 MiB at a time, hashed twice, sent, and the next.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import pytest
from slow_hub import COMMIT, Servers, Speed, slow_hub

from toolkit.apply.progress import Silent
from toolkit.cli.table import table
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.staging import stage_weights
from toolkit.platforms.sagemaker.transfer import CONNECTIONS
from toolkit.recipe.content import PART_BYTES

MIB = 1024**2
RANGE = 32 * MIB
FILES = [448 * MIB, 576 * MIB]
REQUEST = {"Bucket": "bucket", "Prefix": "weights/", "Hub": "org/model", "Revision": COMMIT, "Mark": "staged/model"}


def plainly(servers: Servers, connections: int, ranges: int) -> int:
    """Bytes that so many connections brought, for nobody."""
    address = urlsplit(servers.hub_url)
    path = f"/org/model/resolve/{COMMIT}/model-1.safetensors"

    def bring(_: int) -> int:
        found, buffer = 0, memoryview(bytearray(MIB))
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        for start in range(0, ranges * RANGE, RANGE):
            connection.request("GET", path, headers={"Range": f"bytes={start}-{start + RANGE - 1}"})
            answer = connection.getresponse()
            while count := answer.readinto(buffer):
                found += count
        connection.close()
        return found

    with ThreadPoolExecutor(connections) as threads:
        return sum(threads.map(bring, range(connections)))


def one_after_the_other(servers: Servers, ranges: int) -> int:
    clients, whole = Clients(servers.session()), hashlib.sha256()
    with servers.files() as files:
        for start in range(0, ranges * RANGE, RANGE):
            piece = files.read("model-1.safetensors", start, start + RANGE)
            hashlib.sha256(piece)
            whole.update(piece)
            clients.upload(io.BytesIO(piece), "bucket", f"before-{start}", PART_BYTES, PART_BYTES)
    return ranges * RANGE


def staged(servers: Servers) -> int:
    with servers.files() as files:
        stage_weights(Clients(servers.session()), REQUEST, Silent(), lambda source: files)
    return sum(FILES)


def measured(what: str, do: Callable[[], int]) -> tuple[str, float, float]:
    """Bytes per second, and seconds of processor time per GB."""
    started, used = time.monotonic(), time.process_time()
    count = do()
    seconds = time.monotonic() - started
    return what, count / seconds, (time.process_time() - used) / (count / 1e9)


@pytest.mark.parametrize(("rate", "latency"), [(5e6, 0.001), (5e6, 0.03), (5e6, 0.1), (20e6, 0.03)])
def test_staging_beside_plain_connections(rate: float, latency: float) -> None:
    with slow_hub(Speed(rate, latency), FILES) as servers:
        plain = partial(plainly, servers)
        results = [
            measured("1 plain connection", lambda: plain(1, 1)),
            measured("8 plain connections", lambda: plain(8, 1)),
            measured(f"{CONNECTIONS} plain connections", lambda: plain(CONNECTIONS, 2)),
            measured("32 plain connections", lambda: plain(32, 1)),
            measured("one after the other, as before", lambda: one_after_the_other(servers, 2)),
            measured("staged", lambda: staged(servers)),
        ]
    limit, before, now = results[2][1], results[4][1], results[5][1]
    rows = [(what, f"{speed / 1e6:.0f}", f"{cost:.2f}") for what, speed, cost in results]
    print(f"\n{rate / 1e6:.0f} MB/s and {latency * 1000:.0f} ms for each connection of the hub")
    print(table(("what", "MB/s", "CPU s/GB"), rows))
    print(f"staged: {now / limit:.2f} of {CONNECTIONS} plain connections, {now / before:.1f} times as before")
