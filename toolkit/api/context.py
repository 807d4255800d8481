"""What the public functions share: which recipe, which platform, which record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from toolkit.errors import EndpointNotFound, RecipeNotFound, ToolkitError, UsageError
from toolkit.home import home
from toolkit.planning.record import Record
from toolkit.planning.resources import Account
from toolkit.platforms import Platform, account_of, jumpstart_entries, open_platform, open_readable, open_running
from toolkit.platforms.sagemaker.rules.jumpstart import filled_in
from toolkit.recipe.lock import Lock, lock_path, pinned, read_lock
from toolkit.recipe.resolve import Recipe, load

RecipeLike = str | os.PathLike[str] | Recipe
DEFAULT_PLATFORM = "local"


def complete_recipe(recipe: Recipe, platform: Platform | None) -> tuple[Recipe, Account]:
    """The recipe with what its lock and JumpStart fill in, and the account to plan for."""
    account = platform.account(recipe) if platform else account_of(recipe.platform.name, place(recipe))
    return pinned(filled_in(recipe, account.jumpstart), locked(recipe)), account


def as_deployed(recipe: Recipe) -> Recipe:
    """With JumpStart's K and instance type, if the caller may look: who may only invoke gets the recipe's own."""
    try:
        return filled_in(recipe, jumpstart_entries(recipe))
    except ToolkitError:
        return recipe


def locked(recipe: Recipe) -> Lock | None:
    """The recipe's lock; one that cannot be read was a finding already."""
    try:
        return read_lock(lock_path(recipe))
    except ToolkitError:
        return None


def place(recipe: Recipe) -> str | None:
    """The region of AWS, or the context and the namespace of a cluster."""
    section = recipe.platform.kubernetes
    return f"{section.context or ''}/{section.namespace}" if section else recipe.platform.region


def where(endpoint: str, recipe: Recipe | None, platform: str | None, region: str | None) -> Platform | None:
    """The platform that holds the endpoint: the one that is named, the recipe's, this machine, AWS, or a cluster.

    A bare name is looked for in all namespaces of the kubeconfig's current context. Raises UsageError where several
    have it.
    """
    if recipe and recipe.with_platform(platform).platform.kubernetes:
        region = place(recipe.with_platform(platform))
    if platform == "kubernetes" and region is None:
        return open_platform(platform, _only(endpoint, _places(endpoint)))
    if platform or recipe:
        return open_running(platform or (recipe.platform.name if recipe else DEFAULT_PLATFORM), region)
    here = open_running(DEFAULT_PLATFORM)
    if here and exists(here, endpoint):
        return here
    aws, places = open_readable("sagemaker", region), []
    if region is None and not (aws and exists(aws, endpoint)):
        with suppress(ToolkitError):  # a cluster that nobody named need not answer
            places = _places(endpoint)
    return open_platform("kubernetes", _only(endpoint, places)) if places else aws or here


def _places(endpoint: str) -> list[str]:
    """Context and namespace of each endpoint of that name on the cluster, if there is one."""
    cluster = open_readable("kubernetes")
    return [item.region for item in cluster.endpoints() if item.name == endpoint] if cluster else []


def _only(endpoint: str, places: Sequence[str]) -> str | None:
    if len(places) > 1:
        hint = (
            "Give the recipe in place of the name: it says which. In Python: toolkit.connect(NAME, region=PLACE, ...)."
        )
        raise UsageError(f"{endpoint} is in several namespaces: {', '.join(places)}", hint=hint)
    return places[0] if places else None


def exists(platform: Platform, endpoint: str) -> bool:
    """Whether the platform has an endpoint of that name, or a component."""
    try:
        platform.address(endpoint)
    except EndpointNotFound:
        return False
    return True


def in_service(platform: Platform, endpoint: str) -> bool:
    """Whether it answers."""
    try:
        return platform.status(platform.address(endpoint)).status == "InService"
    except EndpointNotFound:
        return False


def record_of(endpoint: str) -> Record:
    """The history of what was done to an endpoint."""
    return Record(home() / "records" / f"{endpoint}.jsonl")


def recipe_or_none(name: RecipeLike) -> Recipe | None:
    """The recipe that `name` means, None when it can only be the name of an endpoint."""
    try:
        return load(name)
    except RecipeNotFound:
        if "/" in str(name) or str(name).endswith((".yaml", ".yml")):
            raise
        return None
