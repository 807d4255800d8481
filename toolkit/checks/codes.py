"""The meaning of each finding's code, read from codes.json here and in the engines' folders."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import toolkit.engines
from toolkit.catalog import lookup
from toolkit.errors import UsageError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Code:
    """A kind of finding.

    `what` is wrong; `otherwise` says what would happen without the check (may be empty); `since` is the oldest
    version of the default engine known to behave so (empty: any); `source` is the evidence, a path in that engine's
    package unless it begins with `toolkit`.
    """

    name: str
    severity: str
    what: str
    otherwise: str
    since: str
    source: str

    def to_dict(self) -> dict[str, str]:
        """The JSON document of `toolkit check --explain CODE --json`."""
        return asdict(self)

    def __str__(self) -> str:
        facts = {"otherwise": self.otherwise, f"since {lookup.engine_title()}": self.since, "source": self.source}
        lines = [f"  {label}: {text}" for label, text in facts.items() if text]
        return "\n".join([f"{self.name} ({self.severity}): {self.what}", *lines])


@cache
def codes() -> dict[str, Code]:
    """Every code by name, in the order of the checks; those of single engines come last."""
    files = [_FOLDER / "codes.json", *sorted(Path(toolkit.engines.__file__).parent.glob("*/codes.json"))]
    data = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return {name: Code(name, **fields) for table in data for name, fields in table.items()}


def explain(code: str) -> Code:
    """One code. Raises UsageError, with similar codes as the hint."""
    if code in codes():
        return codes()[code]
    near = difflib.get_close_matches(code, codes(), n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`toolkit check` prints each finding's code in brackets."
    raise UsageError(f"unknown code `{code}`", hint=hint)
