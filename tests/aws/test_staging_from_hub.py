"""Weights that go from the hub to S3 without a copy on this machine, from a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hub import COMMIT, TOKEN, Hub, hub
from standin import ACCOUNT, Crash, StandIn
from standin_user import clients_with

from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import Look
from toolkit.platforms.sagemaker.observe import observe
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.platforms.sagemaker.staging import delete_prefix, stage_weights
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.source import ModelSource

BUCKET, PREFIX, MARK = "toolkit-bucket", "weights/target-0123/", "staged/target-0123"
REQUEST = {"Bucket": BUCKET, "Prefix": PREFIX, "Hub": "org/target", "Revision": COMMIT, "Mark": MARK}
MIB = 1024**2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the hub has."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 10)
    return tmp_path


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return clients_with(standin, BUCKET)


def stage(clients: Clients, server: Hub, **changes: str) -> None:
    def open_files(source: ModelSource) -> HubFiles:
        return HubFiles(source.model, source.revision, hub_client(server.url))

    stage_weights(clients, {**REQUEST, **changes}, Silent(), open_files)


def objects(clients: Clients) -> dict[str, bytes]:
    listed = clients.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {item["Key"]: clients.s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in listed}


def test_every_file_arrives_as_it_is(clients: Clients, server: Hub, folder: Path) -> None:
    stage(clients, server)
    files = {f"{PREFIX}{path.name}": path.read_bytes() for path in folder.iterdir()}
    found = objects(clients)
    assert json.loads(found.pop(MARK))["complete"] is True
    assert found == files


def test_a_file_of_many_parts_arrives_as_it_is(clients: Clients, server: Hub, folder: Path) -> None:
    content = b"".join(number.to_bytes(4, "big") for number in range(9 * MIB // 4))
    (folder / "model.safetensors").write_bytes(content)
    stage(clients, server)
    assert objects(clients)[f"{PREFIX}model.safetensors"] == content


def test_the_mark_comes_last(clients: Clients, server: Hub, standin: StandIn) -> None:
    stage(clients, server)
    puts = [call.request["Key"] for call in standin.calls if call.operation == "PutObject"]
    assert puts[-1] == MARK
    assert sorted(puts) == [MARK, MARK, MARK, f"{PREFIX}config.json", f"{PREFIX}model.safetensors"]


def test_what_arrived_whole_before_an_interruption_is_not_sent_again(
    clients: Clients, server: Hub, standin: StandIn
) -> None:
    marks = []

    def die(params: dict[str, Any], **_: object) -> None:
        marks.extend([params] if params["url_path"] == f"/{MARK}" else [])
        if len(marks) == 2:
            raise Crash("before the second file's mark")

    dying = standin.session()
    dying.events.register("before-call.s3.PutObject", die)
    with pytest.raises(Crash):
        stage(Clients(dying), server)
    (arrived,) = json.loads(objects(clients)[MARK])["files"]
    server.sent.clear()
    stage(clients, server)
    assert arrived not in server.sent
    assert len(objects(clients)) == 3


def test_a_file_that_arrived_in_another_size_is_sent_again(clients: Clients, server: Hub, folder: Path) -> None:
    clients.s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}model.safetensors", Body=b"half of it")
    stage(clients, server)
    assert objects(clients)[f"{PREFIX}model.safetensors"] == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("size", [1000, 9 * MIB])
def test_a_file_that_ends_early_is_said_and_leaves_nothing_half(
    clients: Clients, server: Hub, folder: Path, standin: StandIn, size: int
) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(bytes(size))
    files = HubFiles("org/target", COMMIT, hub_client(server.url))
    assert files.sizes()["model.safetensors"] == size
    weights.write_bytes(bytes(size - 10))
    with pytest.raises(PlatformError, match=f"model.safetensors ends after {size - 10} of {size} bytes"):
        stage_weights(clients, REQUEST, Silent(), lambda source: files)
    assert f"{PREFIX}model.safetensors" not in objects(clients)
    assert not [item for item in standin.leftovers() if item.startswith("s3 upload")]


def test_a_model_that_one_may_not_read_is_said_with_what_to_do(clients: Clients, folder: Path) -> None:
    with hub({"org/target": folder}, gated={"org/target"}) as server, pytest.raises(PlatformError) as caught:
        stage(clients, server)
    assert "Accept the licence on https://huggingface.co/org/target" in caught.value.hint
    assert objects(clients) == {}


def test_the_same_weights_in_other_formats_and_hidden_files_stay(clients: Clients, server: Hub, folder: Path) -> None:
    for name in ("pytorch_model.bin", "model.gguf", "model.onnx", ".gitattributes"):
        (folder / name).write_text("not for the engine")
    stage(clients, server)
    assert set(objects(clients)) == {f"{PREFIX}config.json", f"{PREFIX}model.safetensors", MARK}


def test_without_safetensors_the_other_format_is_what_there_is(clients: Clients, server: Hub, folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    stage(clients, server)
    assert f"{PREFIX}pytorch_model.bin" in objects(clients)


def test_files_are_encrypted_with_the_key_of_the_recipe(clients: Clients, server: Hub, standin: StandIn) -> None:
    stage(clients, server, KmsKeyId="alias/weights")
    puts: list[Any] = [call.request for call in standin.calls if call.operation == "PutObject"]
    keys = {put["Key"]: put.get("SSEKMSKeyId") for put in puts if put["Key"] != MARK}
    assert keys == {f"{PREFIX}config.json": "alias/weights", f"{PREFIX}model.safetensors": "alias/weights"}


def test_pieces_that_a_killed_upload_left_go_with_the_weights(clients: Clients, standin: StandIn) -> None:
    for key in (f"{PREFIX}model.safetensors", "weights/another/model.safetensors"):
        clients.s3.create_multipart_upload(Bucket=BUCKET, Key=key)
    delete_prefix(clients, BUCKET, PREFIX)
    uploads = [item for item in standin.leftovers() if item.startswith("s3 upload")]
    assert uploads == [f"s3 upload {BUCKET}/weights/another/model.safetensors"]


def test_a_gated_model_is_read_with_the_token_in_a_secret(
    clients: Clients, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients.secretsmanager.create_secret(Name="hub", SecretString=f"{TOKEN}\n")
    with hub({"org/target": folder}, gated={"org/target"}) as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        with pytest.raises(PlatformError, match="401"):
            stage(clients, server)
        stage(clients, server, HubTokenSecret="hub")
    assert MARK in objects(clients)


def test_the_mark_of_a_longer_name_is_not_ours(standin: StandIn, clients: Clients) -> None:
    account = Account(ACCOUNT, "us-west-2")
    bucket = bucket_name(account)
    clients.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    clients.s3.put_object(Bucket=bucket, Key="staged/target-v1.1")
    wanted = Resource("Weights", "target-v1", {"Bucket": bucket, "Hub": "org/target"})
    clients.s3.put_object(Bucket=bucket, Key="uses/target-v1/hub")
    look = Look(clients, account, [wanted], ["hub"], lambda request: False, lambda image: None)
    (weights,) = [item for item in observe(look, RULES.kinds).existing if item.kind == "Weights"]
    assert weights.state["Complete"] is False


# ---- a file that an engine would download ----


def request_of(url: str, content: bytes) -> dict[str, Any]:
    file = {"path": "vocabulary", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"Bucket": BUCKET, "Prefix": PREFIX, "Url": url, "Files": [file]}


def stage_file(clients: Clients, url: str, content: bytes) -> None:
    def nowhere(source: ModelSource) -> HubFiles:
        raise AssertionError(f"{source} is not a model")

    stage_weights(clients, request_of(url, content), Silent(), nowhere)


def test_a_file_that_the_engine_would_download_is_staged(clients: Clients, server: Hub) -> None:
    stage_file(clients, f"{server.url}/org/target/resolve/{COMMIT}/config.json", b"{}")
    assert objects(clients) == {f"{PREFIX}vocabulary": b"{}"}


def test_another_content_than_the_one_that_the_engine_wants_is_not_kept(clients: Clients, server: Hub) -> None:
    with pytest.raises(PlatformError, match="vocabulary changed after it was planned, or on its way"):
        stage_file(clients, f"{server.url}/org/target/resolve/{COMMIT}/config.json", b"[]")
    assert objects(clients) == {}


@pytest.mark.parametrize("path", ["/org/missing/resolve/main/config.json", ""])
def test_a_file_that_cannot_be_downloaded_is_said_with_its_address(clients: Clients, server: Hub, path: str) -> None:
    url = f"{server.url}{path}" if path else "http://127.0.0.1:9/"  # the second one is a machine without a network
    with pytest.raises(PlatformError, match=f"vocabulary, .* cannot be downloaded from {re.escape(url)}") as raised:
        stage_file(clients, url, b"{}")
    assert "Deploy from a machine that reaches that address" in raised.value.hint
