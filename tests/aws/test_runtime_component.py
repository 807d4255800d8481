"""The handle of an inference component on AWS's stand-in: every route leads to it, and so do its log and metrics."""

from __future__ import annotations

import asyncio

import pytest
from fakes import answer_events, event_stream
from standin import StandIn
from standin_runtime import Invocation, Reply
from standin_user import User

from toolkit.api.endpoint import Endpoint
from toolkit.planning.plan import Plan
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

ANSWER = Reply((event_stream(answer_events([7, 8], histogram=[0, 0, 1])),), content_type="text/event-stream")


@pytest.fixture
def asked(standin: StandIn) -> list[tuple[str, str]]:
    """Endpoint and component of each request, in their order; all get the same answer."""
    invocations: list[tuple[str, str]] = []

    def container(invocation: Invocation) -> Reply:
        invocations.append((invocation.endpoint, invocation.component))
        return ANSWER

    standin.serve(container)
    return invocations


@pytest.fixture
def component(standin: StandIn) -> Endpoint:
    """`llm` on the endpoint `shared`, in service."""
    user = User(standin)
    user.deploy_for_components("shared")
    standin.script_component("llm", ["Creating", "InService"], logs=("llm starts",))
    user.create_component("llm", "shared")
    standin.settle()

    def destroyer(name: str) -> Plan:
        raise NotImplementedError

    return Endpoint("shared", SageMakerPlatform(Clients(standin.session())), component="llm", destroyer=destroyer)


def test_requests_reach_it_over_both_routes(component: Endpoint, asked: list[tuple[str, str]]) -> None:
    texts = [component.chat("hello").text, component.chat("hello", via="openai").text]
    texts.append(asyncio.run(component.achat("hello")).text)
    assert texts == ["<7><8>"] * 3
    assert asked == [("shared", "llm")] * 3


def test_openais_client_reaches_it(component: Endpoint, asked: list[tuple[str, str]]) -> None:
    with component.openai() as client:
        pieces = client.chat.completions.create(model="", messages=[{"role": "user", "content": "hi"}], stream=True)
        text = "".join(choice.delta.content or "" for piece in pieces for choice in piece.choices)
    assert text == "<7><8>"
    assert asked == [("shared", "llm")]


def test_its_log_is_its_own(component: Endpoint) -> None:
    assert list(component.logs()) == ["llm starts"]


def test_its_metrics_are_its_own(standin: StandIn, component: Endpoint) -> None:
    standin.promql["generation_tokens"] = 7200
    metrics = component.metrics()
    assert metrics.endpoint == "shared/llm"
    assert metrics.engine.output_tokens_per_second == 2.0


def test_it_says_whose_component_it_is(component: Endpoint) -> None:
    assert component.address == "shared/llm"
    document = component.to_dict()
    assert (document["name"], document["component"], document["status"]) == ("shared", "llm", "InService")


def test_a_name_leads_to_the_endpoints_own_only_component(standin: StandIn) -> None:
    user, platform = User(standin), SageMakerPlatform(Clients(standin.session()))
    user.deploy("alone")
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    assert [platform.address(name) for name in ("alone", "shared", "llm")] == ["alone", "shared/llm", "shared/llm"]
