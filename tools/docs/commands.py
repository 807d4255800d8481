"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from toolkit.cli.help import GROUPS
from toolkit.cli.main import app
from tools.docs.markdown import code, page, prose, table

_INTRODUCTION = """\
What `toolkit COMMAND --help` says of each command, in the order in which the commands are needed. All that answer
take `--json`: then stdout is one JSON document. Exit codes: 0 yes or done, 1 the answer is no, 2 wrong usage or
nothing to read, 3 the platform refused or failed, 130 interrupted."""


def commands_page() -> str:
    """Every command with its options and examples."""
    group = typer.main.get_group(app)
    parts = [_INTRODUCTION, _options(group, "toolkit")]
    for title, names in GROUPS.items():
        parts += [f"## {title}", *(part for name in names for part in _command(group.commands[name], name))]
    return page("Commands", *parts)


def _command(command: TyperCommand | TyperGroup | object, name: str) -> Iterator[str]:
    assert isinstance(command, TyperCommand | TyperGroup)
    context = typer.Context(command, info_name=f"toolkit {name}")
    yield f"### toolkit {name}"
    yield code(command.get_usage(context).removeprefix("Usage: "))
    yield from (prose(paragraph) for paragraph in (command.help or "").split("\n\n"))
    yield _options(command, f"toolkit {name}")
    if examples := next((named[name] for named in GROUPS.values() if name in named), ()):
        yield code("\n".join(f"$ {line}" for line in examples), "console")
    if isinstance(command, TyperGroup):
        for inner, below in command.commands.items():
            yield from _command(below, f"{name} {inner}")


def _options(command: TyperCommand | TyperGroup, name: str) -> str:
    context = typer.Context(command, info_name=name)
    rows = [record for option in command.params if (record := option.get_help_record(context))]
    return table(("option", "what it does"), [(f"`{names}`", text) for names, text in rows]) if rows else ""
