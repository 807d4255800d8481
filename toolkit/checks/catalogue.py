"""Are the catalogue's facts recent, and does the recipe use what the catalogue does not know?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from toolkit.catalog import age
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.unlisted import is_image

_KEY = "unlisted"


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
    old = list(age.old_files(today))
    for name in recipe.platform.types if recipe.platform_rules.facts.has_instance_types else ():
        instance = recipe.platform_rules.instance(name)
        price = instance.price(recipe.region) if instance else None
        if price and age.old_price(price, today):
            old.append(f"the price of {name} ({price.date})")
    return f"these facts are over {age.OLD_DAYS} days old: {', '.join(old)}" if old else ""


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
