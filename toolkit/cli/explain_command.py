"""The command that names the cause of a failure."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

import toolkit
from toolkit.cli.output import answer, exit_unless
from toolkit.cli.recipe_commands import AnyPlatform, Json
from toolkit.errors import UsageError

_MOST_BYTES = 64 * 1024**2
_HELP = """Name the cause of a failure, the lines that show it, and the edit to make.

Reads any log, also of endpoints that the toolkit did not create: of a container, CloudWatch or Docker, `kubectl
describe pod` or `kubectl get events`, and what `aws` answers as JSON. Exits with 1 when the cause is not known.
"""
File = Annotated[str | None, typer.Argument(metavar="[FILE|-]", help="A log; `-` reads it from stdin.")]
Reason = Annotated[str, typer.Option("--reason", help="What the platform says, such as SageMaker's FailureReason.")]
Platform = Annotated[AnyPlatform | None, typer.Option("--platform", help="Look for messages of this platform only.")]


def register(app: typer.Typer) -> None:
    app.command(help=_HELP)(explain)


def explain(file: File = None, reason: Reason = "", platform: Platform = None, as_json: Json = False) -> None:
    if file is None and not reason:
        raise UsageError("give a log, or --reason", hint="See: toolkit explain --help")
    found = toolkit.explain(None if file is None else _read(file), reason=reason, platform=platform)
    answer(found.to_dict(), as_json, lambda: str(found))
    exit_unless(bool(found))


def _read(file: str) -> str:
    """The text of a log, whatever bytes it has. Raises UsageError for a file that cannot be read, or is too large."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as log:
            data = log.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", hint="Give the path of a log, or `-` for stdin.") from error
    if len(data) > _MOST_BYTES:
        hint = f"Give its end: tail -c {_MOST_BYTES} FILE | toolkit explain -"
        raise UsageError(f"{file}: the log is larger than {_MOST_BYTES} bytes", hint=hint)
    return data.decode(errors="replace")
