"""Large files on their way to S3: ranges in parallel, killed and carried on, and what lies in between."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub import COMMIT, Hub
from slow_hub import Speed, slow_hub
from standin import StandIn
from standin_user import clients_with

from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.staging import stage_weights
from toolkit.platforms.sagemaker.transfer import IN_FLIGHT_BYTES, Transfer
from toolkit.platforms.sagemaker.upload import RANGE_BYTES, File, Target, Upload
from toolkit.recipe.content import PART_BYTES, manifest
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.model_files import ModelFiles
from toolkit.recipe.source import ModelSource

BUCKET, PREFIX, NAME = "toolkit-bucket", "weights/target/", "model.safetensors"
KEY = PREFIX + NAME
REQUEST = {"Bucket": BUCKET, "Prefix": PREFIX, "Hub": "org/target", "Revision": COMMIT, "Mark": "staged/target"}
PARTS = 6
SIZE = (PARTS - 1) * PART_BYTES + 1000  # in two ranges
CONTENT = random.Random(7).randbytes(SIZE)
COMMAND = f"""
import sys, boto3
from toolkit.apply.progress import Silent
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.staging import stage_weights
from toolkit.recipe.hub import HubFiles, hub_client
files = HubFiles("org/target", "{COMMIT}", hub_client(sys.argv[1]))
stage_weights(Clients(boto3.Session("testing", "testing")), {REQUEST}, Silent(), lambda source: files)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / NAME).write_bytes(CONTENT)
    return tmp_path / "model"


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return clients_with(standin, BUCKET)


def stage(clients: Clients, server: Hub) -> None:
    files = HubFiles("org/target", COMMIT, hub_client(server.url))
    stage_weights(clients, REQUEST, Silent(), lambda source: files)


def nowhere(source: ModelSource) -> ModelFiles:
    raise AssertionError(f"{source} is in a folder")


def stage_folder(clients: Clients, folder: Path) -> None:
    files = [vars(file) for file in manifest(folder)]
    request = {"Bucket": BUCKET, "Prefix": PREFIX, "Source": str(folder), "Files": files}
    stage_weights(clients, request, Silent(), nowhere)


def body(clients: Clients) -> bytes:
    return clients.s3.get_object(Bucket=BUCKET, Key=KEY)["Body"].read()


def sent(standin: StandIn) -> list[int]:
    """Numbers of the parts that went to S3."""
    return sorted(int(call.request["PartNumber"]) for call in standin.calls if call.operation == "UploadPart")


def uploads(standin: StandIn) -> list[str]:
    return [item for item in standin.leftovers() if item.startswith("s3 upload")]


def begun(clients: Clients, parts: dict[int, bytes]) -> str:
    """An upload that was never completed, with these parts."""
    where: Any = {"Bucket": BUCKET, "Key": KEY}
    upload = clients.s3.create_multipart_upload(**where, ChecksumAlgorithm="SHA256")["UploadId"]
    for number, content in parts.items():
        checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
        clients.s3.upload_part(**where, UploadId=upload, PartNumber=number, Body=content, ChecksumSHA256=checksum)
    return upload


def part(number: int) -> bytes:
    return CONTENT[(number - 1) * PART_BYTES : number * PART_BYTES]


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_what_was_sent_before_the_end_is_not_sent_again(
    clients: Clients, server: Hub, standin: StandIn, sign: signal.Signals
) -> None:
    """Also Ctrl-C ends it while a connection says nothing."""
    server.hold_at = 3 * PART_BYTES + 100
    command = subprocess.Popen([sys.executable, "-c", COMMAND, server.url], env=standin.environment())
    while len(sent(standin)) < 3:
        assert command.poll() is None
        time.sleep(0.01)
    command.send_signal(sign)
    command.wait(timeout=25)  # a silent connection is given up after 30 seconds
    assert uploads(standin) == [f"s3 upload {BUCKET}/{KEY}"]
    server.go.set()
    standin.calls.clear()
    stage(clients, server)
    assert (body(clients) == CONTENT, sent(standin), uploads(standin)) == (True, [4, 5, 6], [])


@pytest.mark.parametrize("source", ["hub", "folder"])
def test_only_parts_that_s3_lacks_are_sent(
    clients: Clients, server: Hub, folder: Path, standin: StandIn, source: str
) -> None:
    begun(clients, {1: part(1), 4: part(4)[::-1], 5: part(5)})
    standin.calls.clear()
    if source == "hub":
        stage(clients, server)
    else:
        stage_folder(clients, folder)
    assert (body(clients) == CONTENT, sent(standin), uploads(standin)) == (True, [2, 3, 4, 6], [])


@pytest.mark.parametrize("action", ["s3:ListBucketMultipartUploads", "s3:ListMultipartUploadParts"])
def test_who_may_not_look_for_parts_sends_all_of_them(
    clients: Clients, server: Hub, standin: StandIn, action: str
) -> None:
    begun(clients, {1: part(1)})
    standin.account.denied.add(action)
    standin.calls.clear()
    stage(clients, server)
    assert (body(clients) == CONTENT, sent(standin)) == (True, [1, 2, 3, 4, 5, 6])


def test_a_connection_that_breaks_costs_only_the_rest_of_its_range(clients: Clients, server: Hub) -> None:
    server.cuts[:] = [PART_BYTES + 1_000_000]
    stage(clients, server)
    assert body(clients) == CONTENT
    again = RANGE_BYTES - PART_BYTES - 1_000_000
    assert 0 <= server.sent[NAME] - SIZE - again < 100  # single bytes, to see where the file lies


def test_a_mirror_that_lies_about_one_range_is_found(clients: Clients, server: Hub, standin: StandIn) -> None:
    server.lie_at = SIZE - 5
    with pytest.raises(PlatformError, match=f"{re.escape(NAME)} arrived with another sha256 digest than the hub says"):
        stage(clients, server)
    assert "Contents" not in clients.s3.list_objects_v2(Bucket=BUCKET)
    assert uploads(standin) == []


def test_a_hub_without_ranges_sends_its_files_in_one_stream(clients: Clients, server: Hub) -> None:
    server.has_ranges = False
    stage(clients, server)
    assert body(clients) == CONTENT
    assert server.sent[NAME] <= 3 * SIZE  # to see whether it has ranges, where the file lies, and the file


def test_an_upload_that_is_removed_meanwhile_is_said(clients: Clients, server: Hub, standin: StandIn) -> None:
    def remove(**_: object) -> None:
        clients.s3.abort_multipart_upload(Bucket=BUCKET, Key=KEY, UploadId=upload)

    upload = begun(clients, {1: part(1)})
    session = standin.session()
    session.events.register_first("before-call.s3.CompleteMultipartUpload", remove)
    with pytest.raises(PlatformError, match="S3 has SHA-256 None"):
        stage(Clients(session), server)
    stage(clients, server)
    assert body(clients) == CONTENT


def test_rate_and_time_left_are_shown(clients: Clients, server: Hub) -> None:
    told: list[str] = []

    class Told(Silent):
        def update(self, text: str, detail: str = "") -> None:
            told.append(text)
            if text.startswith("25 of"):
                server.go.set()  # the rest comes when it has told of the half

    server.hold_at = 3 * PART_BYTES
    files = HubFiles("org/target", COMMIT, hub_client(server.url))
    stage_weights(clients, REQUEST, Told(), lambda source: files)
    half = next(text for text in told if text.startswith("25 of"))
    assert re.fullmatch(r"25 of 42 MB, \d+\.\d MB/s, \d:\d\d left", half)


def test_there_are_no_more_threads_than_parts(clients: Clients) -> None:
    workers, before = [], threading.enumerate()  # others' may still be at work

    def read(start: int, end: int) -> Iterator[bytes]:
        workers.extend(one for one in threading.enumerate() if one.name.endswith("(_work)") and one not in before)
        yield b"{}"

    upload = Upload(Target(clients, BUCKET, PREFIX, {}), File("config.json", 2, read, "config.json"))
    arrived: list[str] = []
    Transfer([upload], Silent(), lambda file, sha256: arrived.append(file.name)).run()
    assert arrived == ["config.json"]
    assert len(workers) == 2  # one reads it, the other one sends it


def test_two_commands_may_send_the_same_file(clients: Clients, server: Hub, standin: StandIn) -> None:
    def overtake(**_: object) -> None:
        session.events.unregister("before-call.s3.CompleteMultipartUpload", overtake)
        stage(clients, server)

    session = standin.session()
    session.events.register("before-call.s3.CompleteMultipartUpload", overtake)
    stage(Clients(session), server)
    assert (body(clients) == CONTENT, uploads(standin)) == (True, [])


MEASURED = """
import re, sys
from slow_hub import COMMIT, Servers
from toolkit.apply.progress import Silent
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.staging import stage_weights
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) * 1024
servers = Servers(*sys.argv[1:])
clients = Clients(servers.session())
request = {"Bucket": "bucket", "Prefix": "weights/", "Hub": "org/model", "Revision": COMMIT, "Mark": "staged/model"}
with servers.files() as files:
    clients.uploads, files.sizes()
    before = peak()
    stage_weights(clients, request, Silent(), lambda source: files)
print(peak() - before)
"""


def test_memory_is_bounded_while_everything_waits_for_one_range() -> None:
    """The first range, without which nothing can be hashed in order, comes when no other one is asked for any more."""
    at_once = IN_FLIGHT_BYTES - RANGE_BYTES
    with slow_hub(Speed(1e10, 0.0, late=at_once), [IN_FLIGHT_BYTES + 16 * RANGE_BYTES]) as servers:
        command = [sys.executable, "-c", MEASURED, servers.hub_url, servers.s3_url]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert 0.8 * at_once < int(output) < 1e9
