"""What the service needs of whoever runs models: a protocol, its data, and the order in which containers start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Address = int | Path
"""Where a container listens: a port of loopback, or a socket in a folder."""
Request = dict[str, Any]
Answer = dict[str, Any]
# A start that takes longer keeps nobody waiting any more: it may be stuck.
_LONGEST_TURN_S = 120.0


@dataclass(frozen=True)
class Placement:
    """An instance type that a variant may run on, and the container that it then runs."""

    instance_type: str
    container: Mapping[str, Any]
    """PrimaryContainer of the model."""


@dataclass(frozen=True)
class Variant:
    """What CreateEndpointConfig and CreateModel said about one variant. `weight` and `count` can be changed later."""

    name: str
    asked: Mapping[str, Any]
    """Its entry in ProductionVariants or ShadowProductionVariants."""
    placements: tuple[Placement, ...]
    """The one wanted most comes first."""
    weight: float
    count: int
    is_shadow: bool = False


@dataclass(frozen=True)
class EndpointSpec:
    """The desired state of an endpoint. `config` names its endpoint configuration."""

    endpoint: str
    config: str
    variants: tuple[Variant, ...]
    data_capture: Mapping[str, Any] | None = None


@dataclass
class Target:
    """Where the gateway sends the requests of one variant."""

    variant: str
    weight: float
    address: Address
    log_stream_arn: str
    is_shadow: bool = False
    """Gets copies of requests; nobody sees its answers."""
    requests: int = 0
    """Requests under way, counted by the gateway."""


class Watcher(Protocol):
    """Receives the progress of a deployment. Called from any thread."""

    def healthy(self) -> None:
        """All containers serve."""

    def failing(self, reason: str) -> None:
        """It will not serve; its containers are being ended."""

    def failed(self, reason: str) -> None:
        """It does not serve (any more), and all its containers have ended."""


class Deployment(Protocol):
    """The containers of an endpoint, started, changed and ended in the background."""

    def start(self, watcher: Watcher) -> None:
        """Start in the background; `watcher` is called with the result."""

    def rescale(self, spec: EndpointSpec, watcher: Watcher) -> None:
        """Take other weights or numbers of instances, with the same containers."""

    def retire(self, ended: Callable[[], None]) -> None:
        """End when the requests under way have been answered, then call `ended`."""

    def stop(self, ended: Callable[[], None]) -> None:
        """End at once, then call `ended`."""

    def targets(self) -> Sequence[Target]:
        """The containers that take requests now."""

    def placement(self, variant: Variant) -> Placement:
        """Where a variant runs."""


class ModelHost(Protocol):
    """Runs models. `refused` are the request fields, by operation or structure, that would have no effect here."""

    refused: Mapping[str, tuple[str, ...]]

    def examine(self, operation: str, request: Request) -> None:
        """Raise ServiceError for what is valid by itself, but names what is not there or not allowed here."""

    def endpoint(self, spec: EndpointSpec) -> Deployment:
        """Containers that will serve an endpoint. Raises ServiceError."""


class StartQueue:
    """Lets so many starts be under way `at_once`, in the order in which they entered."""

    def __init__(self, at_once: int, longest_s: float = _LONGEST_TURN_S) -> None:
        self._at_once, self._longest_s = at_once, longest_s
        self._changed = threading.Condition()
        self._entered: list[object] = []

    def enter(self) -> object:
        """Take a place; give it to `wait`, and to `leave` when the start is over."""
        place = object()
        with self._changed:
            self._entered.append(place)
        return place

    def wait(self, place: object, tell: Callable[[], None]) -> None:
        """Return when it is this one's turn, or those before it take too long. `tell` is called if it has to wait."""
        deadline = time.monotonic() + self._longest_s
        with self._changed:
            if self._is_behind(place):
                tell()
            self._changed.wait_for(lambda: not self._is_behind(place), deadline - time.monotonic())

    def leave(self, place: object) -> None:
        """Let the next one begin."""
        with self._changed:
            self._entered.remove(place)
            self._changed.notify_all()

    def _is_behind(self, place: object) -> bool:
        return self._entered.index(place) >= self._at_once
