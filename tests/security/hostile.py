"""Text that an attacker would write where somebody else's terminal, or browser, shows it."""

from __future__ import annotations

import re

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b2J\x08\x08\rover\u202egpj.exe\u2066x\u2069"
    "[bold red]big[/nope]<img src=x onerror=alert(1)>&amp;"
)
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def obeyed(text: str) -> list[str]:
    """The characters that a terminal would act on."""
    return _OBEYED.findall(text)
