"""Where endpoints run. Platforms implement the stages' protocols; here is the one place that chooses between them."""

from __future__ import annotations

from typing import Protocol

from toolkit.apply.executor import Executor
from toolkit.apply.waiter import EndpointStatus
from toolkit.endpoint.handle import EndpointPlatform
from toolkit.errors import UsageError
from toolkit.home import home
from toolkit.planning.resources import Account, Observer


class Platform(Observer, Executor, EndpointPlatform, Protocol):
    """All that the stages need of a platform."""

    def endpoints(self) -> list[EndpointStatus]:
        """Every endpoint there that the toolkit made."""


def open_platform(name: str) -> Platform:
    """The platform, started when it is `local` and does not run. Raises UsageError or PlatformError."""
    _require_known(name)
    from toolkit.platforms.local import daemon
    from toolkit.platforms.local.platform import local_platform

    return local_platform(daemon.start(home() / "local", daemon.default_containers()))


def open_running(name: str) -> Platform | None:
    """The platform as it is, None when it is `local` and does not run: then nothing exists there. Starts nothing."""
    _require_known(name)
    from toolkit.platforms.local import daemon

    running = daemon.running(home() / "local")
    if running is None:
        return None
    from toolkit.platforms.local.platform import local_platform

    return local_platform(running)


def account_of(name: str) -> Account:
    """Account and region of a platform that does not run."""
    from toolkit.platforms.local.aws import ACCOUNT, REGION

    return Account(ACCOUNT, REGION)


def _require_known(name: str) -> None:
    if name == "sagemaker":
        hint = "`check` and `fit` work for it; deploy with: --platform local"
        raise UsageError("nothing can be deployed to `sagemaker` yet", hint=hint)
    if name != "local":
        raise UsageError(f"there is no platform `{name}`", hint="Use `local`.")
