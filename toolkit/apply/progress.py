"""Show the progress of stages and their elapsed time: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from toolkit.display import Fragment, box, fold, in_tone, prose
from toolkit.text import html, inert, raw_stream

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_NUMBER = re.compile(r"\d")
_MINUTE = 60.0
_REDRAW_SECONDS = 0.2
_STEPS_SHOWN = 8


class Progress(Protocol):
    """Receives the progress of stages."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """A named stage, timed from enter to exit."""

    def update(self, text: str, detail: str = "") -> None:
        """Show what the current stage is doing. `detail`, such as a log's last line, is for live displays only."""

    def say(self, text: str) -> None:
        """Show a line permanently."""


class Silent:
    """Reports no progress."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Show nothing."""
        return nullcontext()

    def update(self, text: str, detail: str = "") -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


class PlainProgress:
    """One line per finished stage, and one per update. Updates that differ only in numbers appear once a minute.

    That also holds where two of them alternate, as with two arms that are measured by turns.

    `clock` counts seconds.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = ""
        self._written: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started, outcome = self._clock(), "stopped"
        try:
            yield
            outcome = ""
        finally:
            self.say(f"[{self._clock() - started:6.1f} s] {name} {outcome}".rstrip())

    def update(self, text: str, detail: str = "") -> None:
        now, words = self._clock(), _NUMBER.sub("", text)
        if text != self._last and now - self._written.get(words, -_MINUTE) >= _MINUTE:
            self.say(f"           {text}")
            self._last, self._written[words] = text, now

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

    def update(self, text: str, detail: str = "") -> None:
        self._text = f"{text}\n    {detail}" if detail else text

    def say(self, text: str) -> None:
        self._console.print(_line(f"  {text}"))


class NotebookProgress:
    """One box in a notebook that is brought up to date: the steps so far, and what is being done.

    `show` replaces the box by HTML; `clock` counts seconds.
    """

    def __init__(self, show: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._show, self._clock = show, clock
        self._ended: list[Fragment] = []
        self._now: tuple[Fragment, ...] = ()
        self._name, self._started, self._shown = "", 0.0, -_MINUTE

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._name, self._started, sign = name, self._clock(), in_tone("✘", "bad")
        self.update("")
        try:
            yield
            sign = in_tone("✔", "good")
        finally:
            self._now = ()
            self._add(Fragment(f"{sign} {html(name)} {in_tone(f'{self._clock() - self._started:.1f} s', 'soft')}"))

    def update(self, text: str, detail: str = "") -> None:
        elapsed = f"{self._clock() - self._started:.0f} s"
        self._now = (Fragment(f"… {html(self._name)} {in_tone(f'{elapsed}  {text}', 'soft')}"), in_tone(detail, "soft"))
        if self._clock() - self._shown >= _REDRAW_SECONDS:
            self._draw()

    def say(self, text: str) -> None:
        self._add(in_tone(text, "soft"))

    def _add(self, line: Fragment) -> None:
        self._ended.append(line)
        self._draw()

    def _draw(self) -> None:
        self._shown = self._clock()
        early, late = self._ended[:-_STEPS_SHOWN], self._ended[-_STEPS_SHOWN:]
        self._show(box(fold(f"{len(early)} steps before", prose(*early)), prose(*late, *self._now)))


class _Screen:
    """A terminal that may be closed meanwhile: what cannot be written is lost, and the work goes on without."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._terminal.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._terminal.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)


def _line(*parts: str | tuple[str, str]) -> Text:
    """Plain and styled parts, in which nothing is markup."""
    from rich.text import Text

    return Text.assemble(*(inert(part) if isinstance(part, str) else (inert(part[0]), part[1]) for part in parts))


def default_progress() -> Progress:
    """The progress display for a terminal, a notebook or a log, whichever this is."""
    if sys.stderr.isatty():
        from rich.console import Console

        return TerminalProgress(Console(file=cast("IO[str]", _Screen(raw_stream(sys.stderr)))))
    ipython = sys.modules.get("IPython")
    if ipython and hasattr(ipython.get_ipython(), "kernel"):
        return NotebookProgress(_notebook_box())
    return PlainProgress(sys.stderr.write)


def _notebook_box() -> Callable[[str], object]:
    """An output of the current cell that each call replaces."""
    ipython: Any = import_module("IPython.display")
    boxes: list[Any] = []

    def show(text: str) -> None:
        shown = {"text/html": text, "text/plain": "(progress)"}
        if boxes:
            boxes[0].update(shown, raw=True)
        else:
            boxes.append(ipython.display(shown, raw=True, display_id=True))

    return show
