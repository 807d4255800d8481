"""A read-only root file system for a Python program and those that it starts.

WRITABLE has the folders that may be written to. What libraries write without Python's knowledge is not seen.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

_WRITABLE = tuple(Path(folder).resolve() for folder in [*os.environ["WRITABLE"].split(os.pathsep), "/dev"])
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and arguments[2] and arguments[2] & _WRITE_FLAGS:
        _refuse_outside(arguments[0])
    elif event in _CHANGES:
        _refuse_outside(arguments[1] if event in ("os.rename", "os.link", "os.symlink") else arguments[0])


def _refuse_outside(path: object) -> None:
    """By the folder: what is written need not exist yet. A folder that exists may be made again, which says so."""
    if not isinstance(path, str | bytes | os.PathLike):
        return
    name = Path(os.fsdecode(path))
    folder = name.parent.resolve()
    if not any(folder.is_relative_to(allowed) for allowed in _WRITABLE) and not name.is_dir():
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))


sys.addaudithook(_look)
