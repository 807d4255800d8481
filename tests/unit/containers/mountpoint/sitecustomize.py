"""A folder with the rules of Mountpoint for Amazon S3, for every Python process that has this one on its path.

Refused as in mountpoint-s3 doc/SEMANTICS.md, with `--allow-delete` and `--allow-overwrite`: renaming, removing a folder
that is in the bucket (here: every one), writing anywhere but from the start to the end, links, and changes of modes and
times. Not as there: a folder whose last file is removed remains.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("STAND_IN_MOUNTPOINT")
REFUSED = {
    "os.rename": errno.ENOSYS,
    "os.rmdir": errno.EPERM,
    "os.link": errno.EPERM,
    "os.symlink": errno.EPERM,
    "os.chmod": errno.EPERM,
    "os.chown": errno.EPERM,
    "os.utime": errno.EPERM,
}
SEQUENTIAL = os.O_CREAT | os.O_TRUNC


def _is_inside(folder: str, path: object, number: object = -1) -> bool:
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    base = Path(f"/proc/self/fd/{number}").resolve() if isinstance(number, int) and number >= 0 else Path()
    return Path(folder) in (base / os.fsdecode(path)).resolve().parents


def _rules(event: str, args: tuple[Any, ...]) -> None:
    if FOLDER is None:
        return
    if event in REFUSED and any(_is_inside(FOLDER, path, args[-1]) for path in args[:2]):
        raise OSError(REFUSED[event], os.strerror(REFUSED[event]), args[0])
    if event == "open" and _is_inside(FOLDER, args[0]):
        flags = args[2]
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        if writes and (writes & os.O_RDWR or flags & os.O_APPEND or flags & SEQUENTIAL != SEQUENTIAL):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), args[0])


sys.addaudithook(_rules)
