"""Where the toolkit keeps what must outlive a command: records, and the state of the local platform."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$TOOLKIT_HOME`, else `~/.toolkit`."""
    return Path(os.environ.get("TOOLKIT_HOME") or Path.home() / ".toolkit")
