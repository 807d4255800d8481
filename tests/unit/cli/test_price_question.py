"""`toolkit deploy` on AWS says what it costs, and asks before something is created that is billed."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aws_in_memory import ON_AWS, AwsInMemory, Terminal, aws_in_memory
from pairs import write_pair

from toolkit.cli.main import run
from toolkit.planning.plan import Action, Plan

DEPLOYS = (Action("Endpoint", "tiny", "create", "does not exist", {}),)
PLAN = Plan("recipe.yaml", "sagemaker", ("tiny",), DEPLOYS, price_per_hour=1.13, fingerprint="")


@pytest.fixture
def aws() -> Iterator[AwsInMemory]:
    with aws_in_memory() as platform:
        yield platform


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = write_pair(tmp_path)
    path.write_text(ON_AWS)
    return path


def test_the_price_is_shown_and_a_no_creates_nothing(
    aws: AwsInMemory, recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run(["deploy", str(recipe), "--no-wait"]) == 1
    assert "Deploy this to 123456789012 us-west-2, 1.13 $/h while running? [y/N]" in capsys.readouterr().err
    assert aws.done == []


def test_where_nobody_can_be_asked_it_needs_a_yes(
    aws: AwsInMemory, recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run(["deploy", str(recipe), "--no-wait"]) == 2
    assert "Add --yes." in capsys.readouterr().err
    assert aws.done == []
    assert run(["deploy", str(recipe), "--no-wait", "--yes"]) == 0
    assert aws.done


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        (0.0, 1.13, True),
        (1.13, 1.13, False),
        (2.26, 1.13, False),
        (0.0, None, True),
        (None, 1.13, True),
        (None, None, False),  # a cluster's nodes are billed whether pods run on them or not
    ],
)
def test_it_is_asked_where_more_is_billed_than_now(before: float | None, after: float | None, asked: bool) -> None:
    plan = replace(PLAN, price_before=before, price_per_hour=after)
    assert plan.costs_more is asked
    assert replace(plan, actions=()).costs_more is False
