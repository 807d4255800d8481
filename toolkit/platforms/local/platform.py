"""The local platform to the stages: SageMaker's own code, talking to this machine."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.platforms.local.clients import session
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform


@dataclass(frozen=True, kw_only=True)
class LocalPlatform(SageMakerPlatform):
    """AWS on this machine."""

    runtime_url: str
    poll_seconds: float = 0.5
    # The arms share the machine, and vLLM spins for a second after a request (shm_broadcast.py, busy_loop_s).
    pause_between_arms: float = 1.2

    def openai_access(self, endpoint: str) -> tuple[str, str]:
        """Base URL on the loopback gateway; it takes any key."""
        return f"{self.runtime_url}/endpoints/{endpoint}/openai/v1", "local"


def local_platform(daemon: LocalDaemon) -> LocalPlatform:
    """The platform that a running daemon serves."""
    return LocalPlatform(clients=Clients(session(daemon)), runtime_url=daemon.runtime_url)
