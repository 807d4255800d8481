"""The protocols of a platform: a pure part, which plans, and a session, which opens the platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from toolkit.apply.executor import Executor
from toolkit.apply.progress import Progress
from toolkit.apply.training import Trainer
from toolkit.endpoint.listing import Deployed
from toolkit.endpoint.platform import EndpointPlatform
from toolkit.planning.kinds import PlanParts, PlanRules
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Observed, Observer, Resource
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.rules import PlatformTraits

if TYPE_CHECKING:
    import boto3

    class SdkSession(Protocol):
        """A session of the SageMaker Python SDK."""

        @property
        def boto_session(self) -> Any:
            """The boto3 session in it."""

    AwsSession = boto3.Session | SdkSession


@dataclass(frozen=True)
class Trial:
    """Where `toolkit improve` tries a new head: as a variant of the endpoint that serves, or on an endpoint of its own.

    `live` and `candidate` are the names of the two variants, empty with an endpoint of its own. `note` is a sentence
    for the plan.
    """

    note: str
    live: str = ""
    candidate: str = ""


@dataclass(frozen=True)
class Building:
    """Images that are built for recipes.

    `resources` are the images of the arms and their repositories, none if existing images are used; `uri` is the image
    that the containers run, and raises UsageError if none is known.
    """

    resources: Callable[[Sequence[Recipe], Account], Sequence[Resource]]
    uri: Callable[[Recipe, Account], str]


@dataclass(frozen=True)
class Compilation:
    """Compiling ahead of an endpoint.

    `resources` are all that is needed to compile for the arms, the first of which is the recipe itself; `notes` are for
    a plan of `toolkit compile`. `require_compiled` raises PlatformError if a plan's endpoints need code to start that
    was not compiled.
    """

    resources: Callable[[Sequence[Recipe], Account], Sequence[Resource]]
    notes: Callable[[Recipe], Iterator[str]]
    require_compiled: Callable[[Plan], None]


@dataclass(frozen=True)
class HeadTraining:
    """Training jobs.

    `resources` are all that is needed to train the recipe's head, the job among them, and raises UsageError; `notes`
    are for a plan of `toolkit train`; `price_per_hour` is the job's in US dollars, None if unknown.
    """

    resources: Callable[[Recipe, Account], Sequence[Resource]]
    notes: Callable[[Recipe], Iterator[str]]
    price_per_hour: Callable[[Recipe], float | None] | None = None


@dataclass(frozen=True)
class Templates:
    """CloudFormation templates.

    `arrange` has the recipe's files so that a template can have them; `template` raises UsageError; `failures` are
    sentences on what a stack of the template lacks and cannot work without.
    """

    arrange: Callable[[Recipe, Account], Recipe]
    template: Callable[[Sequence[Resource]], dict[str, Any]]
    failures: Callable[[Mapping[str, Any]], list[str]]


@dataclass(frozen=True)
class PlatformParts(PlanParts):
    """What a platform may have besides; None where it does not.

    Fields:
        base_images: addresses of the images from elsewhere that run, or that one is built on, as they are written: most
            by tag. Raises UsageError where there is none.
        with_jumpstart: the recipe with the defaults of its JumpStart models, given JumpStart's entries by id.
        trial: where a new head is tried, and what that does to the endpoint.
        rollback: the plan that returns an endpoint to what it ran before, given recipe, platform, address and what
            exists. Raises UsageError if that is impossible.
        price_now: US dollars per hour of the existing endpoints in a region; None if unknown.
        price_text: the price as a phrase, with its source and date, or why it is unknown.
        wait_seconds: the timeout for a plan's endpoints to be in service.
    """

    base_images: Callable[[Recipe, Account], Sequence[str]] | None = None
    building: Building | None = None
    compilation: Compilation | None = None
    training: HeadTraining | None = None
    templates: Templates | None = None
    with_jumpstart: Callable[[Recipe, Mapping[str, Mapping[str, Any]]], Recipe] | None = None
    trial: Callable[[Recipe], Trial] | None = None
    rollback: Callable[[str, str, str, Observed], Plan] | None = None
    price_now: Callable[[Observed, str | None], float | None] | None = None
    price_text: Callable[[Recipe], str] | None = None
    wait_seconds: Callable[[Plan], float] | None = None


class PlatformRules(PlatformTraits, PlanRules, Protocol):
    """The pure part of a platform. It reads only the recipe's own files, and uses no network."""

    @property
    def parts(self) -> PlatformParts:
        """What else it has."""

    def endpoint_name(self, recipe: Recipe) -> str:
        """The name of the endpoint that serves the recipe. Several recipes may share one."""

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """All resources of the arms, in order of creation, without duplicates."""

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        """Notes for a plan, one sentence each."""


class Platform(Observer, Executor, EndpointPlatform, Protocol):
    """An open platform, as the stages of a deployment use it."""

    def endpoints(self) -> list[Deployed]:
        """All endpoints that the toolkit created on it."""

    def exists_settled(self, endpoint: str, progress: Progress) -> bool:
        """Wait until the endpoint can be changed. Returns whether it exists."""

    def with_digest(self, image: str) -> str:
        """The reference of a built image with its digest."""

    def scan(self, image: str) -> dict[str, int]:
        """The number of vulnerabilities that the registry's scan found in a built image, by severity, worst first."""

    def address(self, name: str) -> str:
        """The address for requests to that endpoint or inference component: `endpoint`, or `endpoint/component`.

        An endpoint with one component means that component. Raises EndpointNotFound.
        """


class TrainingPlatform(Observer, Executor, Trainer, Protocol):
    """A platform that has training jobs."""

    def fetch_head(self, job: Mapping[str, Any], folder: Path) -> None:
        """Copy the head that a completed job made to `folder`. `job` is its request. Raises PlatformError."""

    def put_head(self, folder: Path, address: str, progress: Progress) -> None:
        """Copy a head to an address that is no folder of this machine, such as in S3. Raises UsageError."""

    def publish_head(self, job: Mapping[str, Any], name: str) -> None:
        """Copy the job's head to where endpoints read heads by their names, where they do not read the head's folder.

        Raises PlatformError.
        """


class PlatformSession(Protocol):
    """Opens a platform. A scope is a part of it, such as a region or a namespace; None is the user's default."""

    account_name: str
    """What is missing from a plan if the user is not logged in, such as "an AWS account"."""

    unasked: str
    """What `status` cannot list, and why, such as "AWS (no credentials)"."""

    may_be_absent: bool
    """Whether to look for an endpoint on other platforms if this one does not answer and was not named explicitly."""

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
