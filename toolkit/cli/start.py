"""Where `toolkit` begins: what must be so before anything is imported that takes time."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

# Imports make many objects that live on: Python's default of 700 would go through them a hundred times.
_OBJECTS_BETWEEN_COLLECTIONS = 200_000


def main() -> None:
    """Run one command and exit with its code; Ctrl-C before it has begun is an exit code, too, and no traceback."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _open_closed_streams()
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's background job ignores it
    if heard:
        signal.signal(signal.SIGINT, _end)
    from toolkit.cli.main import main as run_command

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_command()
    finally:
        gc.freeze()  # or Python would, at its end, search all objects for garbage: a fifth of a short command


def _open_closed_streams() -> None:
    """Open what was closed (`>&-`, some schedulers): Python has no stream there, and the next file gets its number.

    What is said to it is lost, as its user wants; nothing of it goes into a file, or to a server.
    """
    # In the order of their numbers: what is opened gets the lowest that is free.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _end(_: int, _frame: FrameType | None) -> None:
    """End at once: an exception would come out of an import, of whichever module."""
    os.write(sys.stderr.fileno(), b"interrupted: nothing was begun\n")
    os._exit(130)
