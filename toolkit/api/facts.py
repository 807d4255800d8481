"""How old the catalogue's facts are, and what was read since: `toolkit catalog status` and `update`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from toolkit.api.outside import OUTSIDE, Outside
from toolkit.catalog import lookup, updates
from toolkit.catalog.refresh import REGION, refresh
from toolkit.checks import catalogue
from toolkit.errors import PlatformError


@dataclass(frozen=True)
class FileAge:
    """A file of the catalogue: the day on which it was held against its sources, and whether that is long ago."""

    name: str
    date: date
    days: int
    old: bool


@dataclass(frozen=True)
class CatalogStatus:
    """What the catalogue holds, and what the last update found.

    `read` says on which day each source of the user's own file was read, `regions` whose prices that file has. The
    other fields are names that an update brought. Of `types`, `versions` and `heads` only the names are known.
    """

    files: tuple[FileAge, ...]
    own_file: Path
    read: dict[str, date]
    regions: tuple[str, ...]
    images: tuple[str, ...]
    types: tuple[str, ...]
    versions: tuple[str, ...]
    heads: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit catalog status --json`."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return document


@dataclass(frozen=True)
class CatalogUpdate:
    """What an update changed in the user's own file, and what could not be read."""

    own_file: Path
    changed: tuple[str, ...]
    unread: tuple[str, ...]
    failed: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit catalog update --json`."""
        return {**asdict(self), "own_file": str(self.own_file)}


def catalog_status(*, _outside: Outside = OUTSIDE) -> CatalogStatus:
    """How old each file of the catalogue is, and what is new since. Reads nothing over the network."""
    now, held = _outside.today(), updates.read_update()
    return CatalogStatus(
        tuple(_age(name, day, now) for name, day in lookup.dates().items()),
        updates.path(),
        held.read,
        tuple(held.prices),
        tuple(f"{image.repository}:{image.tag}" for image in held.images),
        held.types,
        held.versions,
        (*(head.repo for head in held.new_heads), *held.drafters),
    )


def catalog_update(regions: Sequence[str] = (), *, ec2: bool = False, _outside: Outside = OUTSIDE) -> CatalogUpdate:
    """Read prices, heads, images and versions from public documents into the user's own file.

    Without regions those whose prices are held, or us-east-1. Raises PlatformError when no source could be read.
    """
    held = updates.read_update()
    wanted = [*regions] or [*held.prices] or [REGION]
    with _outside.open_web() as client:
        refreshed = refresh(client, held, wanted, _outside.today(), ec2=ec2, sources=_outside.sources)
    if len(refreshed.failed) == refreshed.steps:
        message = "\n  ".join(["nothing could be read", *refreshed.failed])
        raise PlatformError(message, hint="Is there a network? What was read before is kept.")
    return CatalogUpdate(updates.write(refreshed.update), refreshed.changed, refreshed.unread, refreshed.failed)


def _age(name: str, day: date, today: date) -> FileAge:
    days = (today - day).days
    return FileAge(name, day, days, days > catalogue.OLD_DAYS)
