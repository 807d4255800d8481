"""A second user of the machine: nothing of the local platform answers to it, and it reads nothing of it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from daemon_state import state
from local_account import Account
from other_user import as_nobody
from processes import processes_in

from toolkit.platforms.local import credentials
from toolkit.platforms.sagemaker.runtime import bearer_token

FORGED = Credentials("LOCALFORGED", "a key of the attacker's own")
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/echo:1.0-cpu"


def ask(url: str, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
    """Status of the answer to a plain HTTP request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, target, body, headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def sagemaker(operation: str, **request: object) -> tuple[str, str, bytes, dict[str, str]]:
    headers = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
    return "POST", "/", json.dumps(request).encode(), headers


def code_execution() -> Iterator[tuple[str, str, bytes, dict[str, str]]]:
    """Code of the attacker's, as the daemon's owner: by an object, a model that imports it, and an endpoint."""
    yield "PUT", "/models", b"", {}
    yield "PUT", "/models/evil/sitecustomize.py", b"raise SystemExit", {}
    data = {"S3Uri": "s3://models/evil/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {
        "Image": IMAGE,
        "Environment": {"PYTHONPATH": "/opt/ml/model"},
        "ModelDataSource": {"S3DataSource": data},
    }
    role = "arn:aws:iam::123456789012:role/execution"
    yield sagemaker("CreateModel", ModelName="evil", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {
        "VariantName": "v",
        "ModelName": "evil",
        "InitialInstanceCount": 1,
        "InstanceType": "ml.g5.xlarge",
    }
    yield sagemaker("CreateEndpointConfig", EndpointConfigName="evil", ProductionVariants=[variant])
    yield sagemaker("CreateEndpoint", EndpointName="evil", EndpointConfigName="evil")
    yield sagemaker("DeleteEndpoint", EndpointName="chat")
    yield "GET", "/models/target/config.json", b"", {}
    yield "DELETE", "/models/target/config.json", b"", {}
    yield "POST", "/moto-api/reset", b"", {}
    yield "POST", "/%6doto-api/reset", b"", {}
    yield (
        "POST",
        "/",
        b"Action=CreateUser&UserName=evil&Version=2010-05-08",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )


def forged(url: str, method: str, target: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
    """The headers of that request, signed with a key that is not the daemon's."""
    request = AWSRequest(method, f"{url}{target}", headers, data=body)
    signer = SigV4Auth(FORGED, "sagemaker", "us-west-2") if "X-Amz-Target" in headers else None
    (signer or S3SigV4Auth(FORGED, "s3", "us-west-2")).add_auth(request)
    return dict(request.headers.items())


def attack(url: str, extra: dict[str, str]) -> list[int]:
    return [ask(url, method, target, body, {**headers, **extra}) for method, target, body, headers in code_execution()]


def attack_forged(url: str) -> list[int]:
    return [
        ask(url, method, target, body, forged(url, method, target, body, headers))
        for method, target, body, headers in code_execution()
    ]


@pytest.mark.parametrize("extra", [{}, {"Host": "evil.example"}, {"Authorization": "Bearer x"}], ids=str)
def test_unsigned_requests_change_nothing(account: Account, extra: dict[str, str]) -> None:
    before = state(account)
    assert set(as_nobody(attack, account.daemon.control_url, extra)) == {403}
    assert state(account) == before


def test_requests_with_another_key_change_nothing(account: Account) -> None:
    before = state(account)
    assert set(as_nobody(attack_forged, account.daemon.control_url)) == {403}
    assert state(account) == before


@pytest.mark.parametrize("route", ["invocations", "invocations-response-stream", "openai/v1/chat/completions"])
def test_the_model_answers_its_owner_only(account: Account, route: str, tmp_path: Path) -> None:
    """No key, an invented key, and the key of another daemon."""
    url, target = account.daemon.runtime_url, f"/endpoints/chat/{route}"
    other = credentials.create(tmp_path / "credentials")
    others = Credentials(other.access_key_id, other.secret_access_key)
    assert as_nobody(ask, url, "POST", target, b"{}") == 403
    for key in (FORGED, others):
        token = {"Authorization": f"Bearer {bearer_token(key, 'us-west-2')}"}
        request = AWSRequest("POST", f"{url}{target}", {}, data=b"{}")
        SigV4Auth(key, "sagemaker", "us-west-2").add_auth(request)
        for headers in (token, dict(request.headers.items())):
            assert as_nobody(ask, url, "POST", target, b"{}", headers) == 403


def test_the_engines_figures_are_for_its_owner_only(account: Account) -> None:
    url, target = account.daemon.runtime_url, "/endpoints/chat/metrics"
    token = {"Authorization": f"Bearer {bearer_token(FORGED, 'us-west-2')}"}
    assert [as_nobody(ask, url, "GET", target, b"", headers) for headers in ({}, token)] == [403, 403]
    assert ask(url, "GET", target, headers=account.bearer()) == 200


def test_keys_that_the_stand_in_for_aws_gives_out_open_nothing(account: Account) -> None:
    """Whoever gets one of them, such as a model that asks for its role, has the rights of nobody."""
    role = account.session.client("sts").assume_role(
        RoleArn="arn:aws:iam::123456789012:role/execution", RoleSessionName="model"
    )
    given = role["Credentials"]
    key = Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    method, target, body, headers = sagemaker("DeleteEndpoint", EndpointName="chat")
    request = AWSRequest(method, f"{account.daemon.control_url}{target}", headers, data=body)
    SigV4Auth(key, "sagemaker", "us-west-2").add_auth(request)
    assert ask(account.daemon.control_url, method, target, body, dict(request.headers.items())) == 403


def test_the_models_own_server_is_out_of_reach(account: Account, home: Path) -> None:
    """vLLM itself asks nobody for a key: it listens on a socket in a folder of the owner's, and on no port."""
    (container,) = home.glob("endpoints/*/*/*/tmp")
    listening = container.readlink() / "serve.sock"
    assert listening.is_socket()
    with pytest.raises(PermissionError):
        as_nobody(connect, str(listening))
    assert as_nobody(listed, container.readlink()) == []


def connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def listed(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*")]


def test_no_file_of_the_home_can_be_read(account: Account, home: Path) -> None:
    assert as_nobody(os.access, home.parent, os.X_OK), "the folders above it are open"
    assert as_nobody(listed, home) == []
    for name in ("credentials", "daemon.json", "daemon.log"):
        with pytest.raises(PermissionError):
            as_nobody(Path.read_text, home / name)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "credentials").stat().st_mode) == 0o600


def test_no_process_shows_a_secret(account: Account, home: Path) -> None:
    """Arguments are open to every user of the machine; what the owner gave to the model is in its environment only."""
    secret = credentials.read(Path(account.daemon.credentials_file)).secret_access_key
    pids = processes_in(home)
    assert len(pids) == 4, "daemon, keeper, server, and the server's own child"
    for pid in pids:
        arguments = as_nobody(Path.read_bytes, Path(f"/proc/{pid}/cmdline"))
        assert secret.encode() not in arguments
        assert b"hf_of_the_owner" not in arguments
        assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        with pytest.raises(PermissionError):
            as_nobody(Path.read_bytes, Path(f"/proc/{pid}/environ"))


def test_what_is_said_about_the_daemon_holds_no_secret(account: Account, home: Path) -> None:
    secret = credentials.read(Path(account.daemon.credentials_file)).secret_access_key
    assert secret not in repr(account.daemon)
    assert secret not in (home / "daemon.json").read_text()
    assert secret not in (home / "daemon.log").read_text()
    assert secret not in "".join(account.log("chat"))
