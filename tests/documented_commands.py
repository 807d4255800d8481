"""The commands that the documents show: blocks marked `console`, their lines that begin with `$`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
TUTORIAL = "docs/tutorial.md"
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a language on a page, which is named from the root of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [body for _, found, body in _BLOCK.findall(text) if found == language]


def commands(page: str) -> list[str]:
    """Every command of a page."""
    lines = [line.strip() for block in blocks(page, "console") for line in block.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


def of_toolkit(page: str) -> list[tuple[str, ...]]:
    """The arguments of every call of `toolkit` on a page, also behind a pipe."""
    parts = [part.strip() for line in commands(page) for part in re.split(r" \| | && ", line)]
    return [tuple(shlex.split(part, comments=True)[1:]) for part in parts if part.startswith("toolkit ")]
