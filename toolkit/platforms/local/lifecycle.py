"""The life of what runs: Creating, InService, Updating, RollingBack, Deleting, Failed with a reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from toolkit.platforms.local.aws import now
from toolkit.platforms.local.host import Answer, Deployment

S = TypeVar("S")
D = TypeVar("D", bound=Deployment[Any])

_LONGEST_REASON = 1024  # of a FailureReason, by the service model
_IN_PROGRESS = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")


@dataclass(eq=False)
class Release(Generic[S, D]):
    """A deployment and what it was made from; it is the deployment's watcher."""

    life: Life[S, D]
    spec: S
    deployment: D

    def healthy(self) -> None:
        """Put it in service; what served before is retired."""
        life = self.life
        with life.lock:
            old, life.live, life.pending, life.spec = life.live, self, None, self.spec
            if old and old.deployment is not self.deployment:
                old.deployment.retire(lambda: life.turn("InService"))
            else:
                life.turn("InService")

    def failing(self, reason: str) -> None:
        """What served before goes on."""
        with self.life.lock:
            if self.life.live:
                self.life.turn("RollingBack", reason)

    def failed(self, reason: str) -> None:
        """What served before goes on; where nothing did, or this did, it has failed."""
        life = self.life
        with life.lock:
            if life.pending is self:
                life.pending = None
            elif life.live and life.live.deployment is self.deployment:
                life.live = None
            life.turn("InService" if life.live else "Failed", reason)


@dataclass(eq=False)
class Life(Generic[S, D]):
    """One thing that lives: `live` serves, `pending` is on its way to. Nothing changes without `lock`."""

    spec: S
    """Of what serves; of what was wanted first, when nothing ever served."""
    lock: threading.RLock
    status: str = "Creating"
    failure: str = ""
    live: Release[S, D] | None = None
    pending: Release[S, D] | None = None
    created: float = field(default_factory=now)
    modified: float = field(default_factory=now)

    def turn(self, status: str, failure: str = "") -> None:
        """Take another status; an empty `failure` clears the reason."""
        with self.lock:
            self.status, self.failure, self.modified = status, failure[:_LONGEST_REASON], now()

    def deploy(self, spec: S, deployment: D) -> None:
        """Start it beside what serves, and let it take over when it is healthy."""
        self.pending = Release(self, spec, deployment)
        self.turn("Updating" if self.live else "Creating")
        deployment.start(self.pending)

    def rescale(self, spec: S) -> None:
        """Change weights or numbers of what serves."""
        assert self.live is not None
        self.pending = Release(self, spec, self.live.deployment)
        self.turn("Updating")
        self.live.deployment.rescale(spec, self.pending)

    def delete(self, forget: Callable[[], None]) -> None:
        """End it in the background, then forget it."""
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
        """Whether nothing may be asked of it now."""
        return self.status in _IN_PROGRESS

    @property
    def new(self) -> Release[S, D] | None:
        """A deployment that is being made, when one is."""
        changing = self.pending and self.live and self.pending.deployment is self.live.deployment
        return None if changing else self.pending

    def times(self) -> Answer:
        """Its times, as Describe and List operations show them."""
        return {"CreationTime": self.created, "LastModifiedTime": self.modified}
