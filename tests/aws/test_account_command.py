"""`toolkit check --account` as it is used: what it prints, how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair, write_pair
from standin import StandIn

from toolkit.cli.main import run

CREATE = HUB_RECIPE.replace("name: sagemaker,", "name: sagemaker, role: create,")


@pytest.fixture(autouse=True)
def account(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account in which nothing is missing, but quotas and images may not be looked at."""
    for name, value in standin.environment().items():
        monkeypatch.setenv(name, value)
    standin.account.denied = {"servicequotas:ListServiceQuotas", "ecr:BatchGetImage"}


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = run(["check", *map(str, arguments)])
    return code, capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code, out = check(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_without_the_option_aws_is_not_asked(
    standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys, write_hub_pair(tmp_path, CREATE))[0] == 0
    assert not standin.calls


def test_what_could_not_be_read_does_not_count_against_the_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = document(capsys, write_hub_pair(tmp_path, CREATE), "--account")
    assert code == 0
    assert found["ok"]
    on_account = [(item["code"], item["severity"]) for item in found["findings"] if "account." in item["code"]]
    assert on_account == [("account.identity", "info"), ("account.unread", "info"), ("account.unread", "info")]


def test_what_is_missing_counts(standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    standin.account.denied.add("sagemaker:CreateModel")
    code, out = check(capsys, write_hub_pair(tmp_path, CREATE), "--account")
    assert code == 1
    assert "sagemaker:CreateModel [account.permissions]\n    Ask an administrator for this policy: {" in out


def test_a_local_recipe_needs_no_account(standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, write_pair(tmp_path), "--account")
    assert (code, [item["code"] for item in found["findings"]]) == (0, ["account.none"])
    assert not standin.calls


def test_aws_that_cannot_be_reached_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    code, answer = document(capsys, write_hub_pair(tmp_path, CREATE), "--account")
    assert (code, answer["error"]) == (3, "Unavailable")
    assert answer["message"].startswith("reading the AWS identity: ")
