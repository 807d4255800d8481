"""What the user's AWS configuration says, where there are no credentials or a wrong profile."""

from __future__ import annotations

import pytest

from toolkit.api.deployment import plan
from toolkit.api.listing import status
from toolkit.platforms.sagemaker.session import SESSION

RECIPE = "qwen3-8b/p-eagle"


def test_a_plan_without_an_account_is_for_the_users_region(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SESSION.unread_account(None).region == "us-west-2"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert SESSION.unread_account("us-east-1").region == "us-east-1"
    assert plan(RECIPE).actions[0].name == "toolkit-000000000000-eu-west-1"


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "prod")
    (line,) = [line for line in status().not_listed if "prod" in line]
    assert line == (
        "opening an AWS session: The config profile (prod) could not be found. See: aws configure list-profiles"
    )


def test_what_aws_says_ends_with_one_full_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (line,) = status().not_listed
    assert line.startswith("opening an AWS session: You must specify a region. Set AWS_DEFAULT_REGION, or ")
