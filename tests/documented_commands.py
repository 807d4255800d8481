"""The commands that the documents show: blocks marked `console`, their lines that begin with `$`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^([ ]*)```console\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """Every command of a page, without comments. A page is named from the root."""
    blocks = [body for _, body in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [
        shlex.join(words) if "|" not in line and ">" not in line else line[2:]
        for line in lines
        if line.startswith("$ ") and (words := shlex.split(line[2:], comments=True))
    ]


def of_toolkit(page: str) -> list[list[str]]:
    """The arguments of every call of `toolkit` on a page, also behind a pipe."""
    parts = [part.strip() for line in commands(page) for part in re.split(r" \| | && ", line)]
    return [shlex.split(part)[1:] for part in parts if part.startswith("toolkit ")]
