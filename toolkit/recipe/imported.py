"""What an engine's importer makes of settings that others wrote: `toolkit import` writes a recipe of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolkit.findings import Finding
from toolkit.secret_values import secret_keys, without_secrets

_LEFT_OUT = "import.left-out"


@dataclass
class Imported:
    """A recipe's sections while they are read from `source`, and findings on what has no place in a recipe.

    `nodes` run one copy of the model together.
    """

    source: str
    target: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    platform: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    nodes: int = 1
    findings: list[Finding] = field(default_factory=list)

    def leave_out(self, what: str, why: str, hint: str = "") -> None:
        """Say that something is not in the recipe. A secret in it is not shown."""
        message = f"left out: {without_secrets(what)}: {why}"
        self.findings.append(Finding(_LEFT_OUT, message, hint=without_secrets(hint), severity="info"))

    def is_left_out(self, shown: str, name: str, value: Any, hint: str) -> bool:
        """Whether a setting is, or holds, a secret, which is named by its key and left out."""
        found = [*secret_keys(name, value)]
        if found:
            inner = [key.removeprefix(f"{name}.") for key in found if key != name]
            within = f" (its {', '.join(inner)})" if inner else ""
            self.leave_out(f"{shown}{within}", "a secret must not stand in a recipe", hint)
        return bool(found)

    def add_variable(self, name: str, value: str) -> None:
        """An environment variable; never a secret."""
        hint = "The toolkit uses your own login (hf auth login) or `platform.hub_token_secret`."
        if self.is_left_out(f"{name}=…", name, value, hint):
            return
        if "$" in value:
            self.leave_out(
                f"{name}={value}", "a shell would fill it in", f"Add `{name}` to `engine.env` with its value."
            )
        else:
            self.engine.setdefault("env", {})[name] = value
