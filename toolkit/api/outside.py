"""What the public functions reach outside of this process. Tests put something else in its place, users never do."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import httpx

from toolkit import documents
from toolkit.catalog.refresh import SOURCES, Sources
from toolkit.checks.catalogue import current_day
from toolkit.images.wheels import find_wheel
from toolkit.memory import free_bytes
from toolkit.platforms.elsewhere import find_digest, open_files
from toolkit.recipe.hub import hub_client
from toolkit.recipe.lock import OpenFiles
from toolkit.recipe.recipe import Recipe
from toolkit.registry import session_of

if TYPE_CHECKING:
    from toolkit.platforms.rules import AwsSession, TrainingPlatform

_HUB_SECONDS, _WEB_SECONDS = 5.0, 30.0


def open_hub() -> httpx.Client | None:
    """A client of the Hugging Face hub; None where the user wants none asked."""
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    return None if is_offline else hub_client(timeout=_HUB_SECONDS)


def open_web() -> httpx.Client:
    """A client of sites with public documents."""
    with documents.making_client():
        return httpx.Client(timeout=_WEB_SECONDS)


def open_trainer(recipe: Recipe, login: AwsSession | None = None) -> TrainingPlatform:
    """What trains on the recipe's platform, with `login` for AWS if it is given."""
    session = session_of(recipe.platform.name, login)
    return session.trainer(session.scope(recipe))


@dataclass(frozen=True)
class Outside:
    """Files of models, registries and indexes, public documents (`sources`), the machine, its clock, its platforms.

    `find_digest` asks for an image's, `find_wheel` for that of a pin and a version of Python; both raise BuildError.
    """

    open_files: OpenFiles = open_files
    find_digest: Callable[[str], str] = find_digest
    find_wheel: Callable[[str, str], str] = find_wheel
    open_hub: Callable[[], httpx.Client | None] = open_hub
    open_web: Callable[[], httpx.Client] = open_web
    sources: Sources = SOURCES
    open_trainer: Callable[[Recipe, AwsSession | None], TrainingPlatform] = open_trainer
    free_bytes: Callable[[], int] = free_bytes
    today: Callable[[], date] = current_day


OUTSIDE = Outside()
