"""Progress of stages with their elapsed time: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


_NUMBER = re.compile(r"\d")
_MINUTE = 60.0


class Progress(Protocol):
    """Where stages say what they do."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """A named step that takes time; its elapsed time is shown."""

    def update(self, text: str) -> None:
        """What the current stage is doing now."""

    def say(self, text: str) -> None:
        """A line to keep."""


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
    """One line per finished stage, and one whenever what it does changes: a minute apart where only numbers move.

    `clock` counts seconds.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = ""
        self._written = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Write the stage and its elapsed time when it is over."""
        started, outcome = self._clock(), "stopped"
        try:
            yield
            outcome = ""
        finally:
            self.say(f"[{self._clock() - started:6.1f} s] {name} {outcome}".rstrip())

    def update(self, text: str) -> None:
        """Write what the stage does, when it is something new."""
        now = self._clock()
        is_news = _NUMBER.sub("", text) != _NUMBER.sub("", self._last)
        if is_news or (text != self._last and now - self._written >= _MINUTE):
            self.say(f"           {text}")
            self._last, self._written = text, now

    def say(self, text: str) -> None:
        """Write a line. Where that fails, as in a log on a full disk, the work goes on without."""
        with suppress(OSError):
            self._write(f"{text}\n")


class TerminalProgress:
    """A moving line with the elapsed time while a stage runs, a line to keep when it is over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show the stage while it runs."""
        from rich.live import Live

        started, mark = time.monotonic(), "[red]✘[/red]"

        def line() -> str:
            return f"  {name} [dim]{time.monotonic() - started:.0f} s  {self._text}[/dim]"

        self._text = ""
        try:
            with Live(get_renderable=line, console=self._console, transient=True, refresh_per_second=8):
                yield
            mark = "[green]✔[/green]"
        finally:
            self._console.print(f"{mark} {name} [dim]{time.monotonic() - started:.1f} s[/dim]", highlight=False)

    def update(self, text: str) -> None:
        """Show what the stage does."""
        self._text = text

    def say(self, text: str) -> None:
        """Print a line above the moving one."""
        self._console.print(f"  {text}", highlight=False, markup=False)


def default_progress() -> Progress:
    """The progress that fits where we run: a terminal, a notebook, a log."""
    if sys.stderr.isatty():
        from rich.console import Console

        return TerminalProgress(Console(stderr=True))
    ipython = sys.modules.get("IPython")
    notebook = ipython and ipython.get_ipython()  # which shows stderr on red, as if something had gone wrong
    return PlainProgress(sys.stdout.write if notebook else sys.stderr.write)
