"""What AWS refuses, the stand-in refuses; what AWS takes, it takes: the two requests of each rule in `refusals`."""

from __future__ import annotations

import gc
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from refusal_requests import Sender
from standin import StandIn
from standin_refusals import Rule, rules

from toolkit.platforms.local.validation import problems

# Connections are kept from one test to the next; one that the server has ended is found when it is collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

SGLANG = "763104351884.dkr.ecr.us-west-2.amazonaws.com/sglang:server-sagemaker-cuda-v1.4"
NEWEST = "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:server-sagemaker-cuda-v2"
TAKEN: list[tuple[str, dict[str, object]]] = [
    ("pipeline", {"Containers.1": None}),
    ("model", {"PrimaryContainer.Image": NEWEST}),
    ("model", {"PrimaryContainer.Image": SGLANG}),
    ("serverless-config", {}),
    ("schedule", {}),
    ("groups-job", {}),
    ("lustre-job", {}),
    ("preferences-job", {}),
    ("invoke-async", {}),
]


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Any]]:
    clients: dict[str, Any] = {}
    yield clients
    for client in clients.values():
        client.close()
    gc.collect()  # within these filters, not in the middle of another file's test


@pytest.fixture
def sender(standin: StandIn, clients: dict[str, Any]) -> Sender:
    standin.account.iam.late = 0.0  # each rule is of its request alone; the roles of its world are known at once
    return Sender(standin, clients)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_a_rule_refuses_one_request_and_takes_another(sender: Sender, rule: Rule) -> None:
    sender.prepare(rule)

    with pytest.raises(ClientError) as refused:
        sender.refused(rule)
    error = refused.value.response["Error"]
    assert error["Code"] == rule.code, error
    assert error.get("Message", "").startswith(rule.message)

    sender.taken(rule)


@pytest.mark.parametrize(("base", "changes"), TAKEN)
def test_what_aws_takes_is_taken(sender: Sender, base: str, changes: dict[str, object]) -> None:
    sender.ask(base, changes)


def test_an_endpoint_may_be_serverless_or_of_a_model_with_a_list_of_containers(
    standin: StandIn, sender: Sender
) -> None:
    sender.ask("serverless-config", {})
    sender.ask("pipeline", {"Containers.1": None})
    sender.ask("config", {"EndpointConfigName": "listed", "ProductionVariants.0.ModelName": "pipeline"})
    for name in ("serverless", "listed"):
        sender.ask("young-endpoint", {"EndpointName": name, "EndpointConfigName": name})
        standin.settle()
        answer = sender.ask("invoke", {"EndpointName": name, "Body": '{"prompt": "hello"}'})
        assert json.loads(answer["Body"].read()) == {"prompt": "hello"}


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", html.unescape(re.sub(r"<[^>]+>", " ", text))).lower()


@pytest.mark.parametrize("rule", [r for r in rules() if r.source.startswith("botocore")], ids=lambda rule: rule.id)
def test_a_rule_quotes_the_documentation_of_botocore(rule: Rule) -> None:
    _, service, place = rule.source.split()
    model = botocore.session.get_session().get_service_model(service)
    name, _, member = place.partition(".")
    if name in model.operation_names and not member:
        text = model.operation_model(name).documentation
    else:
        shape = model.shape_for(name)
        text = (shape.members[member] if member else shape).documentation
    for part in rule.says.split("…"):
        assert _plain(part) in _plain(text)


@pytest.mark.parametrize("service", sorted({rule.service for rule in rules()}))
def test_every_pattern_of_botocore_is_read_or_left(service: str) -> None:
    model = botocore.session.get_session().get_service_model(service)
    shapes = [model.shape_for(name) for name in model.shape_names]
    for shape in shapes:
        if shape.type_name == "string" and "pattern" in shape.metadata:
            list(problems("text", shape))


def _row(name: str, counted: list[Rule]) -> str:
    of_botocore = [rule for rule in counted if rule.source.startswith("botocore")]
    seen = [rule for rule in counted if rule.known == "seen live"]
    own = [rule for rule in counted if rule.is_evaluated]
    return f"| {name} | {len(counted)} | {len(own)} | {len(of_botocore)} | {len(seen)} |"


def test_the_figures_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs/explain/stand-in.md").read_text()
    services = sorted({rule.service for rule in rules()})
    rows = [_row(name, [rule for rule in rules() if rule.service == name]) for name in services]
    assert "\n".join([*rows, _row("all", list(rules()))]) in page
