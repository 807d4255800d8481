"""What a check found: the one shape in which the toolkit tells a user that a recipe is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toolkit.display import Fragment, Tone, card, prose, table, toned
from toolkit.frames import data_frame
from toolkit.text import inert

Severity = Literal["error", "warning", "info"]

_SIGNS: Mapping[str, tuple[str, Tone]] = {"error": ("✘", "bad"), "warning": ("!", "fair"), "info": ("i", "soft")}


@dataclass(frozen=True)
class Finding:
    """One thing a check has to say.

    `code` is stable and documented (`toolkit check --explain CODE`), `path` is the recipe key in dots (empty: the whole
    recipe), `line` counts from 1 (None when neither the key nor one above it is in the file), `hint` is the edit.
    """

    code: str
    message: str
    path: str = ""
    line: int | None = None
    hint: str = ""
    severity: Severity = "error"

    def line_for(self, recipe: str) -> str:
        """The finding as one verbatim: `recipe.yaml:14 key: message [code]`, and the hint below."""
        location = f"{recipe}:{self.line}" if self.line else recipe
        key = f" {self.path}:" if self.path else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        severity = "" if self.severity == "error" else f"{self.severity}: "
        return f"{location}{key} {severity}{self.message} [{self.code}]{hint}"


@dataclass(frozen=True)
class Report:
    """All findings on one recipe. Truthy exactly when none of them is an error."""

    recipe: str
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """True when no finding is an error."""
        return not self.errors

    @property
    def errors(self) -> Sequence[Finding]:
        """The findings that stop a deployment."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        lines = [finding.line_for(self.recipe) for finding in self.findings]
        head = f"<Report {self.recipe}: {'ok' if self.ok else f'{len(self.errors)} errors'}>"
        return inert("\n".join([head, *lines]))

    def _repr_html_(self) -> str:
        verdict = "✔ no errors" if self.ok else f"✘ {_counted(len(self.errors), 'error')}"
        rows = [(_severity(f), f.line or "", f.path, _words(f), f.code) for f in self.findings]
        parts = [table(rows, ("", "line", "key", "finding", "check"))] if rows else []
        return card(
            self.recipe, *parts, says=toned(verdict, "good" if self.ok else "bad"), tone="good" if self.ok else "bad"
        )

    def to_dict(self) -> dict[str, Any]:
        """The document of `toolkit check --json`."""
        return {"recipe": self.recipe, "ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each finding."""
        return data_frame(self.to_dict()["findings"])


def _severity(finding: Finding) -> Fragment:
    sign, tone = _SIGNS.get(finding.severity, ("", "soft"))
    return toned(f"{sign} {finding.severity}", tone)


def _words(finding: Finding) -> Fragment:
    """What is wrong, and below it the edit to make."""
    return prose(finding.message, toned(finding.hint, "soft"))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
