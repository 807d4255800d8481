"""The local platform to the stages: SageMaker's own code, talking to this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.apply.progress import Progress
from toolkit.endpoint.metrics import Metrics
from toolkit.errors import PlatformError, UsageError
from toolkit.planning.image import spec_of
from toolkit.planning.plan import Action
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.local import engine
from toolkit.platforms.local.clients import session
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform


@dataclass(frozen=True, kw_only=True)
class LocalPlatform(SageMakerPlatform):
    """AWS on this machine."""

    name: str = "local"
    poll_seconds: float = 0.5
    # The arms share the machine, and vLLM spins for a second after a request (shm_broadcast.py, busy_loop_s).
    pause_between_arms: float = 1.2

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        """See planning.resources.Observer. Images are in the store of podman or docker."""
        images = [
            Existing("Image", item.name, True, tuple(endpoints[:1]), {})
            for item in desired
            if item.kind == "Image" and engine.holds(item.request["Image"])
        ]
        return Observed((*super().observe(desired, endpoints).existing, *images))

    def execute(self, action: Action, progress: Progress) -> None:
        """See apply.executor.Executor."""
        if action.kind == "Image":
            engine.build(spec_of(action.request), action.request["Image"], progress.update)
        else:
            super().execute(action, progress)

    def with_digest(self, image: str) -> str:
        """The image itself: it is in no registry, and its tag says its content."""
        return image

    def scan(self, image: str) -> dict[str, int]:
        """There is none: it is ECR that scans."""
        hint = "Write `platform: {name: sagemaker}` to have the image built in ECR, and scanned."
        raise UsageError(f"{image} is on this machine, where nothing scans it", hint=hint)

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        """There are none: CloudWatch's stand-in is not fed, and containers are reached through their endpoint only."""
        raise PlatformError("the local platform keeps no metrics", hint=f"Measure instead: toolkit prove {endpoint}")


def local_platform(daemon: LocalDaemon) -> LocalPlatform:
    """The platform that a running daemon serves."""
    return LocalPlatform(clients=Clients(session(daemon), attempts=2))
