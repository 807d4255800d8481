"""Platforms, on which endpoints run: one folder each, registered in toolkit/registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit import registry
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.planning.resources import Account
    from toolkit.platforms.rules import AwsSession, Platform, PlatformRules, PlatformSession
    from toolkit.platforms.sagemaker.rules.jumpstart import Entries


def rules_of(name: str) -> PlatformRules:
    """The pure part of a platform. Raises UsageError for an unknown name."""
    rules: PlatformRules = registry.platform_rules(name)
    return rules


def endpoint_name(recipe: Recipe) -> str:
    """The name of the endpoint that serves the recipe. Several recipes may share one."""
    name = rules_of(recipe.platform.name).parts.endpoint_name
    return name(recipe) if name else recipe.name


def base_images(recipe: Recipe, account: Account) -> Sequence[str]:
    """Addresses of the images from elsewhere that run, or that one is built on. Raises UsageError where none is."""
    images = rules_of(recipe.platform.name).parts.base_images
    return images(recipe, account) if images else ()


def price_text(recipe: Recipe) -> str:
    """The price as a phrase, with its source and date, or why it is unknown."""
    text = rules_of(recipe.platform.name).parts.price_text
    return text(recipe) if text else "? $/h"


def session_of(name: str, login: AwsSession | None = None) -> PlatformSession:
    """The session that opens a platform, with `login` for AWS if it is given.

    Raises UsageError for an unknown name, and for a login to a platform that is not AWS.
    """
    session: PlatformSession = registry.platform_session(name)
    return session if login is None else session.logged_in(login)


def open_platform(name: str, scope: str | None = None, login: AwsSession | None = None) -> Platform:
    """Open a platform; the local one is started if necessary. Raises UsageError or PlatformError."""
    return session_of(name, login).open(scope)


def open_readable(name: str, scope: str | None = None, login: AwsSession | None = None) -> Platform | None:
    """Open a platform for a plan; None if it does not run or there are no credentials, as a plan needs no account."""
    session = session_of(name, login)
    return session.running(scope) if session.can_be_asked() else None


def jumpstart_entry(name: str, region: str | None = None) -> Mapping[str, Any]:
    """JumpStart's entry of a model, by its id. Raises UsageError if there is none, or PlatformError."""
    from toolkit.platforms.sagemaker.jumpstart import read_jumpstart
    from toolkit.platforms.sagemaker.session import SESSION

    return read_jumpstart(SESSION.open(region).clients, name)


def jumpstart_entries(recipe: Recipe, login: AwsSession | None = None) -> Entries:
    """JumpStart's entries of the models that the recipe names. Calls AWS only if it names any."""
    if all(source.kind != "jumpstart" for source in recipe.models.values()):
        return {}
    from toolkit.platforms.sagemaker.session import SageMakerSession

    return SageMakerSession(login).open(recipe.region).jumpstart_entries(recipe)
