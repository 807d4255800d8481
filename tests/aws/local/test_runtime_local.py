"""The handle's two routes to a container of the local platform: what one says, the other says too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from local_account import Account

from toolkit.endpoint import openai_route
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.local.platform import LocalPlatform, local_platform

PAGE = """\
http_requests_total{handler="/invocations",method="POST",status="2xx"} 4.0
vllm:spec_decode_num_drafts_total{engine="0"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 40.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 20.0
"""


@pytest.fixture(scope="module")
def platform(account: Account) -> LocalPlatform:
    account.deploy("ask", {"METRICS": PAGE})
    return local_platform(account.daemon)


def by_invocations(platform: LocalPlatform, endpoint: str, **request: Any) -> Iterator[bytes]:
    return platform.stream(endpoint, request)


def by_openai(platform: LocalPlatform, endpoint: str, **request: Any) -> Iterator[bytes]:
    return openai_route.stream(platform.openai_access(endpoint), endpoint, request)


both = pytest.mark.parametrize("ask", [by_invocations, by_openai])


@both
def test_an_answer_comes_piece_by_piece(platform: LocalPlatform, ask: Any) -> None:
    parts = ask(platform, "ask", do="stream", chunks=3, pause=0.05)
    assert b"".join(parts) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


@both
@pytest.mark.parametrize("status", [400, 503])
def test_the_containers_error_is_told_once_and_in_the_same_words(
    platform: LocalPlatform, ask: Any, status: int
) -> None:
    message = f'{{"error": {{"message": "no such adapter", "code": {status}}}}}'
    with pytest.raises(InvocationError) as caught:
        list(ask(platform, "ask", do="status", status=status, message=message))
    assert caught.value.message == f"ask: answered {status}: no such adapter"
    assert not caught.value.transient


@both
def test_a_stream_that_breaks_is_told_after_what_came(platform: LocalPlatform, ask: Any) -> None:
    arrived: list[bytes] = []
    with pytest.raises(InvocationError, match="broke off: "):
        arrived.extend(ask(platform, "ask", do="stream", chunks=9, break_after=1))
    assert b"".join(arrived) == b"data: 0\n\ndata: 1\n\n"


@both
def test_an_endpoint_that_is_not_there(platform: LocalPlatform, ask: Any) -> None:
    with pytest.raises(EndpointNotFound, match="there is no endpoint nobody in service"):
        list(ask(platform, "nobody"))


def test_the_answer_in_one_piece(platform: LocalPlatform) -> None:
    assert platform.invoke("ask", {"do": "echo", "number": 5})["number"] == 5


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # in the SDK's own code
def test_aws_own_sdk_invokes_it_too(platform: LocalPlatform) -> None:
    theirs = platform.sdk_object("ask", "endpoint")

    assert theirs.endpoint_status == "InService"
    answer = theirs.invoke(body=b'{"do": "echo", "number": 5}', content_type="application/json")
    assert json.loads(answer.body.read())["number"] == 5


def test_metrics_are_what_the_engine_counts(platform: LocalPlatform) -> None:
    found = platform.metrics("ask", 60)

    assert (found.invocations, found.engine.acceptance_length, found.engine.acceptance_rate) == (4, 3.0, 0.5)
    assert found.notes == ("Counted since the start of 1 container, not over 60 minutes; for those use Prometheus",)


def test_only_an_endpoint_that_exists_has_metrics(platform: LocalPlatform) -> None:
    with pytest.raises(EndpointNotFound):
        platform.metrics("nobody", 60)


def test_metrics_are_for_the_owner(account: Account, platform: LocalPlatform) -> None:
    url = f"{account.daemon.runtime_url}/endpoints/ask/metrics"

    assert httpx.get(url, trust_env=False).status_code == 403
    assert httpx.get(url, headers=account.bearer(), trust_env=False).json() == [PAGE]


def test_arms_whose_vllm_spins_after_a_request_are_waited_for(platform: LocalPlatform, account: Account) -> None:
    account.deploy("bound", {"VLLM_CPU_OMP_THREADS_BIND": "0"})

    assert platform.pause_between_arms("ask") == 0
    assert platform.pause_between_arms("bound") > 1
