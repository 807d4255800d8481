"""`toolkit`: the command line. Commands say what they do; errors and exit codes are dealt with here, once.

Exit codes: 0 yes or done, 1 the answer is no, 2 wrong usage or no recipe to read, 3 the platform refused or failed,
130 interrupted.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

import toolkit
from toolkit.cli.group import Commands
from toolkit.cli.output import CutShort, error_document, exit_code, explain, say
from toolkit.errors import PlatformError, ToolkitError, UsageError
from toolkit.home import OF_ONES_OWN, home
from toolkit.text import inert_stream
from toolkit.version import REINSTALL, __version__

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # `toolkit completion` knows recipes too, and starts no Python
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)  # noqa: T201
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 (Typer shows it before it comes here)
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    region: Annotated[
        str | None, typer.Option(help="AWS region, unless the recipe names one. Before the command.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of your AWS configuration. Before the command.")] = None,
) -> None:
    """Deploy LLMs with speculative decoding, and prove that it pays."""
    if region:
        from toolkit.catalog.lookup import nearest_region

        if meant := nearest_region(region):
            raise UsageError(f"{region} is not an AWS region", hint=f"Did you mean {meant}?")
        os.environ["AWS_DEFAULT_REGION"] = region
    if profile:
        os.environ["AWS_PROFILE"] = profile


_INTERRUPTED = 130
_EXIT_CODE_OUTSIDE = 3
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NO_ANSWER = {2: "UsageError", _INTERRUPTED: "Interrupted"}
_CARRY_ON = "interrupted: what was done is recorded. The same command carries on; `toolkit destroy` removes it."


def main() -> None:
    """Run one command and exit with its code."""
    if "deploy" not in getattr(toolkit, "__all__", ()):
        say(f"error: another project's package `toolkit` has replaced files of this one\n  {REINSTALL}")
        sys.exit(_EXIT_CODE_OUTSIDE)
    hear_interrupts()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        code = 0 if error.errno == errno.EPIPE else _file_error(error, wants_json=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more, and says so
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; its exit code. What it writes is shown by the terminal, and never obeyed."""
    with redirect_stdout(inert_stream(sys.stdout)), redirect_stderr(inert_stream(sys.stderr)):
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="toolkit")
    except CutShort:
        return _INTERRUPTED
    except SystemExit as ended:  # how typer ends: 0, an Exit's own code, 2 for wrong usage, 130 for Ctrl-C
        code = 0 if _has_read_enough(ended) else int(ended.code or 0)
        if code == _INTERRUPTED:
            say(_CARRY_ON)
        if code in _NO_ANSWER and _wants_json(arguments):
            print(json.dumps({"error": _NO_ANSWER[code], "message": "See stderr.", "hint": ""}))  # noqa: T201
        return code
    except ToolkitError as error:
        return _refuse(error, arguments)
    except OSError as error:
        lacking = _lacking_folder() if isinstance(error, FileNotFoundError) and error.filename is None else None
        if lacking is None and error.filename is None and error.errno not in _DISK_ERRORS:
            raise
        return _refuse(lacking, arguments) if lacking else _file_error(error, _wants_json(arguments))
    return 0


def _refuse(error: ToolkitError, arguments: list[str]) -> int:
    """Say what is wrong and what to do, and as a document where one is wanted; the exit code."""
    say(explain(error))
    if _wants_json(arguments):
        print(json.dumps(error_document(error)))  # noqa: T201
    return exit_code(error)


def _lacking_folder() -> ToolkitError | None:
    """Which folder is missing where a file without a name is: the present one, or any for temporary files."""
    import tempfile

    try:
        Path.cwd()
        tempfile.gettempdir()
    except FileNotFoundError as error:
        if "temporary" in str(error):
            message = "there is no folder for temporary files that can be written and has room"
            return PlatformError(message, hint="Set TMPDIR to one, or make room in /tmp.")
        return UsageError("the folder that this runs in was deleted", hint="Go to one that is there, such as: cd ~")
    return None


def _has_read_enough(ended: SystemExit) -> bool:
    """Whether whoever reads the answer closed it, as `| head` does: typer then ends with 1."""
    return isinstance(ended.__context__, OSError) and ended.__context__.errno == errno.EPIPE


def _file_error(error: OSError, wants_json: bool) -> int:
    """Say which file it is, and what is wrong with it; the exit code."""
    file = error.filename or "the answer could not be written"
    is_home = isinstance(file, str) and Path(file).is_relative_to(home())
    hint = OF_ONES_OWN if is_home and error.errno in _FORBIDDEN else ""
    said = PlatformError(f"{file}: {error.strerror}", hint=hint)
    say(explain(said))
    if wants_json and error.filename:
        print(json.dumps(error_document(said)))  # noqa: T201
    return _EXIT_CODE_OUTSIDE


def _wants_json(arguments: list[str]) -> bool:
    return bool({"--json", "--format=json"} & set(arguments)) or ("--format", "json") in pairwise(arguments)


_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_MOMENT_SECONDS = 0.005
_PATIENCE_SECONDS = 0.5
_CAN_WAIT = hasattr(signal, "setitimer")  # Windows has none


def hear_interrupts() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread when nothing is lost by it.

    Where somebody else has taken SIGINT over, the others do what that one does; where one is ignored, it stays ignored.
    A CI job that is cancelled gets SIGTERM, and so does each command of a fleet; SIGHUP comes when a terminal closes.

    An exception in the middle of other people's code may be lost. Python drops one out of a finalizer, such as that of
    an HTTP answer, and one out of the `__enter__` of a lock in Python code leaves it taken for ever, by which urllib3
    waits for itself (https://github.com/python/cpython/issues/78022). So it is raised once our own code runs or waits.
    """
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.begin)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, ending.begin)
    if os.name == "posix" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # `nohup` ignores it
        signal.signal(signal.SIGHUP, ending.begin)
    if _CAN_WAIT:
        signal.signal(signal.SIGALRM, ending.interrupt)


@dataclass
class _Ending:
    """`deadline` is when it is raised wherever the program is: it may wait for a network, which nobody sees."""

    deadline: float = 0.0

    def begin(self, number: int, frame: FrameType | None) -> None:
        """That a terminal closes the shell tells, then the kernel: the second may not interrupt the clearing up."""
        if self.deadline and os.name == "posix" and number == signal.SIGHUP:
            return
        self.deadline = self.deadline or time.monotonic() + _PATIENCE_SECONDS
        self.interrupt(number, frame)

    def interrupt(self, _: int, frame: FrameType | None) -> None:
        if _CAN_WAIT and not _is_ours(frame) and time.monotonic() < self.deadline:
            signal.setitimer(signal.ITIMER_REAL, _MOMENT_SECONDS)  # which ends in SIGALRM
            return
        if _CAN_WAIT:
            signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough: another would come amid the clearing up
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler != self.begin:  # a measurement has its own, which keeps what was measured
            handler(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)
