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
    are for a plan of `toolkit train`; `price_per_hour` is the job's in US dollars, None if unknown, and `price_text`
    says why it is.
    """

    resources: Callable[[Recipe, Account], Sequence[Resource]]
    notes: Callable[[Recipe], Iterator[str]]
    price_per_hour: Callable[[Recipe], float | None] | None = None
    price_text: Callable[[Recipe], str] | None = None


@dataclass(frozen=True)
class Version:
    """A recipe as a version of a model in a registry.

    `status` is its approval; None lets one wait for approval, and leaves one alone that is registered already. `proof`
    is what was measured of it, `training_job` the name of the job that its head comes from.
    """

    group: str
    status: str | None = None
    proof: BenchReport | None = None
    training_job: str = ""


@dataclass(frozen=True)
class ModelRegistry:
    """A registry of models.

    `resources` are all that a version takes, and raises UsageError; `owner` is the name that what they need is kept
    under; `newest` is the version of that content as it was observed, with `Arn`, `Version` and `Status`.
    """

    resources: Callable[[Recipe, Account, Version], Sequence[Resource]]
    owner: Callable[[str], str]
    newest: Callable[[Observed, str], Existing | None]


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
    """What a platform may have besides; None where it does not. What few commands need is loaded when it is called.

    Fields:
        endpoint_name: the name of the endpoint that serves the recipe, where several recipes may share one; else it is
            the recipe's own.
        base_images: addresses of the images from elsewhere that run, or that one is built on, as they are written: most
            by tag. Raises UsageError where there is none.
        with_jumpstart: the recipe with the defaults of its JumpStart models, given JumpStart's entries by id.
        trial: where a new head is tried, and what that does to the endpoint.
        rollback: the plan that returns an endpoint to what it ran before, given recipe, platform, address and what
            exists. Raises UsageError if that is impossible.
        pause: the plan that removes what costs of endpoints, and keeps what `deploy` makes them from again, given
            recipe, endpoints, what exists, and now in seconds since 1970. Raises UsageError.
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
