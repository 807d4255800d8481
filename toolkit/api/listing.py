"""Which endpoints exist: every platform is asked at the same time, and one that does not answer hides no other."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from toolkit import registry
from toolkit.api.context import recipe_or_none
from toolkit.display import Tone, bullets, card, data_frame, dollars_per_hour, in_tone, table
from toolkit.endpoint.platform import PAUSED, Deployed, Found
from toolkit.errors import EndpointNotFound, PlatformError, ToolkitError
from toolkit.home import require_folder
from toolkit.platforms.rules import PlatformSession
from toolkit.recipe.known import catalogue
from toolkit.recipe.recipe import Recipe
from toolkit.registry import session_of
from toolkit.text import inert


@dataclass(frozen=True)
class Listing(Sequence[Deployed]):
    """The endpoints of all platforms that answered.

    `not_listed` says which were not asked or did not answer all, and why; `errors` are of those that should have.
    """

    endpoints: tuple[Deployed, ...] = ()
    not_listed: tuple[str, ...] = ()
    errors: tuple[ToolkitError, ...] = ()

    def __getitem__(self, index: Any) -> Any:
        return self.endpoints[index]

    def __len__(self) -> int:
        return len(self.endpoints)

    def __add__(self, other: Listing) -> Listing:
        return Listing(self.endpoints + other.endpoints, self.not_listed + other.not_listed, self.errors + other.errors)

    @property
    def in_brief(self) -> int:
        """How many of the endpoints were not described: their instances and prices are not known."""
        return sum(not item.described for item in self.endpoints)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit status --json`."""
        return {
            "endpoints": [item.to_dict() for item in self.endpoints],
            "not_listed": list(self.not_listed),
            "not_described": self.in_brief,
        }

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each endpoint."""
        return data_frame(item.to_dict() for item in self.endpoints)

    def __repr__(self) -> str:
        lines = [f"  {item.name}: {item.status}, {item.platform} {item.region}" for item in self.endpoints]
        missing = [f"  not listed: {line}" for line in self.not_listed]
        return inert("\n".join([f"<Listing: {len(self)} endpoints>", *lines, *missing]))

    def _repr_html_(self) -> str:
        head = ("endpoint", "status", "platform", "region", "instances", "price", "")
        rows = [_show(item) for item in self.endpoints]
        missing = bullets(f"not listed: {line}" for line in self.not_listed)
        return card("Endpoints", *([table(rows, head)] if rows else []), missing, says=f"{len(rows)} in all")


def _show(item: Deployed) -> tuple[object, ...]:
    tone: Tone = "good" if item.status == "InService" else "bad" if item.status == "Failed" else "fair"
    instances = ", ".join(f"{count} {name}" for name, count in item.instances)
    price = dollars_per_hour(item.price_per_hour) if item.described else "not read"
    return item.name, in_tone(item.status, tone), item.platform, item.region, instances, price, item.failure_reason


def status(*names: str, platform: str | None = None, all_regions: bool = False, details: bool | None = None) -> Listing:
    """Every endpoint that the toolkit made. Platforms that fail are skipped; one that you name raises PlatformError.

    `names` are the endpoints to list, such as "chat-*", or their recipes; default: all. `details` True describes each
    of them, however long that takes; None describes up to a hundred of a region on AWS, for at most 15 seconds. A
    recipe is looked for in its region, or its cluster and namespace; a name, or a recipe of another platform, in those
    of the environment.
    """
    require_folder()
    recipes = [recipe_or_none(name) for name in names]
    endpoints = tuple(recipe.name if recipe else name for name, recipe in zip(names, recipes, strict=True))
    wanted = _Wanted(endpoints, recipes, all_regions, is_named=bool(platform), details=details)
    platforms = (platform,) if platform else registry.platforms()
    with ThreadPoolExecutor(len(platforms)) as threads:
        listings = list(threads.map(lambda name: _list(name, session_of(name), wanted), platforms))
    whole = sum(listings, Listing())
    if platform and whole.errors and not whole.endpoints:
        raise whole.errors[0]
    if platform and not session_of(platform).can_be_asked() and whole.not_listed:
        raise PlatformError("AWS cannot be asked: there are no credentials", hint="Log in: aws sso login")
    return whole


def unknown_endpoint(name: str, why: str = "", recipe: str = "", *, is_wanted: bool = True) -> EndpointNotFound:
    """The error for a name that no platform has, or that is paused. Its hint is the nearest name, or what to deploy.

    With `is_wanted` off, as for a removal, it never tells the user to deploy.
    """
    listed = status(details=False)
    if any((item.name, item.status) == (name, PAUSED) for item in listed.endpoints):
        again = shlex.quote(recipe) if recipe else "RECIPE"
        return EndpointNotFound(f"{name} is paused", hint=f"Let it serve again: toolkit deploy {again}")
    names = [item.name for item in listed.endpoints]
    of_ours = {re.sub(r"[/.]", "-", recipe): recipe for recipe in catalogue()}
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    recipe = recipe or of_ours.get(name, "")
    if recipe and is_wanted:
        hint = f"Deploy it: toolkit deploy {shlex.quote(recipe)}"
    elif places := [item.region or item.platform for item in listed.endpoints if item.name == name]:
        hint = f"There is one of that name in {', '.join(places)}."
    elif near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif names:
        hint = f"There are: {', '.join(sorted(names))}."
    elif not is_wanted:
        hint = "See what there is: toolkit status"
    else:
        known = difflib.get_close_matches(name, of_ours, n=1)
        hint = f"Deploy one: toolkit deploy {of_ours[known[0]] if known else 'tiny/p-eagle'}"
    unasked = "".join(f"; not asked: {line}" for line in listed.not_listed)
    return EndpointNotFound(f"there is no endpoint {name}{why}{unasked}", hint=hint)


@dataclass(frozen=True)
class _Wanted:
    """What `status` was asked for: names, each with its recipe where it has one. `is_named`: one platform, which has to
    answer."""

    names: tuple[str, ...]
    recipes: Sequence[Recipe | None]
    all_regions: bool
    is_named: bool
    details: bool | None

    def by_scope(self, platform: str, session: PlatformSession) -> Mapping[str | None, Sequence[str]]:
        """The names to list in each scope; no names mean all. A user may have access to a single namespace only.

        Recipes of other platforms open no scope, but may have been deployed where this platform is asked anyway.
        """
        if self.all_regions:
            return dict.fromkeys(session.every_scope(), self.names)
        placed: dict[str | None, list[str]] = {}
        elsewhere: list[str] = []
        for name, recipe in zip(self.names, self.recipes, strict=True):
            if recipe and recipe.platform.name != platform and not self.is_named:
                elsewhere.append(name)
            else:
                placed.setdefault(session.scope(recipe) if recipe else None, []).append(name)
        return {scope: [*names, *elsewhere] for scope, names in placed.items()} or {None: elsewhere}


def _list(platform: str, session: PlatformSession, wanted: _Wanted) -> Listing:
    if not session.can_be_asked() and (session.unasked or not wanted.is_named):
        return Listing(not_listed=(session.unasked,) if session.unasked else ())
    try:
        scopes = wanted.by_scope(platform, session)
    except ToolkitError as error:
        return _unlisted(error, session, wanted)
    whole = sum((_list_scope(session, scope, names, wanted) for scope, names in scopes.items()), Listing())
    # The environment's own scope may be a recipe's as well.
    return replace(whole, endpoints=tuple(dict.fromkeys(whole.endpoints)))


def _list_scope(session: PlatformSession, scope: str | None, names: Sequence[str], wanted: _Wanted) -> Listing:
    """A region that does not answer hides no other."""

    def is_wanted(name: str) -> bool:
        return not names or any(fnmatchcase(name, pattern) for pattern in names)

    try:
        platform = session.glance(scope)
        found = platform.endpoints(is_wanted, wanted.details) if platform else Found(())
    except ToolkitError as error:
        return _unlisted(error, session, wanted)
    listing = Listing(found.endpoints)
    if found.incomplete:
        hint = "Ask again in a minute: fewer calls from elsewhere leave more for this one."
        listing += _unlisted(PlatformError(found.incomplete, hint=hint), session, wanted)
    return listing


def _unlisted(error: ToolkitError, session: PlatformSession, wanted: _Wanted) -> Listing:
    said = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
    return Listing(not_listed=(said,), errors=() if session.may_be_absent and not wanted.is_named else (error,))
