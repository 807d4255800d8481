"""Show the progress of stages and their elapsed time: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

from toolkit.text import inert, raw_stream

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_NUMBER = re.compile(r"\d")
_MINUTE = 60.0


class Progress(Protocol):
    """Receives the progress of stages."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """A named stage, timed from enter to exit."""

    def update(self, text: str) -> None:
        """Show what the current stage is doing."""

    def say(self, text: str) -> None:
        """Show a line permanently."""


class Silent:
    """Reports no progress."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Show nothing."""
        return nullcontext()

    def update(self, text: str) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


class PlainProgress:
    """One line per finished stage, and one per update. Updates that differ only in numbers appear once a minute.

    `clock` counts seconds.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = ""
        self._written = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started, outcome = self._clock(), "stopped"
        try:
            yield
            outcome = ""
        finally:
            self.say(f"[{self._clock() - started:6.1f} s] {name} {outcome}".rstrip())

    def update(self, text: str) -> None:
        now = self._clock()
        is_news = _NUMBER.sub("", text) != _NUMBER.sub("", self._last)
        if is_news or (text != self._last and now - self._written >= _MINUTE):
            self.say(f"           {text}")
            self._last, self._written = text, now

    def say(self, text: str) -> None:
        """Write a line. Where that fails, as in a log on a full disk, the work goes on without."""
        with suppress(OSError):
            self._write(f"{inert(text)}\n")


class TerminalProgress:
    """A live line with the elapsed time while a stage runs, and a permanent line when it has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        from rich.live import Live

        started, mark = time.monotonic(), ("✘", "red")

        def line() -> Text:
            return _line("  ", name, (f" {time.monotonic() - started:.0f} s  {self._text}", "dim"))

        self._text = ""
        try:
            with Live(
                get_renderable=line,
                console=self._console,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,  # rich would obey colours in what others write meanwhile
                redirect_stderr=False,
            ):
                yield
            mark = ("✔", "green")
        finally:
            self._console.print(_line(mark, f" {name}", (f" {time.monotonic() - started:.1f} s", "dim")))

    def update(self, text: str) -> None:
        self._text = text

    def say(self, text: str) -> None:
        self._console.print(_line(f"  {text}"))


def _line(*parts: str | tuple[str, str]) -> Text:
    """Plain and styled parts, in which nothing is markup."""
    from rich.text import Text

    return Text.assemble(*(inert(part) if isinstance(part, str) else (inert(part[0]), part[1]) for part in parts))


def default_progress() -> Progress:
    """The progress display for a terminal, a notebook or a log, whichever this is."""
    if sys.stderr.isatty():
        from rich.console import Console

        return TerminalProgress(Console(file=raw_stream(sys.stderr)))
    ipython = sys.modules.get("IPython")
    notebook = ipython and ipython.get_ipython()  # a notebook shows stderr in red, like an error
    return PlainProgress(sys.stdout.write if notebook else sys.stderr.write)
