"""What an engine's importer makes of settings that others wrote: `toolkit import` writes a recipe of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from toolkit.findings import Finding

_LEFT_OUT = "import.left-out"
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_?KEY|CREDENTIAL", re.IGNORECASE)


@dataclass
class Imported:
    """A recipe's sections while they are read from `source`, and findings on what has no place in a recipe."""

    source: str
    target: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    platform: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def leave_out(self, what: str, why: str, hint: str = "") -> None:
        """Say that something is not in the recipe."""
        self.findings.append(Finding(_LEFT_OUT, f"left out: {what}: {why}", hint=hint, severity="info"))

    def add_variable(self, name: str, value: str) -> None:
        """An environment variable; never a secret."""
        if _SECRET.search(name):
            hint = "The toolkit uses your own login (hf auth login) or `platform.hub_token_secret`."
            self.leave_out(f"{name}=…", "a secret must not stand in a recipe", hint)
        elif "$" in value:
            self.leave_out(
                f"{name}={value}", "a shell would fill it in", f"Add `{name}` to `engine.env` with its value."
            )
        else:
            self.engine.setdefault("env", {})[name] = value
