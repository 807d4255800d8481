"""Write a recipe's lock: what pins the models and images that it takes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.api.context import (
    images_by_tag,
    jumpstart_entries,
    open_for_plan,
    read_lock_of,
    unpinned_models,
    wheels_of,
)
from toolkit.api.outside import OUTSIDE, Outside
from toolkit.errors import BuildError, ToolkitError
from toolkit.images.reference import same_repository
from toolkit.planning.resources import Account
from toolkit.platforms.image import python_of
from toolkit.platforms.sagemaker.rules.jumpstart import in_s3
from toolkit.recipe.lock import pinned, read_models, write_lock
from toolkit.recipe.recipe import Recipe
from toolkit.registry import session_of


@dataclass(frozen=True)
class Locked:
    """A lock that was written. `pinned` maps names to commits and digests, `unpinned` says why others have none."""

    path: Path
    pinned: Mapping[str, str]
    unpinned: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The document of `toolkit lock --json`."""
        return {"lock": str(self.path), "pinned": dict(self.pinned), "unpinned": list(self.unpinned)}


def lock(recipe: Recipe, *, _outside: Outside = OUTSIDE) -> Locked:
    """Read both models, ask the registries of the images and the index of packages, and write the lock.

    What does not answer keeps the digest that it had. Raises UnreadableModel when a model cannot be read; then nothing
    has changed.
    """
    entries = jumpstart_entries(recipe)
    models = read_models(recipe, _outside.open_files, in_s3(recipe, entries))
    used = images_by_tag(recipe, replace(_account(recipe), jumpstart=entries))
    before = read_lock_of(recipe)
    images = {image: digest for image, digest in (before.images if before else {}).items() if _may_stay(image, used)}
    pins = wheels_of(recipe)
    wheels = {pin: digest for pin, digest in (before.wheels if before else {}).items() if pin in pins}
    missing = [
        *_ask("image", used, _outside.find_digest, images),
        *_ask("container.wheels", pins, lambda pin: _outside.find_wheel(pin, python_of(recipe)), wheels),
    ]
    written = replace(models, images=images, wheels=wheels)
    complete = pinned(recipe, written)
    known = {f"{key} {source}": source.commit for key, source in complete.models.items() if source.commit}
    known |= {f"image {image}": images[image] for image in used if image in images}
    known |= {f"container.wheels {pin}": digest for pin, digest in wheels.items()}
    return Locked(write_lock(recipe, written), known, (*unpinned_models(complete), *missing))


def _ask(what: str, names: Sequence[str], find: Callable[[str], str], known: dict[str, str]) -> Iterator[str]:
    """Renew the known digests. What could not be asked, and why."""
    for name in names:
        try:
            known[name] = find(name)
        except BuildError as error:
            yield f"{what} {name}: {error.message}{'; it keeps the digest it had' if name in known else ''}"


def _account(recipe: Recipe) -> Account:
    """The account whose images the recipe runs, as far as it can be asked."""
    session = session_of(recipe.platform.name)
    with suppress(ToolkitError):
        if opened := open_for_plan(recipe):
            return opened.account()
    return session.unread_account(session.scope(recipe))


def _may_stay(locked: str, used: list[str]) -> bool:
    """Whether an image in the lock is still used, or is that of another platform or region."""
    return locked in used or not any(same_repository(locked, image) for image in used)
