"""Staged weights are compared by content: an object of the right name and size but other bytes is not the file."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber
from hub import COMMIT, Hub, hub
from standin import ACCOUNT, StandIn
from standin_user import clients_with

from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import Look
from toolkit.platforms.sagemaker.observe import observe
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.platforms.sagemaker.staging import stage_weights
from toolkit.platforms.sagemaker.stored import stored_sha256
from toolkit.recipe.content import manifest
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.model_files import ModelFiles
from toolkit.recipe.source import ModelSource

REGION = "us-west-2"
BUCKET = bucket_name(Account(ACCOUNT, REGION))
MIB = 1024**2
SMALL, IN_PARTS = 1000, 9 * MIB


def numbers(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return clients_with(standin, BUCKET)


@pytest.fixture(params=[SMALL, IN_PARTS, 8 * MIB], ids=["small", "in parts", "exactly one part"])
def folder(request: Any, tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(numbers(request.param))
    return tmp_path / "model"


def nowhere(source: ModelSource) -> ModelFiles:
    raise AssertionError(f"{source} is in a folder")


def weights_of(folder: Path) -> Resource:
    files = [vars(file) for file in manifest(folder)]
    request = {"Bucket": BUCKET, "Prefix": "weights/model/", "Source": str(folder), "Files": files}
    return Resource("Weights", "model", request)


def found(clients: Clients, wanted: Resource) -> Any:
    """What a plan sees of the weights."""
    clients.s3.put_object(Bucket=BUCKET, Key=f"uses/{wanted.name}/ep")
    look = Look(clients, Account(ACCOUNT, REGION), [wanted], ["ep"], lambda request: False, lambda image: None)
    (weights,) = [item for item in observe(look, RULES.kinds).existing if item.kind == "Weights"]
    return weights.state


def uploads(standin: StandIn) -> list[str]:
    return [call.request["Key"] for call in standin.calls if call.operation in ("PutObject", "CreateMultipartUpload")]


def body(clients: Clients, key: str) -> bytes:
    return clients.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


KEY = "weights/model/model.safetensors"


def test_what_is_there_byte_for_byte_is_not_sent_again(clients: Clients, folder: Path, standin: StandIn) -> None:
    wanted = weights_of(folder)
    stage_weights(clients, wanted.request, Silent(), nowhere)
    assert found(clients, wanted)["Files"] == 1
    standin.calls.clear()
    stage_weights(clients, wanted.request, Silent(), nowhere)
    assert uploads(standin) == []


def test_an_object_of_the_same_size_with_other_bytes_is_replaced(clients: Clients, folder: Path) -> None:
    wanted, content = weights_of(folder), (folder / "model.safetensors").read_bytes()
    stage_weights(clients, wanted.request, Silent(), nowhere)
    clients.s3.put_object(Bucket=BUCKET, Key=KEY, Body=content[:-1] + b"!", ChecksumAlgorithm="SHA256")
    assert found(clients, wanted)["Files"] == 0
    stage_weights(clients, wanted.request, Silent(), nowhere)
    assert body(clients, KEY) == content


def test_an_object_that_s3_has_no_sha256_of_is_replaced(clients: Clients, folder: Path) -> None:
    """As `aws s3 cp` leaves one: its content is not known, though it may be the same."""
    wanted = weights_of(folder)
    clients.s3.put_object(Bucket=BUCKET, Key=KEY, Body=(folder / "model.safetensors").read_bytes())
    assert found(clients, wanted)["Files"] == 0


def test_a_file_that_changed_since_the_plan_is_said_and_not_left_there(clients: Clients, folder: Path) -> None:
    wanted, weights = weights_of(folder), folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(PlatformError, match="changed after it was planned"):
        stage_weights(clients, wanted.request, Silent(), nowhere)
    assert "Contents" not in clients.s3.list_objects_v2(Bucket=BUCKET)


def test_s3s_checksum_of_an_object_in_parts_is_read_as_aws_writes_it(clients: Clients) -> None:
    """Amazon S3 User Guide, "Checking object integrity": base64, and for several parts a dash and their number."""
    digest = hashlib.sha256(b"digests of parts").digest()
    answer = {"ChecksumSHA256": f"{base64.b64encode(digest).decode()}-3", "ChecksumType": "COMPOSITE"}
    asked = {"Bucket": BUCKET, "Key": KEY, "ChecksumMode": "ENABLED"}
    with Stubber(clients.s3) as stubber:
        stubber.add_response("head_object", answer, asked)
        assert stored_sha256(clients, BUCKET, [KEY]) == {KEY: digest.hex()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/config.json").write_text("{}")
    (tmp_path / "hub/model.safetensors").write_bytes(numbers(IN_PARTS))
    with hub({"org/model": tmp_path / "hub"}) as server:
        yield server


FROM_HUB = Resource(
    "Weights",
    "model",
    {
        "Bucket": BUCKET,
        "Prefix": "weights/model/",
        "Hub": "org/model",
        "Revision": COMMIT,
        "Mark": "staged/model",
    },
)


def stage_from(clients: Clients, server: Hub) -> None:
    stage_weights(
        clients,
        FROM_HUB.request,
        Silent(),
        lambda source: HubFiles(source.model, source.revision, hub_client(server.url)),
    )


def test_of_the_hub_too_another_content_of_the_same_size_is_replaced(clients: Clients, server: Hub) -> None:
    stage_from(clients, server)
    assert found(clients, FROM_HUB)["Complete"] is True
    clients.s3.put_object(Bucket=BUCKET, Key=KEY, Body=bytes(IN_PARTS), ChecksumAlgorithm="SHA256")
    assert found(clients, FROM_HUB)["Complete"] is False
    server.sent.clear()
    stage_from(clients, server)
    assert (body(clients, KEY), set(server.sent)) == (numbers(IN_PARTS), {"model.safetensors"})


def test_a_file_that_moved_on_under_its_branch_is_sent_again(clients: Clients, server: Hub) -> None:
    stage_from(clients, server)
    weights = server.repositories["org/model"] / "model.safetensors"
    weights.write_bytes(bytes(IN_PARTS))
    stage_from(clients, server)
    assert body(clients, KEY) == bytes(IN_PARTS)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"], ids=["large file", "small file"])
def test_a_file_that_is_not_what_the_hub_says_is_refused(clients: Clients, server: Hub, name: str) -> None:
    files = HubFiles("org/model", COMMIT, hub_client(server.url))
    assert name in files.sizes()  # the hub has said what it holds; on the way it becomes something else
    path = server.repositories["org/model"] / name
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(PlatformError, match=f"{name} arrived with another"):
        stage_weights(clients, FROM_HUB.request, Silent(), lambda source: files)
    listed = [item["Key"] for item in clients.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    assert f"weights/model/{name}" not in listed
    assert found(clients, FROM_HUB)["Complete"] is False


NO_MARKS = {
    "empty": b"",
    "cut short": b'{"complete": true, "fi',
    "another document": b"[]",
    "another form": b'{"complete": true, "files": {"a": 1}}',
    "no text": b"\xff" * 100,
}


@pytest.mark.parametrize("text", NO_MARKS.values(), ids=NO_MARKS)
def test_a_mark_that_is_none_means_that_nothing_arrived(clients: Clients, server: Hub, text: bytes) -> None:
    clients.s3.put_object(Bucket=BUCKET, Key="staged/model", Body=text)
    assert found(clients, FROM_HUB)["Complete"] is False
    stage_from(clients, server)
    assert found(clients, FROM_HUB)["Complete"] is True
