"""Where the toolkit keeps what outlives a command (records, the state of the local platform), and its containers."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$TOOLKIT_HOME`, else `~/.toolkit`."""
    return Path(os.environ.get("TOOLKIT_HOME") or user_home() / ".toolkit")


def cache() -> Path:
    """What can be made again, and is the same for every home: `$XDG_CACHE_HOME/toolkit`, else `~/.cache/toolkit`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or user_home() / ".cache") / "toolkit"


def user_home() -> Path:
    """`~`; for a user who has neither $HOME nor an entry in the user database `/`, as container runtimes have it."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def containers_dir() -> Path:
    """The containers that come with the toolkit."""
    return _folder("containers")


def docs_dir() -> Path:
    """The pages of the documentation, as Markdown."""
    return _folder("docs")


def _folder(name: str) -> Path:
    """A folder of the repository: in a checkout beside the package, in a wheel inside of it."""
    package = Path(__file__).parent
    packaged = package / "_data" / name
    return packaged if packaged.is_dir() else package.parent / name
