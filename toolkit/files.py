"""Writing the files that a user keeps: all of a file, or nothing of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from toolkit.errors import PlatformError, reason


def write_whole(path: Path, text: str, new_mode: int = 0o666) -> None:
    """Write the text in one step: whatever fails, the file that was there stays. Raises PlatformError.

    Who may read the file does not change; of a new one `new_mode` says it. A link is replaced, and not followed.
    """
    with whole_file(path, "w", new_mode) as stream:
        stream.write(text)


@contextmanager
def whole_file(path: Path, kind: Literal["w", "wb"], new_mode: int = 0o666) -> Iterator[IO[Any]]:
    """As `write_whole`, for what is written piece by piece: it is there once the block has ended well."""
    encoding = "utf-8" if kind == "w" else None
    if path.exists() and not path.is_file() and not path.is_dir():  # such as /dev/stdout
        with path.open(kind, encoding=encoding) as stream:
            yield stream
        return
    # A name that can be guessed could be a link by then, which somebody else has made.
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() and not path.is_symlink() else None
    try:
        with os.fdopen(
            os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or new_mode), kind, encoding=encoding
        ) as stream:
            if mode is not None:
                set_mode(stream, beside, mode)
            yield stream
        beside.replace(path)
    except OSError as error:
        raise PlatformError(f"{path} could not be written: {reason(error)}", hint=_edit(path)) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _edit(path: Path) -> str:
    """What to do where a file could not be written."""
    if path.is_dir():
        return "That is a folder: name a file in it."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}: make it, or name a file elsewhere."
    return "It was not changed. Make room, or see who may write there, and run the command again."


def make_private_folder(folder: Path) -> None:
    """Make the folder, and each above it that is missing, for its owner alone."""
    if not folder.is_dir():
        if not folder.parent.exists():
            make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def for_owner(path: str, flags: int) -> int:
    """An opener, for `open`: a new file is its owner's alone."""
    return os.open(path, flags, 0o600)


def set_mode(stream: IO[Any], path: Path, mode: int) -> None:
    """Set the mode of an open file: by itself where the system can, because its path may be another file by then."""
    os.chmod(stream.fileno() if os.chmod in os.supports_fd else path, mode)  # noqa: PTH101


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """For work that can go on later: raises PlatformError where `path` cannot be written, as on a full disk."""
    try:
        yield
    except OSError as error:
        hint = "What is complete stays. Make room or give another folder, and start again: it continues there."
        raise PlatformError(f"{path} could not be written: {reason(error)}", hint=hint) from error
