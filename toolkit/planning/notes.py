"""What a plan's reader should know besides its actions."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.planning.hosting import image_uri
from toolkit.planning.image import base_image
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.recipe import jumpstart
from toolkit.recipe.arguments import builds
from toolkit.recipe.resolve import Recipe


def notes(recipe: Recipe, account: Account) -> Iterator[str]:
    """One sentence or line each; nothing for the local platform."""
    if recipe.platform == "local":
        return
    if account.id == NO_ACCOUNT:
        yield (
            f"Made without an AWS account, as if one held nothing: {NO_ACCOUNT} stands for its number, images are not "
            "pinned. It cannot be applied."
        )
    theirs = jumpstart.target_model(recipe, account.jumpstart)
    if theirs:
        yield str(theirs)
        yield from jumpstart.doubts(theirs)
    uri = image_uri(recipe, account)
    if builds(recipe):
        base = base_image(recipe, account)
        moving = "" if "@" in base else ", whose digest could not be found: build again when it has moved"
        yield f"The image is built on {base}{moving}"
    else:
        yield f"No image is built: {'JumpStart' if theirs else 'AWS'}'s own serves it, {account.digests.get(uri, uri)}"
