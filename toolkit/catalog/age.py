"""How old facts are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime

from toolkit.catalog import lookup, updates

OLD_DAYS = 90
"""Facts older than that are named in `check` and `plan`."""

_EPOCH = "SOURCE_DATE_EPOCH"
# What an update can renew: the file of the catalogue, and what the names of its sources begin with.
_RENEWED = {"instances.json": "prices in ", "heads.json": "heads on the hub", "images.json": "images of AWS"}


def current_day() -> date:
    """The day, UTC; that of $SOURCE_DATE_EPOCH where it is set, so that answers can be repeated."""
    epoch = os.environ.get(_EPOCH, "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return now.date()


def old_files(today: date) -> Iterator[str]:
    """The catalogue's files that were last held against their sources over 90 days before, with that date."""
    read = updates.read_update().read
    for name, written in lookup.dates().items():
        renewed = [day for source, day in read.items() if source.startswith(_RENEWED.get(name, "-"))]
        last = max([written, *renewed])
        if (today - last).days > OLD_DAYS:
            yield f"{name} ({last})"


def old_price(price: lookup.Price | None, today: date) -> bool:
    """Whether a price is over 90 days old. Some have a month only, which counts from its first day."""
    if price is None:
        return False
    written = date.fromisoformat(price.date if len(price.date) > len("2026-09") else f"{price.date}-01")
    return (today - written).days > OLD_DAYS
