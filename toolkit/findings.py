"""What a check found: the one shape in which the toolkit tells a user that a recipe is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toolkit.text import html, html_table, inert

Severity = Literal["error", "warning", "info"]


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
        """The finding as one paragraph: `recipe.yaml:14 key: message [code]`, and the hint below."""
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
        rows = [(f.severity, f.line or "", f.path, f.message, f.hint, f.code) for f in self.findings]
        verdict = "no errors" if self.ok else f"{len(self.errors)} errors"
        return f"<b>{html(self.recipe)}</b>: {verdict}{html_table(rows)}"

    def to_dict(self) -> dict[str, Any]:
        """The document of `toolkit check --json`."""
        return {"recipe": self.recipe, "ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}
