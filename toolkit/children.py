"""How a Python of ours is started: the current folder, which may be anybody's, is no place to import from."""

from __future__ import annotations

import sys


def python_command(*arguments: str) -> list[str]:
    """The command of this Python with these arguments."""
    return [sys.executable, "-P", *arguments]
