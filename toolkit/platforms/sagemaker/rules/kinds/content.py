"""Kinds whose names do not tell their content: AWS is asked what it holds, and they are brought to what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.planning.rules import Decision
from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind, tagged


class ContentKind(AwsKind):
    """`content_keys` are the keys of a request, and of AWS's description, that say what the resource is like.

    Making one goes over another of its name, and is how it is changed.
    """

    seen_when_new = True
    content_keys: tuple[str, ...] = ()

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return super().decide(resource, existing, observed)
        return Decision("update", "has changed") if self.differs(resource, existing) else Decision("reuse", "exists")

    def differs(self, resource: Resource, existing: Existing) -> bool:
        """Whether AWS holds something else than the request asks for.

        Tags do not count, nor what the request leaves to AWS.
        """
        return not _holds(existing.state["Content"], self.content(resource.request))

    def content(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What of a request, or of AWS's description of the resource, says what the resource is like."""
        return {key: value for key, value in request.items() if key in self.content_keys}

    def described(self, name: str, owner: str | None, description: Mapping[str, Any]) -> Existing:
        """One that AWS describes so; `owner` None is somebody else's."""
        return tagged(self.kind, name, owner, {"Content": self.content(description)})


def _holds(held: Any, wanted: Any) -> bool:
    """Whether everything in `wanted` is in `held`, which may have more keys. The order of lists does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(held, Mapping) and all(_holds(held.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        items = held or []
        return len(items) == len(wanted) and all(any(_holds(item, value) for item in items) for value in wanted)
    return bool(held == wanted)
