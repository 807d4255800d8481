"""Compiling for Trainium before deployment: its resources, its notes in plans, and the error if it was not done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.errors import NotCompiled
from toolkit.planning import artifacts
from toolkit.planning.kinds import in_order
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.kinds import ORDER
from toolkit.platforms.sagemaker.kinds.artifacts import needed
from toolkit.platforms.sagemaker.kinds.bucket import bucket
from toolkit.platforms.sagemaker.kinds.image import images
from toolkit.platforms.sagemaker.kinds.repository import repositories
from toolkit.platforms.sagemaker.kinds.role import compile_role
from toolkit.platforms.sagemaker.kinds.weights import reference
from toolkit.platforms.sagemaker.rules.compile_job import LONGEST_SECONDS, job, job_data
from toolkit.recipe.resolve import Recipe

AT_START = "then the container compiles when it starts, for which SageMaker allows 60 min at most."


def compile_resources(recipes: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    """All resources that compiling for the recipes needs. The first is the recipe itself. Raises UsageError."""
    compiled = needed(recipes)
    data = {item.uri: item for here in compiled.values() for item in job_data(here, account)}
    weights = [item for item in data.values() if item.weights]
    wanted = [
        bucket(account),
        *(item for here in compiled.values() for item in (*repositories(here), *images(here, account))),
        *(reference(item, recipes[0].name) for item in weights),
        *(item.weights for item in weights),
        *compile_role(recipes[0], account, list(data.values())),
        *(job(here, recipes[0], account) for here in compiled.values()),
    ]
    return in_order([item for item in wanted if item], ORDER)


def notes(recipe: Recipe) -> Iterator[str]:
    """Notes on compiling for the plan of an endpoint."""
    takes = f"which takes {_takes(recipe)}"
    if artifacts.compiles_ahead(recipe):
        twin = "; add `--baseline` to compile for the baseline too" if recipe.speculation else ""
        yield f"Its containers need compiled code to start: `toolkit compile {recipe.path}` creates it, {takes}{twin}"
    elif recipe.engine_rules.compiles(recipe):
        yield f"Every container compiles when it starts, {takes}; SageMaker allows 60 min at most"


def job_notes(recipe: Recipe) -> Iterator[str]:
    """Notes for a plan of `toolkit compile`."""
    yield f"Price of the training instance unknown ({recipe.platform.instance_types[0]}); it is billed by the second"
    if recipe.platform.capacity_reservation:
        yield "The job does not use platform.capacity_reservation, which is for endpoints"
    longest = f"{LONGEST_SECONDS // 3600} h"
    yield f"A job takes {_takes(recipe)}, and is stopped after {longest}. Unverified: no such job has run on AWS yet"


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
