"""Tables in plain text. Only tables that must wrap use rich, which takes 50 ms to load."""

from __future__ import annotations

import io
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

from toolkit.text import inert

_GAP = 2
# A command that is to be copied: a line break would end it too early.
_COMMAND = re.compile(r"(: |\$ |`)(toolkit|pip|aws|kubectl|docker|cat) ")


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], room: int | None = None) -> str:
    """A table at most `room` characters wide: by default the terminal's width, or unlimited in a log or pipe.

    Cells wrap between words. If even the longest words do not fit, each row becomes lines of `name  value`.
    """
    room = terminal_width() if room is None else room
    rows = [tuple(map(inert, row)) for row in rows]
    if (plain := _fit_unwrapped([head, *rows], room)) is not None:
        return plain
    if widths := _widths([head, *rows], room):
        return _columns([head, tuple("-" * width for width in widths), *rows], widths)
    names = max(_measure(name)[1] for name in head)
    widths = [names, max(room - names - _GAP, 1)]
    return "\n\n".join(_columns(list(zip(head, row, strict=True)), widths) for row in rows)


def _fit_unwrapped(rows: Sequence[tuple[str, ...]], room: int) -> str | None:
    """The table, if every cell is one line of plain ASCII and all columns fit; else None."""
    if not all(cell.isascii() and cell.isprintable() and cell == cell.strip() for row in rows for cell in row):
        return None
    widths = [max(1, *map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > room:
        return None
    head, *body = rows
    lines = [head, tuple("-" * width for width in widths), *body]
    gap = " " * _GAP
    return "\n".join(gap.join(map(str.ljust, line, widths)).rstrip() for line in lines)


def paragraphs(texts: Sequence[str]) -> str:
    """Texts below one another, wrapped to the terminal; lines with a command stay whole."""
    room = terminal_width()
    return "\n".join(line for text in texts for line in _wrap_lines(inert(text), room))


def _wrap_lines(text: str, room: int) -> list[str]:
    lines = text.splitlines()
    return [
        part for line in lines for part in ([line] if len(line) <= room or _COMMAND.search(line) else _wrap(line, room))
    ]


def _wrap(line: str, room: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + _GAP)
    return textwrap.wrap(line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def terminal_width() -> int:
    """The terminal's width in characters; unlimited in a log or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def _widths(rows: Sequence[tuple[str, ...]], room: int) -> list[int]:
    """Each column's width; empty if a word would have to be broken. Columns that need less space are served first."""
    measured = [_measure("\n".join(column)) for column in zip(*rows, strict=True)]
    widths = [narrowest for narrowest, _ in measured]
    spare = room - sum(widths) - _GAP * (len(widths) - 1)
    if spare < 0:
        return []
    wanted = [widest - narrowest for narrowest, widest in measured]
    by_wish = sorted(range(len(widths)), key=wanted.__getitem__)
    for others, column in zip(range(len(widths) - 1, -1, -1), by_wish, strict=True):
        given = min(wanted[column], spare // (others + 1))
        widths[column] += given
        spare -= given
    return widths


def _measure(text: str) -> tuple[int, int]:
    """Width of the longest word and of the longest line in terminal cells, at least 1."""
    from rich.cells import cell_len

    longest = [max(map(cell_len, parts), default=1) for parts in (text.split(), text.splitlines())]
    return max(longest[0], 1), max(longest[1], 1)


def _columns(rows: Sequence[tuple[str, ...]], widths: Sequence[int]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    laid_out = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    for width in widths:
        laid_out.add_column(width=width, overflow="fold")
    for row in rows:
        laid_out.add_row(*map(Text, row))
    written = io.StringIO()
    console = Console(file=written, width=sum(widths) + _GAP * len(widths), color_system=None)
    console.print(laid_out)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())
