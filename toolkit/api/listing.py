"""Which endpoints exist: every platform is asked at the same time, and one that does not answer hides no other."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from toolkit.catalog import registry
from toolkit.endpoint.listing import Deployed
from toolkit.errors import EndpointNotFound, PlatformError, ToolkitError
from toolkit.platforms import session_of
from toolkit.platforms.rules import PlatformSession


@dataclass(frozen=True)
class Listing:
    """The endpoints of all platforms that answered.

    `not_listed` says which were not asked or did not answer, and why; `errors` are of those that should have answered.
    """

    endpoints: tuple[Deployed, ...] = ()
    not_listed: tuple[str, ...] = ()
    errors: tuple[ToolkitError, ...] = ()

    def __add__(self, other: Listing) -> Listing:
        return Listing(self.endpoints + other.endpoints, self.not_listed + other.not_listed, self.errors + other.errors)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit status --json`."""
        return {"endpoints": [item.to_dict() for item in self.endpoints], "not_listed": list(self.not_listed)}


def list_endpoints(*, platform: str | None = None, all_regions: bool = False) -> Listing:
    """Every endpoint that the toolkit made, also where some platforms fail. Raises PlatformError for one that is named.

    The cluster is that of the kubeconfig's current context.
    """
    names = (platform,) if platform else registry.platforms()
    with ThreadPoolExecutor(len(names)) as threads:
        found = list(threads.map(lambda name: _listed(session_of(name), all_regions, bool(platform)), names))
    whole = sum(found, Listing())
    if platform and not session_of(platform).can_be_asked() and whole.not_listed:
        raise PlatformError("AWS cannot be asked: there are no credentials", hint="Log in: aws sso login")
    if platform and whole.errors:
        raise whole.errors[0]
    return whole


def unknown_endpoint(name: str, why: str = "") -> EndpointNotFound:
    """The error for a name that no platform has, with the nearest names of those that exist."""
    listed = list_endpoints()
    names = [item.name for item in listed.endpoints]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = "Create one: toolkit deploy RECIPE. `toolkit recipes` lists recipes."
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif names:
        hint = f"There are: {', '.join(sorted(names))}."
    unasked = "".join(f" Not asked: {line}." for line in listed.not_listed)
    return EndpointNotFound(f"there is no endpoint {name}{why}", hint=hint + unasked)


def _listed(session: PlatformSession, all_regions: bool, is_named: bool) -> Listing:
    if not session.can_be_asked():
        return Listing(not_listed=(session.unasked,) if session.unasked else ())
    try:
        scopes: Sequence[str | None] = session.every_scope() if all_regions else (None,)
        platforms = [session.glance(scope) for scope in scopes]
        return Listing(tuple(item for opened in platforms if opened for item in opened.endpoints()))
    except ToolkitError as error:
        said = f"{error.message}. {error.hint}" if error.hint else error.message
        return Listing(not_listed=(said,), errors=() if session.may_be_absent and not is_named else (error,))
