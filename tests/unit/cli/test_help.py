"""What a user tries first at a new command line."""

from __future__ import annotations

import os

import pytest

from toolkit.cli.main import run


@pytest.mark.parametrize("command", [(), ("deploy",), ("local",), ("local", "status")])
def test_h_is_help(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert run([*command, "-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage: toolkit")


def test_completion_can_be_installed(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    assert "--install-completion" in capsys.readouterr().out


def test_region_and_profile_stand_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "other")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert run(["--region", "eu-west-1", "--profile", "work", "schema"]) == 0
    assert (os.environ["AWS_DEFAULT_REGION"], os.environ["AWS_PROFILE"]) == ("eu-west-1", "work")
