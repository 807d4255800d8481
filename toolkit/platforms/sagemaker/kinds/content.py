"""Kinds with fixed names: existing ones are compared with the request and updated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.planning.kinds import Decision
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.kinds.base import AwsKind, tagged


class ContentKind(AwsKind):
    """A kind with a fixed name. `content_keys` are the keys of requests and descriptions to compare.

    Creating one overwrites an existing one of the same name, which is also how it is updated.
    """

    seen_when_new = True
    content_keys: tuple[str, ...] = ()

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return super().decide(resource, existing, observed)
        return Decision("update", "has changed") if self.differs(resource, existing) else Decision("reuse", "exists")

    def differs(self, resource: Resource, existing: Existing) -> bool:
        """Whether the existing resource differs from the request.

        Tags are ignored, and keys that the request does not have.
        """
        return not _holds(existing.state["Content"], self.content(resource.request))

    def content(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a request or a description to compare."""
        return {key: value for key, value in request.items() if key in self.content_keys}

    def described(self, name: str, owner: str | None, description: Mapping[str, Any]) -> Existing:
        """An existing resource from AWS's description; `owner` is None for somebody else's."""
        return tagged(self.kind, name, owner, {"Content": self.content(description)})


def _holds(held: Any, wanted: Any) -> bool:
    """Whether `held` has everything in `wanted`; it may have more keys. The order of lists does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(held, Mapping) and all(_holds(held.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        items = held or []
        return len(items) == len(wanted) and all(any(_holds(item, value) for item in items) for value in wanted)
    return bool(held == wanted)
