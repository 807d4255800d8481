"""Files of a model that transformers reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toolkit.errors import ToolkitError, UsageError

_SHOWN_CHARACTERS = 300


@contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Whatever such a reader stumbles over is an error of what it reads. Raises UsageError."""
    try:
        yield
    except ToolkitError:
        raise
    except Exception as error:
        why = str(error).strip()[:_SHOWN_CHARACTERS] or type(error).__name__
        raise UsageError(f"{what} cannot be read: {why}", hint=hint) from error
