"""Are the catalogue's facts recent, and does the recipe use what the catalogue does not know?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime

from toolkit.catalog import lookup, updates
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.unlisted import is_image

OLD_DAYS = 90
"""Facts older than that are named in `check` and `plan`."""

_KEY = "unlisted"
_EPOCH = "SOURCE_DATE_EPOCH"
# What an update can renew: the file of the catalogue, and what the names of its sources begin with.
_RENEWED = {"instances.json": "prices in ", "heads.json": "heads on the hub", "images.json": "images of AWS"}


def check_catalogue(recipe: Recipe, today: date) -> Iterator[Finding]:
    """Findings on old facts, and on the names under `unlisted`."""
    if outdated := old_facts(recipe, today):
        hint = f"Run: {update_command(recipe)}. What it does not renew comes with a newer toolkit."
        yield Finding("catalogue.old", outdated, hint=hint, severity="info")
    for index, name in enumerate(recipe.unlisted):
        yield _unlisted(recipe, name, f"{_KEY}.{index}")


def update_command(recipe: Recipe) -> str:
    """The command that reads the prices anew that this recipe's own come from."""
    region = f"--region {recipe.region}" if recipe.region else ""
    return " ".join(filter(None, ("toolkit catalog update", region, recipe.platform_rules.facts.price_option)))


def old_facts(recipe: Recipe, today: date) -> str:
    """A sentence on facts that are over 90 days old: files of the catalogue, prices of the recipe's types. Or none."""
    old = list(_old_files(today))
    for name in recipe.platform.types if recipe.platform_rules.facts.has_instance_types else ():
        instance = recipe.platform_rules.instance(name)
        price = instance.price(recipe.region) if instance else None
        if price and _old_price(price, today):
            old.append(f"the price of {name} ({price.date})")
    return f"these facts are over {OLD_DAYS} days old: {', '.join(old)}" if old else ""


def _unlisted(recipe: Recipe, name: str, path: str) -> Finding:
    images = recipe.platform_rules.images(recipe)
    if name in recipe.platform.types and recipe.platform_rules.instance(name) is None:
        message = f"the catalogue does not know {name}: memory, driver, disk, regions and price were not checked"
    elif is_image(name) and not any(name.endswith(f"{image.repository}:{image.tag}") for image in images):
        message = f"the catalogue does not know the image {name}: {_taken(recipe)}"
    elif name == recipe.engine.version and all(image.version != name for image in images):
        message = f"the catalogue does not know an image with {recipe.engine.name} {name}: {_taken(recipe)}"
    else:
        message = f"{name} is in the catalogue, or the recipe does not use it"
        return Finding("catalogue.listed", message, path, hint="Remove it.", severity="info")
    hint = "Newer facts may be there: toolkit catalog update"
    return Finding("catalogue.unlisted", message, path, hint=hint, severity="warning")


def _taken(recipe: Recipe) -> str:
    if recipe.image is None:
        return "none is like it, so name one under `container.base`"
    address = f"{recipe.image.repository}:{recipe.image.tag}"
    return f"{address} is taken to work like the newest that it knows, and its flags were not checked"


def current_day() -> date:
    """The day, UTC; that of $SOURCE_DATE_EPOCH where it is set, so that answers can be repeated."""
    epoch = os.environ.get(_EPOCH, "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return now.date()


def _old_files(today: date) -> Iterator[str]:
    """The catalogue's files that were last held against their sources over 90 days before, with that date."""
    read = updates.read_update().read
    for name, written in lookup.dates().items():
        renewed = [day for source, day in read.items() if source.startswith(_RENEWED.get(name, "-"))]
        last = max([written, *renewed])
        if (today - last).days > OLD_DAYS:
            yield f"{name} ({last})"


def _old_price(price: lookup.Price | None, today: date) -> bool:
    """Whether a price is over 90 days old. Some have a month only, which counts from its first day."""
    if price is None:
        return False
    written = date.fromisoformat(price.date if len(price.date) > len("2026-09") else f"{price.date}-01")
    return (today - written).days > OLD_DAYS
