"""Compiling for Trainium before deployment: its resources, its notes in plans, and the error if it was not done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.errors import NotCompiled, UsageError
from toolkit.planning import artifacts
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.rules.capabilities import capabilities
from toolkit.platforms.sagemaker.rules.compile_job import LONGEST_SECONDS, job, job_data
from toolkit.platforms.sagemaker.rules.kinds.artifacts import needed
from toolkit.platforms.sagemaker.rules.kinds.bucket import bucket
from toolkit.platforms.sagemaker.rules.kinds.image import images
from toolkit.platforms.sagemaker.rules.kinds.repository import repositories
from toolkit.platforms.sagemaker.rules.kinds.role import compile_role
from toolkit.platforms.sagemaker.rules.kinds.weights import reference
from toolkit.recipe.recipe import Recipe

AT_START = "then the container compiles when it starts, for which SageMaker allows 60 min at most."


def compile_resources(recipes: Sequence[Recipe], account: Account) -> list[Resource]:
    """All resources that compiling for the recipes needs. The first is the recipe itself. Raises UsageError."""
    wanted = needed(recipes)
    data = {item.uri: item for here in wanted.values() for item in job_data(here, account)}
    weights = [item for item in data.values() if item.weights]
    found = [
        bucket(account),
        *(item for here in wanted.values() for item in (*repositories(here), *images(here, account))),
        *(reference(item, recipes[0].name) for item in weights),
        *(item.weights for item in weights),
        *compile_role(recipes[0], account, list(data.values())),
        *(job(here, recipes[0], account) for here in wanted.values()),
    ]
    return [item for item in found if item]


def notes(recipe: Recipe) -> Iterator[str]:
    """Notes on compiling for the plan of an endpoint."""
    takes = f"which takes {_takes(recipe)}"
    if artifacts.compiles_ahead(recipe):
        twin = "; add `--baseline` to compile for the baseline too" if recipe.speculation else ""
        yield f"Its containers need compiled code to start: `toolkit compile {recipe.path}` creates it, {takes}{twin}"
    elif recipe.engine_rules.compilation:
        yield f"Every container compiles when it starts, {takes}; SageMaker allows 60 min at most"


def job_notes(recipe: Recipe) -> Iterator[str]:
    """Notes for a plan of `toolkit compile`."""
    yield f"Price of the training instance unknown ({recipe.platform.types[0]}); it is billed by the second"
    if aws(recipe).capacity_reservation:
        yield "The job does not use platform.capacity_reservation, which is for endpoints"
    longest = f"{LONGEST_SECONDS // 3600} h"
    yield f"A job takes {_takes(recipe)}, and is stopped after {longest}. Unverified: no such job has run on AWS yet"


def require_compilable(recipe: Recipe) -> None:
    """Raise UsageError for a platform without compile jobs."""
    if not capabilities(recipe).compiles:
        raise UsageError(
            f"platform `{recipe.platform.name}` cannot compile for Trainium",
            hint="Write `platform: {name: sagemaker}`.",
        )


def require_compiled(plan: Plan) -> None:
    """Raise NotCompiled if compiled code that the plan needs does not exist."""
    lacking = [action for action in plan.actions if action.kind == "Artifacts" and action.verb == "create"]
    if not lacking:
        return
    what = "; ".join(f"{action.name} {action.reason}" for action in lacking)
    minutes = max(action.request["ExpectedSeconds"] for action in lacking) / 60
    takes = f" (the longest job takes about {minutes:.0f} min, an estimate)" if minutes else ""
    twin = " --baseline" if len(plan.endpoints) > 1 else ""
    raise NotCompiled(
        f"compiled code is missing: {what}",
        hint=f"Run: toolkit compile {plan.recipe}{twin}{takes}. Or write `engine: {{compile: at-start}}`: {AT_START}",
    )


def _takes(recipe: Recipe) -> str:
    minutes = artifacts.expected_seconds(recipe) // 60
    return f"about {minutes} min (an estimate)" if minutes else "an unknown time"
