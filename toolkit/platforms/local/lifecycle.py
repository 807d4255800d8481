"""The status of what runs: Creating, InService, Updating, RollingBack, Deleting, Failed with a reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from toolkit.platforms.local.aws import now
from toolkit.platforms.local.host import Answer, Deployment, EndpointSpec

_LONGEST_REASON = 1024  # of a FailureReason, by the service model
_IN_PROGRESS = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")


@dataclass(eq=False)
class Release:
    """A deployment and what it was made from; it is the deployment's watcher."""

    lifecycle: Lifecycle
    spec: EndpointSpec
    deployment: Deployment
    began: float = field(default_factory=now)

    def healthy(self) -> None:
        """Put it in service; what served before is retired."""
        lifecycle = self.lifecycle
        with lifecycle.lock:
            old, lifecycle.live, lifecycle.pending, lifecycle.spec = lifecycle.live, self, None, self.spec
            if old and old.deployment is not self.deployment:
                old.deployment.retire(lambda: lifecycle.turn("InService"))
            else:
                lifecycle.turn("InService")

    def failing(self, reason: str) -> None:
        """The earlier release goes on serving."""
        with self.lifecycle.lock:
            if self.lifecycle.live:
                self.lifecycle.turn("RollingBack", reason)

    def failed(self, reason: str) -> None:
        """An earlier release goes on serving; without one, or if this one had served, the status is Failed."""
        lifecycle = self.lifecycle
        with lifecycle.lock:
            if lifecycle.pending is self:
                lifecycle.pending = None
            elif lifecycle.live and lifecycle.live.deployment is self.deployment:
                lifecycle.live = None
            lifecycle.turn("InService" if lifecycle.live else "Failed", reason)


@dataclass(eq=False)
class Lifecycle:
    """The status of one thing: its release `live` serves, `pending` is being started. `lock` guards all changes."""

    spec: EndpointSpec
    """Of what serves; of what was wanted first, when nothing ever served."""
    lock: threading.RLock
    status: str = "Creating"
    failure: str = ""
    live: Release | None = None
    pending: Release | None = None
    created: float = field(default_factory=now)
    modified: float = field(default_factory=now)

    def turn(self, status: str, failure: str = "") -> None:
        """Take another status; an empty `failure` clears the reason."""
        with self.lock:
            self.status, self.failure, self.modified = status, failure[:_LONGEST_REASON], now()

    def deploy(self, spec: EndpointSpec, deployment: Deployment) -> None:
        """Start it beside what serves, and let it take over when it is healthy."""
        self.pending = Release(self, spec, deployment)
        self.turn("Updating" if self.live else "Creating")
        deployment.start(self.pending)

    def rescale(self, spec: EndpointSpec) -> None:
        assert self.live is not None
        self.pending = Release(self, spec, self.live.deployment)
        self.turn("Updating")
        self.live.deployment.rescale(spec, self.pending)

    def delete(self, forget: Callable[[], None]) -> None:
        self.turn("Deleting")
        self.end(forget)

    def end(self, ended: Callable[[], None]) -> None:
        """End all its containers, then call `ended`."""
        deployments = {id(release.deployment): release.deployment for release in (self.live, self.pending) if release}
        remaining = len(deployments)
        if not remaining:
            ended()

        def one_ended() -> None:
            nonlocal remaining
            with self.lock:
                remaining -= 1
                last = not remaining
            if last:
                ended()

        for deployment in deployments.values():
            deployment.stop(one_ended)

    @property
    def in_progress(self) -> bool:
        return self.status in _IN_PROGRESS

    @property
    def new(self) -> Release | None:
        """A deployment that is being made, when one is."""
        changing = self.pending and self.live and self.pending.deployment is self.live.deployment
        return None if changing else self.pending

    def times(self) -> Answer:
        return {"CreationTime": self.created, "LastModifiedTime": self.modified}
