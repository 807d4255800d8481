"""What a platform may have besides what every platform answers: each part is there or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.planning.kinds import PlanParts
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.measure.report import BenchReport


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

    `resources` are all that is needed to compile for the arms (the recipe itself comes first); `notes` are for a plan
    of `toolkit compile`. `require_compiled` raises PlatformError if a plan's endpoints cannot start because their code
    was not compiled.
    """

    resources: Callable[[Sequence[Recipe], Account], Sequence[Resource]]
    notes: Callable[[Recipe], Iterator[str]]
    require_compiled: Callable[[Plan], None]


@dataclass(frozen=True)
class HeadTraining:
    """Training jobs.

    `resources` are all that is needed to train the recipe's head, including the job; it raises UsageError. `notes` are
    for a plan of `toolkit train`. `price_per_hour` is the job's price in US dollars, None if unknown; `price_text` then
    says why.
    """

    resources: Callable[[Recipe, Account], Sequence[Resource]]
    notes: Callable[[Recipe], Iterator[str]]
    price_per_hour: Callable[[Recipe], float | None] | None = None
    price_text: Callable[[Recipe], str] | None = None


@dataclass(frozen=True)
class Version:
    """A recipe as a version of a model in a registry.

    `status` is its approval. With None a new version waits for approval, and an existing one keeps its status. `proof`
    is what was measured of it, `training_job` the name of the job that its head comes from.
    """

    group: str
    status: str | None = None
    proof: BenchReport | None = None
    training_job: str = ""


@dataclass(frozen=True)
class ModelRegistry:
    """A registry of models.

    `resources` are all that a version needs; it raises UsageError. `owner` is the name under which weights and files of
    a version are kept; `newest` is the observed version with that content, with `Arn`, `Version` and `Status`.
    """

    resources: Callable[[Recipe, Account, Version], Sequence[Resource]]
    owner: Callable[[str], str]
    newest: Callable[[Observed, str], Existing | None]


@dataclass(frozen=True)
class Templates:
    """CloudFormation templates.

    `arrange` places the recipe's files where a template can refer to them; `template` raises UsageError; `failures`
    are sentences on what a stack of the template would lack, and not work without.
    """

    arrange: Callable[[Recipe, Account], Recipe]
    template: Callable[[Sequence[Resource]], dict[str, Any]]
    failures: Callable[[Mapping[str, Any]], list[str]]


@dataclass(frozen=True)
class PlatformParts(PlanParts):
    """What a platform may have besides; None where it does not. What few commands need is loaded when it is called.

    Fields:
        endpoint_name: the name of the endpoint that serves the recipe, if several recipes can share one; without it,
            the recipe's own name.
        base_images: addresses of the images of others that run, or that an image is built on, as they are written: most
            by tag. Raises UsageError if there is none.
        with_jumpstart: the recipe with the defaults of its JumpStart models, given JumpStart's entries by id.
        trial: where a new head is tried, and what that does to the endpoint.
        rollback: the plan that returns an endpoint to what it ran before, given recipe, platform, address and what
            exists. Raises UsageError if that is impossible.
        pause: the plan that removes the parts of endpoints that cost money, and keeps those that `deploy` makes them
            from again, given recipe, endpoints, what exists, and now in seconds since 1970. Raises UsageError.
        price_now: US dollars per hour of the existing endpoints in a region; None if unknown.
        price_text: the price as a phrase, with its source and date, or why it is unknown.
        wait_seconds: the timeout for a plan's endpoints to be in service.
    """

    endpoint_name: Callable[[Recipe], str] | None = None
    base_images: Callable[[Recipe, Account], Sequence[str]] | None = None
    building: Building | None = None
    compilation: Compilation | None = None
    training: Callable[[], HeadTraining] | None = None
    templates: Callable[[], Templates] | None = None
    registry: Callable[[], ModelRegistry] | None = None
    with_jumpstart: Callable[[Recipe, Mapping[str, Mapping[str, Any]]], Recipe] | None = None
    trial: Callable[[Recipe], Trial] | None = None
    rollback: Callable[[str, str, str, Observed], Plan] | None = None
    pause: Callable[[str, Sequence[str], Observed, float], Plan] | None = None
    price_now: Callable[[Observed, str | None], float | None] | None = None
    price_text: Callable[[Recipe], str] | None = None
    wait_seconds: Callable[[Plan], float] | None = None
