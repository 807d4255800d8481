"""What `toolkit catalog update` has read: a file in the user's folder, used beside those that come with the toolkit."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.catalog.entries import Head, Image, Price
from toolkit.errors import UsageError
from toolkit.files import make_private_folder, write_whole
from toolkit.home import home_folder

Prices = dict[str, dict[str, Price]]
"""By region and instance type."""


@dataclass(frozen=True, eq=False)
class Update:
    """Facts that were read after the toolkit was made.

    Fields:
        read: the day on which each source was read, by the source's name.
        prices, ec2_prices: of hosting in SageMaker, and of EC2 instances by EC2's names.
        heads: what the hub says of public drafters: their commit, its date, and whether access is granted one by one.
        images: images of AWS that the catalogue does not have.
        new_heads: public drafters that the catalogue does not have.
        types, versions, drafters: names that the catalogue does not have, and of which no facts are known.
    """

    read: dict[str, date] = field(default_factory=dict)
    prices: Prices = field(default_factory=dict)
    ec2_prices: Prices = field(default_factory=dict)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    new_heads: tuple[Head, ...] = ()
    types: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    drafters: tuple[str, ...] = ()


NOTHING = Update()
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9})*((rc|\.dev)\d{1,9})?", re.ASCII)
HEAD_FACTS = ("revision", "last_modified", "gated")
"""The fields of a head that the hub has."""


def path() -> Path:
    return home_folder("catalog") / "update.json"


def read_update() -> Update:
    """The facts in the user's own file; empty without that file. Raises UsageError if it is damaged.

    A home of somebody else's, as `sudo -u` and containers that run as another user leave it, is one without.
    """
    file = path()
    try:
        stat = file.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return NOTHING
    return _read(file, stat.st_mtime_ns, stat.st_size)


def write(update: Update) -> Path:
    """Keep it, in one step. Raises PlatformError."""
    file = path()
    make_private_folder(file.parent)
    write_whole(file, json.dumps(asdict(update), indent=1, default=str) + "\n", 0o600)
    return file


@lru_cache(maxsize=1)
def _read(file: Path, _changed: int, _size: int) -> Update:
    try:
        update = documents.parse(Update, documents.read_file(file))
        _check(update)
    except documents.Unfit as error:
        hint = "Remove it, and read the facts anew: toolkit catalog update"
        raise UsageError(f"{file} is damaged: {error}", hint=hint) from error
    return update


def _check(update: Update) -> None:
    """What the types leave open. Raises documents.Unfit."""
    if strange := [name for facts in update.heads.values() for name in facts if name not in HEAD_FACTS]:
        raise documents.Unfit(f"`heads`: a head has no `{strange[0]}`")
    if strange := [image.version for image in update.images if not _VERSION.fullmatch(image.version)]:
        raise documents.Unfit(f"`images`: {strange[0][:60]!r} is not a version")
    for by_type in (*update.prices.values(), *update.ec2_prices.values()):
        for name, price in by_type.items():
            if not documents.is_day(price.date):
                raise documents.Unfit(f"the price of {name}: {price.date!r} is not a day")
