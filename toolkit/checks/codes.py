"""What each code of a finding means: codes.json, explained one by one and as README.md.

`python -m toolkit.checks.codes` writes README.md anew.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from toolkit.errors import UsageError

_FOLDER = Path(__file__).parent
_INTRODUCTION = """\
# What `toolkit check` finds

Codes are stable: programs may rely on them; `toolkit check --explain CODE` tells one. An error stops a deployment,
warnings and infos do not. "Since" is the oldest vLLM of which we know that it is so. Paths of sources are those of
vLLM's package unless they begin with `toolkit`. It is made from `codes.json` by `python -m toolkit.checks.codes`.
"""


@dataclass(frozen=True)
class Code:
    """A kind of finding.

    `what` is wrong, `otherwise` says what would happen without the check (empty: nothing worth telling), `since` the
    oldest vLLM of which we know that it is so (empty: any), `source` where that stands; a path of vLLM's package unless
    it begins with `toolkit`.
    """

    name: str
    severity: str
    what: str
    otherwise: str
    since: str
    source: str

    def to_dict(self) -> dict[str, str]:
        """The document of `toolkit check --explain CODE --json`."""
        return asdict(self)

    def __str__(self) -> str:
        facts = {"otherwise": self.otherwise, "since vLLM": self.since, "source": self.source}
        lines = [f"  {label}: {text}" for label, text in facts.items() if text]
        return "\n".join([f"{self.name} ({self.severity}): {self.what}", *lines])


@cache
def codes() -> dict[str, Code]:
    """Every code by name, in the order of the checks."""
    data = json.loads((_FOLDER / "codes.json").read_text(encoding="utf-8"))
    return {name: Code(name, **fields) for name, fields in data.items()}


def explain(code: str) -> Code:
    """One code. Raises UsageError with the nearest names."""
    if code in codes():
        return codes()[code]
    near = difflib.get_close_matches(code, codes(), n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else "The codes stand in brackets in what `check` prints."
    raise UsageError(f"there is no code `{code}`", hint=hint)


def readme() -> str:
    """The text of README.md: all codes as a Markdown table."""
    head = "| code | severity | what is wrong | what would happen without the check | since | source |"
    rows = [
        f"| `{c.name}` | {c.severity} | {c.what} | {c.otherwise} | {c.since} | {c.source} |" for c in codes().values()
    ]
    return "\n".join([_INTRODUCTION, head, "|---|---|---|---|---|---|", *rows, ""])


if __name__ == "__main__":
    (_FOLDER / "README.md").write_text(readme(), encoding="utf-8")
