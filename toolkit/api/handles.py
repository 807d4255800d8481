"""Handles of endpoints, and a list of those that exist."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.api.context import deployed_recipe, find_platform, in_service, recipe_or_none
from toolkit.api.endpoint import Endpoint
from toolkit.api.listing import status, unknown_endpoint
from toolkit.api.removal import destroy_on
from toolkit.apply.progress import default_progress
from toolkit.endpoint.platform import Deployed
from toolkit.errors import EndpointNotFound
from toolkit.loading import RecipeLike
from toolkit.measure.arm import GENERAL, Expected, Workload
from toolkit.measure.expected import Watch, reports_drafts
from toolkit.measure.expected import watch as watch_metrics
from toolkit.planning.kinds import configs
from toolkit.planning.plan import Plan
from toolkit.platforms.rules import Platform
from toolkit.recipe.prompts import read_prompts
from toolkit.recipe.recipe import Recipe
from toolkit.registry import rules_of

if TYPE_CHECKING:
    from toolkit.platforms.rules import AwsSession


def connect(
    name: RecipeLike, *, platform: str | None = None, region: str | None = None, session: AwsSession | None = None
) -> Endpoint:
    """The handle of an endpoint that exists, the toolkit's or not, by its name or recipe. Raises EndpointNotFound.

    `session` is a boto3.Session, or a Session of the SageMaker SDK, to use instead of the environment's.
    """
    recipe = recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = find_platform(endpoint, recipe, platform, region, session)
    written = str(name) if recipe and not isinstance(name, Recipe) else ""
    if opened is None:
        raise unknown_endpoint(endpoint, ": the local platform is not running", written)
    try:
        return existing_endpoint(endpoint, opened, deployed_recipe(recipe, session) if recipe else None)
    except EndpointNotFound as error:
        if session is not None:
            raise  # which names are like it, only the environment's own account would be asked
        raise unknown_endpoint(endpoint, recipe=written) from error


def watch(name: RecipeLike, *, minutes: int = 60, platform: str | None = None) -> Watch:
    """Compare the acceptance of a live endpoint's last `minutes` with its recipe's evidence.

    Raises EndpointNotFound or PlatformError.
    """
    return watch_metrics(connect(name, platform=platform).metrics(minutes), recipe_or_none(name))


def endpoints(
    *names: str, platform: str | None = None, all_regions: bool = False, details: bool | None = None
) -> list[Deployed]:
    """Every endpoint that the toolkit made: on this machine, on AWS where there are credentials, and on a cluster.

    A platform that does not answer is skipped, with a line on stderr, unless `platform` names it. `names` and `details`
    are those of `status`.
    """
    listed = status(*names, platform=platform, all_regions=all_regions, details=details)
    for line in listed.not_listed:
        default_progress().say(f"not listed: {line}")
    return list(listed.endpoints)


def existing_endpoint(name: str, platform: Platform, recipe: Recipe | None) -> Endpoint:
    """The handle of an existing endpoint."""
    address, twin = platform.address(name), f"{name}-baseline"
    return _endpoint(address, platform.address(twin) if in_service(platform, twin) else None, platform, recipe)


def planned_endpoint(plan: Plan, platform: Platform, recipe: Recipe | None) -> Endpoint:
    """The handle of the endpoint of an applied plan. Asks the platform nothing."""
    wanted = {(action.kind, action.name) for action in plan.actions if action.verb != "delete"}
    hosts = list(configs(plan, rules_of(plan.platform).kinds))
    address, *twins = [
        f"{name if name in hosts else hosts[0]}/{name}" if ("InferenceComponent", name) in wanted else name
        for name in plan.endpoints
    ]
    return _endpoint(address, twins[0] if twins else None, platform, recipe)


def _endpoint(address: str, baseline: str | None, platform: Platform, recipe: Recipe | None) -> Endpoint:
    name, _, component = address.partition("/")

    def destroyer(name: str) -> Plan:
        return destroy_on(platform, "", (name, f"{name}-baseline"), default_progress())

    endpoint = Endpoint(name, platform, baseline, component=component or None, destroyer=destroyer)
    if recipe is None:
        return endpoint
    price = recipe.price_per_hour
    workloads = tuple(Workload(name, read_prompts(path)) for name, path in recipe.workloads.items())
    return replace(
        endpoint,
        speculative=recipe.speculation is not None,
        workloads=workloads or (GENERAL,),
        expected=Expected(recipe.expect, _published_acceptance(recipe)),
        price_per_hour=price,
        reports_drafts=reports_drafts(recipe),
        engine=recipe.engine.name,
        served_with=_served_with(recipe, has_instances=price != 0),
        synthetic_acceptance_length=recipe.synthetic_acceptance_length,
        target=f"{recipe.target}@{revision}" if (revision := recipe.target.revision) else str(recipe.target),
        max_model_len=recipe.engine.max_model_len,
    )


def speculation_in_words(recipe: Recipe) -> str:
    """The speculation as a report says it, empty without one."""
    if recipe.speculation is None:
        return ""
    by_batch = ", by batch size" if recipe.speculation.schedule else ""
    by_chance = ", drafts accepted by chance" if recipe.synthetic_acceptance_length else ""
    return f"{recipe.speculation.method} K={recipe.speculation.num_speculative_tokens}{by_batch}{by_chance}"


def _served_with(recipe: Recipe, has_instances: bool) -> dict[str, str]:
    """What a report says of the engine, the speculation and the hardware."""
    facts = {"engine": f"{recipe.engine.name} {recipe.engine.version}", "target": str(recipe.target)}
    if drafts := speculation_in_words(recipe):
        facts["speculation"] = drafts
    return facts | ({"instance types": ", ".join(recipe.platform.types)} if has_instances else {})


def _published_acceptance(recipe: Recipe) -> dict[str, float]:
    """Acceptance length by workload, as the recipe's evidence has it for the recipe's own K."""
    k = recipe.speculation.num_speculative_tokens if recipe.speculation else None
    return {
        item.workload: item.acceptance_length
        for item in recipe.evidence
        if item.acceptance_length and item.num_speculative_tokens in (None, k)
    }
