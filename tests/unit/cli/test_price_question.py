"""`toolkit deploy` on AWS says what it costs, and asks before something is created that is billed."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_in_memory import ON_AWS, AwsInMemory, Terminal, aws_in_memory
from pairs import write_pair

from toolkit.cli.main import run


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
