"""What every platform has: a pure part, which plans, and a session, which opens it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from toolkit.apply.executor import Executor
from toolkit.apply.progress import Progress
from toolkit.apply.training import Trainer
from toolkit.endpoint.handle import EndpointPlatform
from toolkit.endpoint.listing import Deployed
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Observed, Observer, Resource
from toolkit.planning.rules import PlanRules
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.rules import PlatformTraits


class PlatformRules(PlatformTraits, PlanRules, Protocol):
    """The pure part of a platform: it reads nothing but the recipe's own files, and opens nothing."""

    exports_templates: bool
    """Whether CloudFormation can make what it runs."""

    def completed(self, recipe: Recipe, published: Mapping[str, Mapping[str, Any]]) -> Recipe:
        """The recipe with what `published` (JumpStart's entries, by id) says of its models where its file is silent."""

    def endpoint_name(self, recipe: Recipe) -> str:
        """The endpoint that serves the recipe, which may be shared with others."""

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """All resources of the arms, in the order in which they are made; what two arms share stands once."""

    def desired_image(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """The images that are built for the arms, with their repositories; none for what runs as it is."""

    def image_uri(self, recipe: Recipe, account: Account) -> str:
        """The image that the containers run. Raises UsageError where there is none."""

    def base_images(self, recipe: Recipe, account: Account) -> Sequence[str]:
        """Addresses of the images from elsewhere that run, or that one is built on, as they are written: most by tag.

        Raises UsageError where there is none.
        """

    def require_compilable(self, recipe: Recipe) -> None:
        """Raise UsageError for a recipe that `toolkit compile` compiles nothing for."""

    def desired_compilation(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """All that compiling for the arms takes; the first is the recipe."""

    def compilation_notes(self, recipe: Recipe) -> Iterator[str]:
        """What the reader of the plan of a compilation should know."""

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        """What the reader of a plan should know besides its actions, a sentence or line each."""

    def price_per_hour(self, recipe: Recipe) -> float | None:
        """US dollars per hour of the recipe's endpoint as it starts; None where it is not known."""

    def price_now(self, observed: Observed) -> float | None:
        """US dollars per hour of the endpoints that exist; None where it is not known."""

    def price_text(self, recipe: Recipe) -> str:
        """The price in words: its source and date, or why there is none."""

    def require_startable(self, plan: Plan) -> None:
        """Raise PlatformError where a plan lacks what its endpoints start with, and what it cannot make itself."""

    def rollback(self, recipe: str, address: str, observed: Observed) -> Plan:
        """The plan that brings an endpoint back to what it ran before. Raises UsageError where that cannot be."""

    def wait_seconds(self, plan: Plan) -> float:
        """How long the plan's endpoints may take until they are in service."""

    def expected_seconds(self, recipe: Recipe) -> dict[str, float]:
        """How long the stages of a container's start are thought to take; empty where that is not known."""


class Platform(Observer, Executor, EndpointPlatform, Protocol):
    """An open platform: all that the stages need of it."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    def endpoints(self) -> list[Deployed]:
        """Every endpoint there that the toolkit made."""

    def exists_settled(self, endpoint: str, progress: Progress) -> bool:
        """Whether the endpoint exists. Returns when the platform takes changes of it."""

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


class PlatformSession(Protocol):
    """Opens a platform. A scope is a part of it, such as a region or a namespace; None is the user's own."""

    account_name: str
    """What a plan is made without when nobody is logged in: "an AWS account"."""

    unasked: str
    """What `status` says when it cannot be asked: "AWS, for want of credentials"."""

    may_be_absent: bool
    """Whether an endpoint is looked for elsewhere when it does not answer, unless somebody named it."""

    def scope(self, recipe: Recipe) -> str | None:
        """The scope that the recipe names."""

    def scope_name(self, scope: str) -> str:
        """A scope in the words of `status`."""

    def can_be_asked(self) -> bool:
        """Whether there is something to ask, such as credentials. Sends no request."""

    def open(self, scope: str | None) -> Platform:
        """The platform, started where it is ours to start. Raises UsageError or PlatformError."""

    def running(self, scope: str | None) -> Platform | None:
        """The platform as it is, None where it does not run: then nothing exists there. Starts nothing."""

    def scope_of(self, endpoint: str) -> str | None:
        """The scope of an endpoint when the user gave none. Raises AmbiguousEndpoint where several have that name."""

    def every_scope(self) -> Sequence[str | None]:
        """All scopes of the user's account."""

    def unread_account(self, scope: str | None) -> Account:
        """The account to plan for when it cannot be asked."""
