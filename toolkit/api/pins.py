"""What a recipe takes from elsewhere, and what of that is not pinned to a commit or a digest."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.errors import UsageError
from toolkit.images.reference import parse
from toolkit.planning.resources import Account
from toolkit.platforms import base_images
from toolkit.platforms.image import by_digest
from toolkit.recipe.resolve import Recipe


def unpinned(recipe: Recipe, account: Account) -> Iterator[str]:
    """What a completed recipe takes from elsewhere that may be something else tomorrow, and how to pin it."""
    yield from unpinned_models(recipe)
    command = f"Pin it: toolkit lock {recipe.path}"
    for image in images_by_tag(recipe, account):
        if parse(by_digest(image, recipe, account)).digest is None:
            yield f"image {image}: its tag may move. {command}"
    for wheel in wheels_of(recipe):
        if wheel not in recipe.wheel_digests:
            yield f"container.wheels {wheel}: a version without its hash. {command}"


def wheels_of(recipe: Recipe) -> list[str]:
    """The packages that its image gets."""
    return recipe.container.wheels if recipe.container else []


def unpinned_models(recipe: Recipe) -> Iterator[str]:
    """Models whose content nothing pins; a folder is pinned by what is in it when a plan is made."""
    for key, source in recipe.models.items():
        if source.kind == "hub" and not source.commit:
            moves = f"no commit is known, and `{source.revision or 'main'}` may move"
            yield f"{key} {source}: {moves}. Pin it: toolkit lock {recipe.path}"
        elif source.kind == "s3":
            yield f"{key} {source}: objects in S3 may change. Name a model of the hub, or a folder, to have it pinned"
        elif source.kind == "jumpstart":
            yield f"{key} {source}: it is JumpStart's newest version. Name a model of the hub to have it pinned"


def images_by_tag(recipe: Recipe, account: Account) -> list[str]:
    """Images from elsewhere that are named by tag; none where there is no image, which the plan itself says."""
    try:
        images = base_images(recipe, account)
    except UsageError:
        return []
    return [image for image in images if parse(image).digest is None]
