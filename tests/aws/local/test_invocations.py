"""Requests to endpoints of the local platform, through genuine clients."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from botocore.exceptions import ClientError, EventStreamError
from local_account import Account
from processes import until


@pytest.fixture(scope="module", autouse=True)
def endpoint(account: Account) -> None:
    account.deploy("chat")


def test_content_type_and_attributes_pass_both_ways(account: Account) -> None:
    answer = account.runtime.invoke_endpoint(
        EndpointName="chat", Body=b'{"do": "received"}', ContentType="application/json", CustomAttributes="trace=7"
    )
    received = json.loads(answer["Body"].read())
    assert received["Content-Type"] == "application/json"
    assert received["X-Amzn-SageMaker-Custom-Attributes"] == "trace=7"
    assert "Authorization" not in received
    assert answer["CustomAttributes"] == "trace=7"
    assert answer["InvokedProductionVariant"] == "only"


@pytest.mark.parametrize(("status", "side"), [(400, "client"), (503, "server")])
@pytest.mark.parametrize("operation", ["invoke_endpoint", "invoke_endpoint_with_response_stream"])
def test_errors_of_the_container_are_model_errors(account: Account, operation: str, status: int, side: str) -> None:
    body = json.dumps({"do": "status", "status": status, "message": "no such adapter"})
    with pytest.raises(account.runtime.exceptions.ModelError) as caught:
        getattr(account.runtime, operation)(EndpointName="chat", Body=body)
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["OriginalStatusCode"] == status
    assert response["OriginalMessage"] == "no such adapter"
    assert response["LogStreamArn"].startswith(
        "arn:aws:logs:us-west-2:123456789012:log-group:/aws/sagemaker/Endpoints/chat:"
    )
    assert f'Received {side} error ({status}) from primary with message "no such adapter".' in str(caught.value)


def test_a_stream_arrives_as_it_is_made(account: Account, tmp_path: Path) -> None:
    """Each part is made when the one before it has arrived."""
    seen, arrived = tmp_path / "seen", []
    seen.touch()
    for part in account.stream("chat", do="stream", chunks=4, seen=str(seen)):
        arrived.append(part)
        seen.write_bytes(b"." * len(arrived))
    assert arrived == [b"data: %d\n\n" % n for n in range(4)]


def test_a_stream_that_breaks_says_so_after_what_came(account: Account) -> None:
    parts = account.stream("chat", do="stream", chunks=9, break_after=2)
    arrived: list[bytes] = []
    with pytest.raises(EventStreamError, match=r"ModelStreamError.*The container broke the stream"):
        arrived.extend(parts)
    assert b"".join(arrived) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


def test_openai_clients_get_the_containers_own_stream(account: Account, tmp_path: Path) -> None:
    url = f"{account.daemon.runtime_url}/endpoints/chat/openai/v1/chat/completions"
    seen, arrived = tmp_path / "seen", []
    seen.touch()
    with httpx.stream(
        "POST",
        url,
        json={"do": "stream", "chunks": 3, "seen": str(seen)},
        headers=account.bearer(),
        trust_env=False,
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for part in answer.iter_raw():
            arrived.append(part)
            seen.write_bytes(b"." * len(arrived))
    assert arrived == [b"data: %d\n\n" % n for n in range(3)]


def test_openai_clients_get_the_containers_own_errors(account: Account) -> None:
    answer = account.ask_openai("chat", do="status", status=404, message='{"error": {}}')
    assert (answer.status_code, answer.text) == (404, '{"error": {}}')
    elsewhere = account.ask_openai("nobody")
    assert elsewhere.status_code == 400
    assert elsewhere.json()["error"]["message"] == "Endpoint nobody of account 123456789012 not found."


def test_openai_streams_that_break_end_without_an_end(account: Account) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        account.ask_openai("chat", do="stream", chunks=9, break_after=1)


def test_only_awss_routes_exist(account: Account) -> None:
    for path in ("openai/v1/completions", "openai/v1/models"):
        assert httpx.post(f"{account.daemon.runtime_url}/endpoints/chat/{path}", trust_env=False).status_code == 404


def test_unknown_endpoints_and_variants_are_validation_errors(account: Account) -> None:
    with pytest.raises(
        account.runtime.exceptions.ValidationError, match="Endpoint nobody of account 123456789012 not found"
    ):
        account.invoke("nobody")
    with pytest.raises(account.runtime.exceptions.ValidationError, match="Variant other of endpoint chat not found"):
        account.runtime.invoke_endpoint(EndpointName="chat", Body=b"{}", TargetVariant="other")
    with pytest.raises(account.runtime.exceptions.ValidationError, match="no inference component"):
        account.runtime.invoke_endpoint(EndpointName="chat", Body=b"{}", InferenceComponentName="part")


def test_a_request_may_have_six_mebibytes(account: Account) -> None:
    fits = json.dumps({"text": "x" * (6 * 1024**2 - 100)})
    assert len(account.runtime.invoke_endpoint(EndpointName="chat", Body=fits)["Body"].read()) > len(fits)
    with pytest.raises(account.runtime.exceptions.ValidationError, match="larger than 6291456 bytes"):
        account.runtime.invoke_endpoint(EndpointName="chat", Body=b"x" * (6 * 1024**2 + 1))


def test_a_caller_who_leaves_is_noticed_by_the_container(account: Account) -> None:
    parts = account.stream("chat", do="stream", chunks=1000, pause=0.01)
    next(parts)
    parts.close()
    until(lambda: any("BrokenPipe" in line or "ConnectionReset" in line for line in account.log("chat")))


def test_many_at_once(account: Account) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: account.invoke("chat", number=n)["number"], range(64)))
    assert answers == list(range(64))


def test_the_other_runtime_operation_is_refused(account: Account) -> None:
    with pytest.raises(ClientError, match="404"):
        account.runtime.invoke_endpoint_async(EndpointName="chat", InputLocation="s3://b/k")
