"""What AWS refuses, the stand-in refuses; what AWS takes, it takes: the two requests of each rule in `refusals`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import botocore.session
import pytest
from botocore.exceptions import ClientError
from refusal_requests import Sender
from standin import StandIn
from standin_refusals import Rule, rules


@pytest.fixture(scope="module")
def sender(_standin: StandIn) -> Iterator[Sender]:
    yield Sender(_standin)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_a_rule_refuses_one_request_and_takes_another(standin: StandIn, sender: Sender, rule: Rule) -> None:
    sender.prepare(rule)

    with pytest.raises(ClientError) as refused:
        sender.refused(rule)
    error = refused.value.response["Error"]
    assert error["Code"] == rule.code, error
    assert error.get("Message", "").startswith(rule.message)

    sender.taken(rule)


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
