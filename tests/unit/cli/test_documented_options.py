"""Every command in the documents has a program that is known and, if it is ours, options that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from documented_commands import PAGES, commands, of_toolkit
from typer.core import TyperGroup

from toolkit.cli.main import app

OTHERS = {".", "aws", "curl", "echo", "git", "make", "pip", "python", "rm"}
CALLS = [(page, call) for page in PAGES for call in of_toolkit(page)]


def test_the_documents_have_commands() -> None:
    assert len(CALLS) > 60
    assert len(of_toolkit("README.md")) > 10
    assert len(of_toolkit("docs/tutorial.md")) > 15


@pytest.mark.parametrize(("page", "call"), CALLS, ids=[f"{page}-{' '.join(call)}" for page, call in CALLS])
def test_a_command_has_options_that_exist(
    page: str, call: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command: object = typer.main.get_group(app)
    name, arguments = "toolkit", call
    while isinstance(command, TyperGroup) and arguments and arguments[0] in command.commands:
        name, *arguments = arguments
        command = command.commands[name]
    assert command is not None
    assert name != "toolkit", f"{page}: there is no command `{call[0]}`"
    command.make_context(name, arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES)
def test_other_programs_are_common_ones(page: str) -> None:
    assert {line.split()[0] for line in commands(page)} <= {"toolkit", *OTHERS}
