"""What `toolkit doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Examined:
    """The result of one check. `hint` says how to fix it if it is not `ok`.

    `needed` is False for what the local platform does without.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True
