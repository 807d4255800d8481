"""What a check found: the one shape in which the toolkit tells a user that a recipe is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from toolkit.text import hide_secrets

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One thing a check has to say.

    `code` is stable and documented (`toolkit check --explain CODE`), `path` is the recipe key in dots (empty: the whole
    recipe), `line` counts from 1 (None when neither the key nor one above it is in the file), `hint` is the edit, empty
    only where there is none to make.
    """

    code: str
    message: str
    path: str = ""
    line: int | None = None
    hint: str = field(kw_only=True)
    severity: Severity = "error"

    def __post_init__(self) -> None:
        for name in ("message", "hint"):  # which may quote what a recipe says
            object.__setattr__(self, name, hide_secrets(getattr(self, name)))

    @property
    def sentence(self) -> str:
        """The finding on one line, for where there is no recipe's line beside it: `key: message. Hint [code]`."""
        said = ". ".join(filter(None, (self.message, self.hint)))
        return f"{self.path}: {said} [{self.code}]" if self.path else f"{said} [{self.code}]"

    def line_for(self, recipe: str) -> str:
        """The finding as one verbatim: `recipe.yaml:14 key: message [code]`, and the hint below."""
        location = f"{recipe}:{self.line}" if self.line else recipe
        key = f" {self.path}:" if self.path else "" if self.line else ":"
        hint = f"\n    {self.hint}" if self.hint else ""
        severity = "" if self.severity == "error" else f"{self.severity}: "
        return f"{location}{key} {severity}{self.message} [{self.code}]{hint}"
