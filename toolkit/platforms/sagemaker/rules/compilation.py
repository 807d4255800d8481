"""Compiling ahead: what it takes, what the reader of a plan should know of it, and what refuses to go on without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.errors import NotCompiled, UsageError
from toolkit.planning import artifacts
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.rules.capabilities import capabilities
from toolkit.platforms.sagemaker.rules.kinds.bucket import bucket
from toolkit.platforms.sagemaker.rules.kinds.image import images
from toolkit.platforms.sagemaker.rules.kinds.repository import repositories
from toolkit.platforms.sagemaker.rules.kinds.role import compile_role
from toolkit.platforms.sagemaker.rules.kinds.training_job import LONGEST_SECONDS, job, job_data, needed
from toolkit.platforms.sagemaker.rules.kinds.weights import use
from toolkit.recipe.resolve import Recipe

AT_START = "then the container compiles when it starts, and SageMaker gives it 60 min for that at most."


def compile_resources(recipes: Sequence[Recipe], account: Account) -> list[Resource]:
    """All that compiling for the recipes takes; the first is the recipe, the others its arms. Raises UsageError."""
    wanted = needed(recipes)
    data = {item.uri: item for here in wanted.values() for item in job_data(here, account)}
    weights = [item for item in data.values() if item.weights]
    found = [
        bucket(account),
        *(item for here in wanted.values() for item in (*repositories(here), *images(here, account))),
        *(use(item, recipes[0].name) for item in weights),
        *(item.weights for item in weights),
        *compile_role(recipes[0], account, list(data.values())),
        *(job(here, recipes[0], account) for here in wanted.values()),
    ]
    return [item for item in found if item]


def notes(recipe: Recipe) -> Iterator[str]:
    """What the reader of the plan of an endpoint should know of compiling."""
    takes = f"which takes {_takes(recipe)}"
    if artifacts.compiles_ahead(recipe):
        twin = "; for its baseline too with `--baseline`" if recipe.speculation else ""
        yield f"Its containers start with compiled code only: `toolkit compile {recipe.path}` makes it, {takes}{twin}"
    elif recipe.engine.rules.compiles(recipe):
        yield f"Every container compiles when it starts, {takes}: SageMaker gives it 60 min for that at most"


def job_notes(recipe: Recipe) -> Iterator[str]:
    """What the reader of the plan of a compilation should know."""
    yield f"Price of training instances not known ({recipe.platform.instance_types[0]}); they are billed by the second"
    if recipe.platform.capacity_reservation:
        yield "The job does not use platform.capacity_reservation, which is an endpoint's"
    longest = f"{LONGEST_SECONDS // 3600} h"
    yield f"A job takes {_takes(recipe)}, and is stopped after {longest}; none was tried on AWS so far"


def require_compilable(recipe: Recipe) -> None:
    """Raise UsageError for a platform on which nothing compiles."""
    if not capabilities(recipe).compiles:
        raise UsageError(
            f"platform `{recipe.platform.name}` has no Trainium", hint="Write `platform: {name: sagemaker}`."
        )


def require_compiled(plan: Plan) -> None:
    """Raise NotCompiled where code that the plan needs was not compiled."""
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
    return f"about {minutes} min (an estimate)" if minutes else "a time that is not known"
