"""A disk that takes nothing any more: what runs on AWS is still removed, and its cost ends."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from pairs import HUB_RECIPE, write_pair, write_recipe
from standin import StandIn

from toolkit.cli.main import run


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.001"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "Session", lambda **_: standin.session())
    write_pair(tmp_path)
    return write_recipe(tmp_path, HUB_RECIPE.replace("platform: {", "platform: {role: create, ").replace("org/", "./"))


@pytest.fixture
def lost_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No file can be made below it: it is one."""
    (tmp_path / "home").touch()
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_destroy_removes_the_endpoint_and_says_once_that_it_is_not_recorded(
    standin: StandIn, recipe: Path, lost_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["deploy", str(recipe), "--no-prove", "--yes"]) == 0, "a record that is lost stops no deployment either"
    capsys.readouterr()
    assert run(["destroy", str(recipe), "--yes"]) == 0
    assert [item for item in standin.leftovers() if not item.startswith("logs group")] == []
    said = capsys.readouterr()
    record = lost_home / "records" / "hub.jsonl"
    warning = f"warning: this command is not recorded in {record}: Not a directory. It goes on all the same."
    assert said.err.count(warning) == 1
    assert said.out.startswith("removed ")
