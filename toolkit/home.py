"""Where the toolkit keeps what outlives a command (records, the state of the local platform), and its containers."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from toolkit.errors import UsageError

HOME_VARIABLE = "TOOLKIT_HOME"
OF_ONES_OWN = "Set TOOLKIT_HOME to a folder of your own."
"""What helps where the home is somebody else's, or cannot be written."""

_FOLDERS = frozenset({"asked", "catalog", "improvements", "local", "records", "studies", "training", "tuning"})
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def home() -> Path:
    """`$TOOLKIT_HOME`, else `~/.toolkit`. Absolute: processes that work in another folder are told of it."""
    named = Path(os.environ.get(HOME_VARIABLE) or "~/.toolkit")
    # Where a variable is set by another than a shell, such as a Dockerfile's ENV, nobody has expanded the `~`.
    return user_home().joinpath(*named.parts[1:]) if named.parts[:1] == ("~",) else named.absolute()


def require_folder() -> None:
    """Raise UsageError where the home is something else than a folder, in which nothing would be found."""
    folder = home()
    if folder.exists() and not folder.is_dir():
        said = HOME_VARIABLE if os.environ.get(HOME_VARIABLE) else "the toolkit's home"
        raise UsageError(f"{said} is {folder}, which is no folder", hint="Set TOOLKIT_HOME to a folder, or unset it.")


def home_folder(name: str) -> Path:
    """A folder of the home; one that an older version left open to other users is closed with all that is in it.

    The home itself is closed where it holds nothing but the toolkit's: `$TOOLKIT_HOME` may be a folder of many things.
    """
    folder = home() / name
    with suppress(OSError):  # such as a disk that can only be read: who may read it stays as it is
        if {path.name for path in folder.parent.iterdir()} <= _FOLDERS:
            _close(folder.parent)
        _close(folder)
    return folder


def _close(folder: Path) -> None:
    """Take others' rights away. The folder's own come last: an open one is looked through again next time."""
    if not folder.is_dir() or not stat.S_IMODE(folder.stat().st_mode) & _OTHERS:
        return
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)


def cache() -> Path:
    """What can be made again, and is the same for every home: `$XDG_CACHE_HOME/toolkit`, else `~/.cache/toolkit`.

    A relative path there counts as none: https://specifications.freedesktop.org/basedir-spec/latest/
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else user_home() / ".cache") / "toolkit"


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
