"""Where the toolkit keeps what outlives a command (records, the state of the local platform), and its containers."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$TOOLKIT_HOME`, else `~/.toolkit`."""
    return Path(os.environ.get("TOOLKIT_HOME") or Path.home() / ".toolkit")


def containers_dir() -> Path:
    """The containers that come with the toolkit: in a checkout beside the package, in a wheel inside of it."""
    package = Path(__file__).parent
    packaged = package / "_data" / "containers"
    return packaged if packaged.is_dir() else package.parent / "containers"
