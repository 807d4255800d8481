"""A role that reads other weights too: what its policy in the account tells of their key, whatever its form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.planning.resources import Resource
from toolkit.platforms.sagemaker.rules.access import allow, also_reading, policy, storage

KEY = "arn:aws:kms:us-west-2:123456789012:key/1"
NOW, BEFORE = "s3://ours/new/", "s3://ours/old/"
LOGS = allow("logs:PutLogEvents", "*")


def item(*addresses: str) -> Resource:
    document = policy(*storage("arn:aws", addresses), LOGS)
    return Resource("RolePolicy", "r/p", {"RoleName": "r", "PolicyDocument": json.dumps(document)})


def statements(before: str | None) -> list[dict[str, Any]]:
    document = also_reading(item(NOW), "arn:aws", [BEFORE], before).request["PolicyDocument"]
    found: list[dict[str, Any]] = json.loads(document)["Statement"]
    return found


READING = [*storage("arn:aws", [NOW, BEFORE]), LOGS]


@pytest.mark.parametrize("action", ["kms:Decrypt", ["kms:Encrypt", "kms:Decrypt"]])
def test_it_keeps_the_key_of_what_it_also_reads(action: str | list[str]) -> None:
    assert statements(json.dumps(policy(allow(action, KEY)))) == [*READING, allow("kms:Decrypt", KEY)]


@pytest.mark.parametrize(
    "before",
    [
        None,
        "",
        "not JSON",
        "[]",
        '{"Statement": {"Action": "kms:Decrypt"}}',
        json.dumps(policy(allow("kms:Encrypt", KEY))),
        json.dumps(policy(allow("kms:Decrypt", [KEY]), {"Effect": "Allow", "NotAction": "kms:Decrypt"})),
        '{"Statement": ["kms:Decrypt"]}',
        json.dumps(policy({**allow("kms:Decrypt", KEY), "Effect": "Deny"})),
    ],
)
def test_a_policy_of_another_form_tells_nothing(before: str | None) -> None:
    assert statements(before) == READING


def test_of_what_it_reads_already_nothing_changes() -> None:
    assert also_reading(item(NOW), "arn:aws", [NOW], json.dumps(policy(allow("kms:Decrypt", KEY)))) == item(NOW)
