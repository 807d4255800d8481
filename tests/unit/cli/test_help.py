"""What a user tries first at a new command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from toolkit.cli.group import first_sentence
from toolkit.cli.help import GROUPS
from toolkit.cli.main import app, run


@pytest.mark.parametrize("command", [(), ("deploy",), ("local",), ("local", "status")])
def test_h_is_help(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert run([*command, "-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage: toolkit")


def test_there_is_one_way_to_complete(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    shown = capsys.readouterr().out
    assert "  completion  Print a script for the shell" in shown
    assert "-completion" not in shown


EXAMPLES = [line for commands in GROUPS.values() for examples in commands.values() for line in examples]


def test_every_command_is_in_one_group_with_an_example() -> None:
    grouped = [name for commands in GROUPS.values() for name in commands]
    assert sorted(grouped) == sorted(typer.main.get_group(app).commands)


@pytest.mark.parametrize("name", [name for commands in GROUPS.values() for name in commands])
def test_a_command_is_described_by_the_first_sentence_of_its_help(name: str) -> None:
    assert first_sentence(name) == typer.main.get_group(app).commands[name].get_short_help_str(200) != ""


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_has_options_that_exist(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, name, *arguments = shlex.split(line.rpartition("| ")[2])
    group = typer.main.get_group(app)
    command = group.commands[name]
    while isinstance(command, TyperGroup) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)


def test_help_fits_a_narrow_terminal_without_a_broken_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    run(["--help"])
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "200")
    run(["--help"])
    assert narrow.split() == capsys.readouterr().out.split()


def every_command(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, TyperGroup):
            yield from every_command(command, (*path, name))


@pytest.mark.parametrize("command", list(every_command(typer.main.get_group(app))), ids=" ".join)
def test_the_help_of_a_command_fits_too_and_has_examples(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert run([*command, "-h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    examples = " ".join(line.strip().removesuffix("\\") for line in lines[lines.index("  Examples:") :])
    assert f"toolkit {' '.join(command)}" in examples


def test_region_and_profile_stand_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "other")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert run(["--region", "eu-west-1", "--profile", "work", "schema"]) == 0
    assert (os.environ["AWS_DEFAULT_REGION"], os.environ["AWS_PROFILE"]) == ("eu-west-1", "work")


def switches(group: TyperGroup) -> Iterator[TyperOption]:
    """Options without a value of all commands, that have no `--no-` beside them."""
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            yield from switches(command)
        for option in command.params:
            if isinstance(option, TyperOption) and option.is_flag and not option.secondary_opts:
                yield option


def test_what_cannot_be_switched_off_is_off() -> None:
    found = list(switches(typer.main.get_group(app)))
    assert len(found) > 40
    assert [option.opts for option in found if option.default] == []
