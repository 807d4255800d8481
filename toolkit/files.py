"""Writing the files that a user keeps: all of a file, or nothing of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.errors import PlatformError


def write_whole(path: Path, text: str) -> None:
    """Write the text in one step: whatever fails, the file that was there stays. Raises PlatformError."""
    if path.exists() and not path.is_file():  # such as /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise PlatformError(f"{path} could not be written: {error.strerror}", hint="It is as it was.") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """For work that can go on later: raises PlatformError where `path` cannot be written, as on a full disk."""
    try:
        yield
    except OSError as error:
        hint = "What is complete stays. Make room or give another folder, and start again: it continues there."
        raise PlatformError(f"{path} could not be written: {error.strerror or error}", hint=hint) from error
