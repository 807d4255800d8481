"""What users have already works against an endpoint: boto3, OpenAI's client, curl-like HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from openai import DefaultHttpxClient, OpenAI

from toolkit.api.endpoint import Endpoint
from toolkit.platforms.local.platform import LocalPlatform

pytestmark = pytest.mark.serving
REQUEST: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Write JSON records of the books 205 to 215."}],
    "temperature": 0,
    "max_tokens": 120,
}


def test_boto3_gets_a_stream_token_by_token(endpoint: Endpoint) -> None:
    assert isinstance(endpoint.platform, LocalPlatform)
    long = {**REQUEST, "max_tokens": 800, "ignore_eos": True, "stream": True}
    started, arrivals, text = time.perf_counter(), [], b""

    answer = endpoint.platform.clients.runtime.invoke_endpoint_with_response_stream(
        EndpointName=endpoint.name, Body=json.dumps(long), ContentType="application/json"
    )
    for event in answer["Body"]:
        part = event["PayloadPart"]["Bytes"]
        assert part.count(b"\n\n") == 1, "LiteLLM reads one event a part"
        arrivals.append(time.perf_counter() - started)
        text += part

    assert len(arrivals) > 10
    assert arrivals[-1] - arrivals[0] > 0.2, "held back, they would come at once"
    assert text.endswith(b"data: [DONE]\n\n")


def test_boto3_gets_an_answer_with_the_acceptance_of_its_drafts(endpoint: Endpoint) -> None:
    assert isinstance(endpoint.platform, LocalPlatform)

    answer = endpoint.platform.clients.runtime.invoke_endpoint(
        EndpointName=endpoint.name, Body=json.dumps(REQUEST), ContentType="application/json"
    )

    document = json.loads(answer["Body"].read())
    assert document["choices"][0]["message"]["content"]
    assert document["metrics"]["speculative_decoding"]["mean_acceptance_length"] > 2


def test_openais_client_asks_and_streams(endpoint: Endpoint) -> None:
    with endpoint.openai() as client:
        whole = client.chat.completions.create(model=endpoint.name, **REQUEST)
        pieces = client.chat.completions.create(model=endpoint.name, stream=True, **REQUEST)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)

    assert whole.choices[0].message.content == text
    assert text == endpoint.chat(REQUEST["messages"], max_tokens=120).text


def test_what_other_clients_are_told_is_enough(endpoint: Endpoint) -> None:
    info = endpoint.connect_info()
    with OpenAI(base_url=info.base_url, api_key=info.token, http_client=DefaultHttpxClient(trust_env=False)) as client:
        answer = client.chat.completions.create(model=info.model, **REQUEST)

    assert answer.choices[0].message.content == endpoint.chat(REQUEST["messages"], max_tokens=120).text
    assert info.token() not in str(info)


def test_openais_client_asks_whatever_is_served(endpoint: Endpoint) -> None:
    with endpoint.openai() as client:
        answer = client.chat.completions.create(model="", **REQUEST)

    assert answer.model == endpoint.name


def test_both_routes_answer_alike_with_acceptance(endpoint: Endpoint) -> None:
    by_invocations = endpoint.chat(REQUEST["messages"], max_tokens=120)
    by_openai = endpoint.chat(REQUEST["messages"], max_tokens=120, via="openai")

    assert by_invocations.token_ids == by_openai.token_ids
    assert by_invocations.acceptance == by_openai.acceptance
    assert by_openai.acceptance
    assert by_openai.acceptance.length > 2


def test_event_loops_ask_and_stream(endpoint: Endpoint) -> None:
    async def ask() -> tuple[list[str], str | None]:
        streams = [endpoint.astream(REQUEST["messages"], max_tokens=120) for _ in range(3)]
        texts = [answer.text for answer in await asyncio.gather(*(stream.result() for stream in streams))]
        async with endpoint.async_openai() as client:
            whole = await client.chat.completions.create(model=endpoint.name, **REQUEST)
        return texts, whole.choices[0].message.content

    texts, whole = asyncio.run(ask())
    assert texts == [whole] * 3


def test_both_arms_answer_alike(endpoint: Endpoint) -> None:
    assert endpoint.baseline
    speculative, baseline = (
        endpoint.platform.invoke(name, REQUEST)["choices"][0]["message"]["content"]
        for name in (endpoint.name, endpoint.baseline)
    )

    assert speculative == baseline
