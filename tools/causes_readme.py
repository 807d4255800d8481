"""`python -m tools.causes_readme` writes toolkit/apply/README.md: a table of all causes of failure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import toolkit.apply
from toolkit.apply.causes import Known, words

FILE = Path(toolkit.apply.__file__).with_name("README.md")
_INTRODUCTION = """\
# Why it failed

What `toolkit explain`, and a failed `toolkit deploy`, name as the cause: by lines of a container's log, or by what the
platform says. Codes are stable: programs may rely on them. A code that occurs twice has an edit for each of its
messages. What no message proves is not named. It is made from the files `causes.json` of engines and platforms, which
also have the messages and their sources, by `python -m tools.causes_readme`.
"""


def readme() -> str:
    """All causes as Markdown tables."""
    known = words()
    parts = [_INTRODUCTION, "## In a container's log", "", _table(_rows(known.log)), ""]
    subjects = [(subject.code, subject.hint) for subject in known.subjects]
    parts += ["## In an exception, by its module or its sentence", "", _table(subjects), ""]
    parts += ["## In what a server says of a request that it refuses", "", _table(_rows(known.requests)), ""]
    for platform in ("sagemaker", "kubernetes"):
        said = words(platform)
        counted = [part for listed in said.listed for part in listed.parts]
        parts += [f"## In what {platform} says", "", _table(_rows([*said.reasons, *counted])), ""]
    checks = [row for check in words().health_checks for row in check.hints.items()]
    return "\n".join([*parts, "## In a failed health check", "", _table(checks), ""])


def _rows(known: Iterable[Known]) -> Iterable[tuple[str, str]]:
    return ((cause.code, cause.hint) for cause in known)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| `{code}` | {hint} |" for code, hint in dict.fromkeys(rows)]
    return "\n".join(["| cause | the edit |", "|---|---|", *lines])


if __name__ == "__main__":
    FILE.write_text(readme(), encoding="utf-8")
