"""Files of a model that transformers reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.errors import ToolkitError, UsageError

_SHOWN_CHARACTERS = 300
_MOST_LAYERS = 10_000


@contextmanager
def reading(what: str, hint: str, model: str) -> Iterator[None]:
    """Whatever such a reader stumbles over is an error of what it reads, of that model. Raises UsageError."""
    try:
        _require_bounded(Path(model) / "config.json")
        yield
    except ToolkitError:
        raise
    except Exception as error:  # tokenizers raises just that, and transformers what its code comes to
        why = str(error).strip()[:_SHOWN_CHARACTERS] or type(error).__name__
        raise UsageError(f"{what} cannot be read: {why}", hint=hint) from error


def _require_bounded(path: Path) -> None:
    """Raise ValueError for so many layers that transformers would list them without end."""
    if path.is_file():
        for key, number in _numbers(documents.decode(documents.read_file(path))):
            # Gemma 4 has `vocab_size_per_layer_input`.
            if "layer" in key and "vocab" not in key and number > _MOST_LAYERS:
                raise ValueError(f"{path.name}: `{key}` is {number}, and no model has more than {_MOST_LAYERS:,}")


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a document, with the keys that they have."""
    if isinstance(value, dict):
        yield from ((key, one) for key, one in value.items() if isinstance(one, int | float))
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _numbers(one)
