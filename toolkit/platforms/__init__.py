"""Where endpoints run. Platforms implement the stages' protocols; here is the one place that chooses between them."""

from __future__ import annotations

from typing import Protocol

from toolkit.apply.executor import Executor
from toolkit.apply.training import Trainer
from toolkit.endpoint.handle import EndpointPlatform
from toolkit.endpoint.listing import Deployed
from toolkit.errors import UsageError
from toolkit.home import containers_dir, home
from toolkit.planning.resources import NO_ACCOUNT, Account, Observer
from toolkit.platforms.sagemaker.rules.jumpstart import Entries, ids
from toolkit.recipe.resolve import Recipe

PLATFORMS = ("local", "sagemaker", "kubernetes")
_SOME_REGION = "us-west-2"


class Platform(Observer, Executor, EndpointPlatform, Protocol):
    """All that the stages need of a platform."""

    @property
    def name(self) -> str:
        """`local`, `sagemaker` or `kubernetes`."""

    def endpoints(self) -> list[Deployed]:
        """Every endpoint there that the toolkit made."""

    def with_digest(self, image: str) -> str:
        """The address of an image that was built, with its digest."""

    def scan(self, image: str) -> dict[str, int]:
        """How many weaknesses the registry's scan found in an image that was built, by severity, the worst first."""

    def address(self, name: str) -> str:
        """Where requests for the endpoint or inference component of that name go: `endpoint`, `endpoint/component`.

        An endpoint with one component means that component. Raises EndpointNotFound.
        """


class TrainingPlatform(Platform, Trainer, Protocol):
    """A platform that has training jobs too."""


def open_platform(name: str, region: str | None = None) -> Platform:
    """The platform, started when it is `local` and does not run. `region` None is that of the user's AWS session.

    On Kubernetes it is `context/namespace`; None is the current context and the namespace `toolkit`. Raises UsageError
    or PlatformError.
    """
    _require_known(name)
    if name == "kubernetes":
        from toolkit.platforms.kubernetes.session import kubernetes_platform

        return kubernetes_platform(region)
    if name == "sagemaker":
        from toolkit.platforms.sagemaker.session import sagemaker_platform

        return sagemaker_platform(region)
    from toolkit.platforms.local import daemon
    from toolkit.platforms.local.platform import local_platform

    return local_platform(daemon.start(home() / "local", containers_dir()))


def open_trainer(region: str | None = None) -> TrainingPlatform:
    """The platform that has training jobs: SageMaker. Raises PlatformError."""
    from toolkit.platforms.sagemaker.session import sagemaker_platform

    return sagemaker_platform(region)


def open_running(name: str, region: str | None = None) -> Platform | None:
    """The platform as it is, None when it is `local` and does not run: then nothing exists there. Starts nothing."""
    _require_known(name)
    if name != "local":
        return open_platform(name, region)
    from toolkit.platforms.local import daemon

    running = daemon.running(home() / "local")
    if running is None:
        return None
    from toolkit.platforms.local.platform import local_platform

    return local_platform(running)


def asks_aws() -> bool:
    """Whether there are credentials to ask AWS with."""
    from toolkit.platforms.sagemaker.credentials import has_credentials

    return has_credentials()


def open_readable(name: str, region: str | None = None) -> Platform | None:
    """The same for a plan, which needs no account: None too without credentials for AWS, or a kubeconfig."""
    if name == "sagemaker" and not asks_aws():
        return None
    if name == "kubernetes":
        from toolkit.platforms.kubernetes.session import has_cluster

        if not has_cluster():
            return None
    return open_running(name, region)


def account_of(name: str, region: str | None = None) -> Account:
    """Account and region of a platform that cannot be asked."""
    if name == "sagemaker":
        return Account(NO_ACCOUNT, region or _SOME_REGION)
    if name == "kubernetes":
        return Account(NO_ACCOUNT, "", scope=region or "")
    from toolkit.platforms.local.aws import ACCOUNT, REGION

    return Account(ACCOUNT, REGION)


def regions() -> list[str]:
    """The regions of AWS that the user's account has enabled. Raises PlatformError."""
    from toolkit.platforms.sagemaker.session import enabled_regions

    return enabled_regions()


def jumpstart_entries(recipe: Recipe) -> Entries:
    """What JumpStart's hub says of the models that the recipe names; asks AWS only if it names any."""
    if not ids(recipe):
        return {}
    from toolkit.platforms.sagemaker.session import sagemaker_platform

    return sagemaker_platform(recipe.platform.region).jumpstart_entries(recipe)


def _require_known(name: str) -> None:
    if name not in PLATFORMS:
        raise UsageError(f"there is no platform `{name}`", hint=f"Use one of: {', '.join(PLATFORMS)}.")
