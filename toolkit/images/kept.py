"""What was found out about images and wheels, kept for later commands by a digest of what it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from toolkit import documents
from toolkit.errors import PlatformError
from toolkit.files import make_private_folder, write_whole
from toolkit.home import cache

KEPT_LIMITS = documents.Limits(size=64 * 1024**2, items=400_000)


def keep_facts(digest: str, facts: Mapping[str, object]) -> None:
    """Keep facts of what has that digest, for later commands; a disk that takes none is no error."""
    with suppress(OSError, PlatformError):
        make_private_folder(_folder())
        write_whole(_folder() / f"{digest.replace(':', '-')}.json", json.dumps(facts), 0o600)


def kept_facts(digest: str) -> bytes | None:
    """What was kept of it."""
    try:
        return documents.read_file(_folder() / f"{digest.replace(':', '-')}.json", KEPT_LIMITS)
    except (OSError, ValueError):
        return None


def _folder() -> Path:
    return cache() / "images"
