"""The protocols of a platform: a pure part, which plans, and a session, which opens the platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from toolkit.apply.executor import Executor
from toolkit.apply.progress import Progress
from toolkit.apply.training import Trainer
from toolkit.endpoint.platform import EndpointPlatform, Found, any_name
from toolkit.planning.kinds import PlanRules
from toolkit.planning.resources import Account, Observer, Resource
from toolkit.planning.retention import Cleaner
from toolkit.platforms.parts import PlatformParts
from toolkit.recipe.recipe import PlatformTraits, Recipe

if TYPE_CHECKING:
    import boto3

    from toolkit.images.signing import PublicKey, SigningKey

    class SdkSession(Protocol):
        """A session of the SageMaker Python SDK."""

        @property
        def boto_session(self) -> Any:
            """The boto3 session in it."""

    AwsSession = boto3.Session | SdkSession


class PlatformRules(PlatformTraits, PlanRules, Protocol):
    """The pure part of a platform. It reads only the recipe's own files, and uses no network."""

    @property
    def parts(self) -> PlatformParts:
        """What else it has."""

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """All resources of the arms, in order of creation, without duplicates."""

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        """Notes for a plan, one sentence each."""


class Platform(Observer, Executor, EndpointPlatform, Protocol):
    """An open platform, as the stages of a deployment use it."""

    def endpoints(self, is_wanted: Callable[[str], bool] = any_name, details: bool | None = None) -> Found:
        """The endpoints of those names that the toolkit created on it.

        `details`: whether they have to be described; None leaves it to the platform, which may describe only few.
        """

    def exists_settled(self, endpoint: str, progress: Progress) -> bool:
        """Wait until the endpoint can be changed. Returns whether it exists."""

    def with_digest(self, image: str) -> str:
        """The reference of a built image with its digest."""

    def scan(self, image: str) -> dict[str, int]:
        """The number of vulnerabilities that the registry's scan found in a built image, by severity, worst first."""

    def verify(self, image: str, key: PublicKey | None = None) -> dict[str, str]:
        """Digests of a built image, of its bill of materials and of its provenance.

        Raises BuildError if one is missing, about another image, or not signed with the key.
        """

    def sign(self, image: str, key: SigningKey) -> None:
        """Sign a built image, its bill of materials and its provenance. Raises BuildError if one is missing."""

    def address(self, name: str) -> str:
        """The address for requests to that endpoint or inference component: `endpoint`, or `endpoint/component`.

        An endpoint with one component means that component. Raises EndpointNotFound.
        """


class TrainingPlatform(Observer, Executor, Trainer, Protocol):
    """A platform that has training jobs."""

    def fetch_head(self, job: Mapping[str, Any], folder: Path) -> None:
        """Copy the head that a completed job made to `folder`. `job` is its request. Raises PlatformError."""

    def head_at(self, address: str) -> Mapping[str, str]:
        """The files at an address of a head: the ContentHash of each by its name, empty if it is not known.

        Raises UsageError.
        """

    def put_head(self, folder: Path, address: str, progress: Progress) -> None:
        """Copy a head to an address that is no folder of this machine, such as in S3. Raises UsageError."""

    def publish_head(self, job: Mapping[str, Any], name: str, method: str) -> None:
        """Copy the job's head to the place where endpoints look heads up by name, if they cannot read its folder.

        `method` says which of several compared heads; it is empty if there is only one. Raises PlatformError.
        """


class PlatformSession(Protocol):
    """Opens a platform. A scope is a part of it, such as a region or a namespace; None is the user's default."""

    account_name: str
    """What is missing from a plan if the user is not logged in, such as "an AWS account"."""

    unasked: str
    """What `status` cannot list, and why, such as "AWS (no credentials)"."""

    may_be_absent: bool
    """Whether to look for an endpoint on other platforms if this one does not answer and was not named explicitly."""

    is_this_machine: bool
    """Whether what it keeps lies below the toolkit's home."""

    def logged_in(self, login: AwsSession) -> PlatformSession:
        """The same with this AWS session. Raises UsageError if it is no session, or the platform is not AWS."""

    def scope(self, recipe: Recipe) -> str | None:
        """The scope that the recipe names."""

    def scope_name(self, scope: str) -> str:
        """A scope as `toolkit status` shows it."""

    def can_be_asked(self) -> bool:
        """Whether it is configured (credentials, a kubeconfig). Sends no request."""

    def open(self, scope: str | None) -> Platform:
        """The platform; the local one is started. Raises UsageError or PlatformError."""

    def running(self, scope: str | None) -> Platform | None:
        """The platform without starting it; None if it is not running and so has no endpoints."""

    def glance(self, scope: str | None) -> Platform | None:
        """`running` for a first look, which gives up after seconds where nobody answers."""

    def scope_of(self, endpoint: str) -> str | None:
        """The scope of an endpoint if the user gave none. Raises AmbiguousEndpoint if several scopes have one."""

    def trainer(self, scope: str | None) -> TrainingPlatform:
        """What runs training jobs. Raises UsageError or PlatformError."""

    def every_scope(self) -> Sequence[str | None]:
        """All scopes of the user's account."""

    def unread_account(self, scope: str | None) -> Account:
        """The placeholder account for a plan without credentials."""

    def cleaner(self, scope: str | None) -> Cleaner | None:
        """What finds and removes what `destroy` leaves there; None where it leaves nothing. Raises PlatformError."""
