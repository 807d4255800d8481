"""The local platform to the stages: SageMaker's own code, talking to this machine."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.endpoint.metrics import Metrics
from toolkit.errors import PlatformError
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

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        """There are none: CloudWatch's stand-in is not fed, and containers are reached through their endpoint only."""
        raise PlatformError("the local platform keeps no metrics", hint=f"Measure instead: toolkit prove {endpoint}")


def local_platform(daemon: LocalDaemon) -> LocalPlatform:
    """The platform that a running daemon serves."""
    return LocalPlatform(clients=Clients(session(daemon), attempts=2))
