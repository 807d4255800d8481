"""`python -m tools.threads_page` writes docs/known-threads.md: threads, and what `toolkit check` says to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
FILE = _ROOT / "docs" / "known-threads.md"
_THREADS = _ROOT / "tests" / "unit" / "checks" / "known_threads.json"
_INTRODUCTION = """\
# Public threads on speculative decoding in vLLM

What others ran into, and what `toolkit check` says to a recipe with their settings before anything is deployed:
{named} of {all} threads are named, with the code of the finding (`toolkit check --explain CODE`). The others cannot be
known before a deployment, for the reason given. A test checks a recipe for each named thread. Made from
`tests/unit/checks/known_threads.json` by `python -m tools.threads_page`.
"""


def page() -> str:
    """Both tables as Markdown."""
    threads = json.loads(_THREADS.read_text(encoding="utf-8"))["threads"]
    named = [thread for thread in threads if "code" in thread]
    beyond = [thread for thread in threads if "beyond" in thread]
    parts = [_INTRODUCTION.format(named=len(named), all=len(threads)), "## Named before a deployment", ""]
    parts += _table(
        ("thread", "symptom", "what happened", "finding"), (_row(item, f"`{item['code']}`") for item in named)
    )
    parts += ["", "## Beyond what can be known before a deployment", ""]
    parts += _table(("thread", "symptom", "what happened", "why"), (_row(item, item["beyond"]) for item in beyond))
    return "\n".join([*parts, ""])


def _row(thread: Mapping[str, Any], last: str) -> tuple[str, ...]:
    repository, _, number = thread["thread"].rpartition("#")
    link = f"[{number}](https://github.com/{repository}/issues/{number})"
    return link, thread["symptom"], thread["said"], last


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows)]


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
