"""Small parts of Markdown pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]*`)")


def prose(text: str) -> str:
    """A text of ours, on one line: what is between backticks is code, and nothing in it is HTML."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else html.escape(part, quote=False) for part in parts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a `|` in a cell does not end it."""
    lines = [head, ["---"] * len(head), *([prose(str(cell)).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def page(title: str, *parts: str) -> str:
    """A page of paragraphs, tables and sections."""
    return "\n\n".join([f"# {title}", *parts, ""])
