"""`python -m tools.codes_readme` writes toolkit/checks/README.md: a table of all codes of findings."""

from __future__ import annotations

from pathlib import Path

import toolkit.checks
from toolkit.checks.codes import codes

FILE = Path(toolkit.checks.__file__).with_name("README.md")
_INTRODUCTION = """\
# What `toolkit check` finds

Codes are stable: programs may rely on them; `toolkit check --explain CODE` tells one. An error stops a deployment,
warnings and infos do not. "Since" is the oldest vLLM of which we know that it is so. Paths of sources are those of
vLLM's package unless they begin with `toolkit`. It is made from the files
`codes.json`, here and in the folders of engines, by `python -m tools.codes_readme`.
"""


def readme() -> str:
    """All codes as a Markdown table."""
    head = "| code | severity | what is wrong | what would happen without the check | since | source |"
    rows = [
        f"| `{c.name}` | {c.severity} | {c.what} | {c.otherwise} | {c.since} | {c.source} |" for c in codes().values()
    ]
    return "\n".join([_INTRODUCTION, head, "|---|---|---|---|---|---|", *rows, ""])


if __name__ == "__main__":
    FILE.write_text(readme(), encoding="utf-8")
