"""What a recipe may use though the catalogue does not know it: the names under `unlisted`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Image


def image(names: Collection[str], version: str, known: Sequence[Image]) -> Image | None:
    """The image of `names`, else one of a version of `names`; None without either.

    `known` are the catalogue's images, the newest first. What is not known of the new one is taken from it: how its
    entrypoint takes settings, its driver, and of a version alone the form of its tag.
    """
    if not known:
        return None
    written = next((name for name in names if is_image(name)), None)
    if written:
        path, _, tag = written.rpartition(":")
        registry, _, repository = path.rpartition("/")
        return replace(
            known[0], version=version, registry=registry or known[0].registry, repository=repository, tag=tag
        )
    like = next((found for found in known if found.version in found.tag), None)
    if version not in names or like is None:
        return None
    return replace(like, version=version, tag=like.tag.replace(like.version, version))


def is_image(name: str) -> bool:
    """Whether a name under `unlisted` is an image, `[registry/]repository:tag`."""
    return ":" in name
