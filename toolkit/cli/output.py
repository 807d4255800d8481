"""What the command line writes: answers to stdout, everything else to stderr."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import typer

from toolkit.cli.table import paragraphs
from toolkit.errors import (
    ContainerFailed,
    PlatformError,
    RecipeError,
    RecipeNotFound,
    ToolkitError,
    UnreadableModel,
    UnreadableRecipe,
    UsageError,
)

_EXIT_CODES: tuple[tuple[type[ToolkitError], int], ...] = (
    (RecipeError, 1),
    (RecipeNotFound, 2),
    (UnreadableRecipe, 2),
    (UsageError, 2),
    (PlatformError, 3),
    (UnreadableModel, 2),
    (ToolkitError, 1),
)


def answer(
    document: dict[str, Any],
    as_json: bool,
    show: Callable[[], str],
    *,
    yes: bool = True,
    then: Sequence[str | None] = (),
) -> None:
    """Print the answer as one JSON document, or as the text that `show` returns and the command that comes next.

    Exits with code 1 where the answer is no, not `yes`.
    """
    print(json.dumps(document, indent=2, default=str) if as_json else show())  # noqa: T201
    exit_unless(yes)
    if then and not as_json:
        next_step(*then)


def lines(rows: Iterable[tuple[str, str]]) -> str:
    """Facts by name, a line each."""
    return "\n".join(f"{name}: {text}" for name, text in rows)


def say(text: str) -> None:
    """Print a line for the user to stderr, so that stdout holds the answer alone.

    Where it cannot be written, as in a log on a full disk, the command goes on without.
    """
    with suppress(OSError):
        print(text, file=sys.stderr)  # noqa: T201


def next_step(*command: str | None) -> None:
    """Say which command comes next, with the user's own values. Parts that are None are left out."""
    say(f"Next: {shlex.join(['toolkit', *(part for part in command if part is not None)])}")


def exit_unless(yes: bool) -> None:
    """Exit with code 1, "the answer is no", unless `yes`."""
    if not yes:
        raise typer.Exit(1)


def exit_code(error: ToolkitError) -> int:
    """What a command ends with that raised it."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))


class CutShort(SystemExit):
    """The answer is printed, but Ctrl-C ended it early: exit code 130."""

    def __init__(self) -> None:
        super().__init__(130)


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal, unless `yes` answers for the user; exits with 1 on a no. Raises UsageError without one."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Cannot ask: stdin is not a terminal.", hint="Add --yes.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 (input() would ask on stdout)
    exit_unless(sys.stdin.readline().strip().lower() in ("y", "yes"))


def explain(error: ToolkitError) -> str:
    """An error as text: what is wrong, wrapped to the terminal, the log lines that show it, what to do."""
    shown: Sequence[str] = ()
    if isinstance(error, ContainerFailed):
        shown = error.cause.evidence if error.cause else error.logs
    hint = [paragraphs([f"  {error.hint}"])] if error.hint else []
    return "\n".join([paragraphs([f"error: {error.message}"]), *(f"  | {line}" for line in shown), *hint])


def error_document(error: ToolkitError) -> dict[str, Any]:
    """An error as the JSON document of a command."""
    document: dict[str, Any] = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, ContainerFailed):
        document["logs"] = list(error.logs)
        document["cause"] = asdict(error.cause) if error.cause else None
    if isinstance(error, RecipeError):
        document["findings"] = [asdict(finding) for finding in error.findings]
    return document
