"""Which files of a folder other users of the machine may read."""

from __future__ import annotations

import stat
from pathlib import Path


def open_to_others(folder: Path) -> list[str]:
    paths = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return [str(path) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]
