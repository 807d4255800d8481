"""Rollback of an endpoint: what it ran before, what must be kept for that, and the plan."""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Existing, Observed
from toolkit.platforms.sagemaker.rules.arms import CANDIDATE
from toolkit.platforms.sagemaker.rules.names import ran_before
from toolkit.platforms.sagemaker.rules.transition import registered_again, removed_before

_NOT_SCALED = "{endpoint} had other variants before, which are not scaled again: deploy the older recipe for that"


def rollback_plan(recipe: str, platform: str, address: str, observed: Observed) -> Plan:
    """The plan that returns an endpoint to the EndpointConfig before its last update. Raises UsageError."""
    endpoint, _, component = address.partition("/")
    if component:
        raise UsageError(
            f"{component} is an inference component, which cannot be rolled back", hint="Deploy the older recipe."
        )
    existing = observed.get("Endpoint", endpoint)
    if existing is None or not existing.ours:
        raise UsageError(f"the toolkit has created no endpoint {endpoint}", hint="See: toolkit status")
    running, previous = existing.state["Running"], existing.state.get("Previous")
    if previous in (None, running):
        why = "its last update was rolled back already" if previous else "it was never updated"
        raise UsageError(f"{endpoint} runs {running} and cannot be rolled back: {why}")
    config = observed.get("EndpointConfig", previous)
    if config is None or not config.ours:
        raise UsageError(
            f"{endpoint} ran {previous} before, which does not exist any more", hint="Deploy the recipe that you want."
        )
    # All at once and without alarms, because the current configuration is the bad one.
    request = {"EndpointName": endpoint, "EndpointConfigName": previous, "RetainAllVariantProperties": True}
    seconds = lookup.platform(platform).endpoint_seconds
    action = Action("Endpoint", endpoint, "update", f"rolls back from {running}", request, seconds)
    removed = removed_before(endpoint, config, observed)
    again = registered_again(endpoint, removed, config, observed)
    notes = (_NOT_SCALED.format(endpoint=endpoint),) if len(again) < len(removed) else ()
    return Plan(recipe, platform, (endpoint,), (*removed, action, *again), None, observed.fingerprint(), notes=notes)


def kept_for_rollback(observed: Observed, updated: Mapping[str, str]) -> set[tuple[str, str]]:
    """What the endpoints run or would roll back to: configurations, models, weights and compiled code.

    `updated` has the configuration that an endpoint is about to run, by endpoint.
    """
    endpoints = [item for item in observed.existing if item.kind == "Endpoint"]
    names = {name for item in endpoints for name in _kept_configs(item, updated.get(item.name), observed)}
    configs = [item for item in observed.existing if item.kind == "EndpointConfig" and item.name in names]
    models = {name for config in configs for name in config.state.get("Models", ())}
    prefixes = {
        prefix
        for item in observed.existing
        if item.kind == "Model" and item.name in models
        for prefix in item.state.get("Prefixes", ())
    }
    stored = {(item.kind, item.name) for item in observed.existing if item.state.get("Prefix") in prefixes}
    weights = {name for _, name in stored}
    references = [item.name for item in observed.existing if item.kind == "WeightsReference"]
    return {
        *(("EndpointConfig", config.name) for config in configs),
        *(("Model", name) for name in models),
        *stored,
        *(("WeightsReference", name) for name in references if name.split("/")[0] in weights),
    }


def _kept_configs(endpoint: Existing, coming: str | None, observed: Observed) -> set[str | None]:
    """The configurations that an endpoint still needs, `coming` being the one that it will run, if it is updated."""
    state = endpoint.state
    if coming is None:
        return {state.get("Running"), state.get("Previous")}
    running = observed.get("EndpointConfig", state.get("Running", ""))
    if running is None or CANDIDATE not in running.state.get("Variants", {}):
        return {state.get("Running"), state["EndpointConfigName"]}
    return {ran_before(state.get("Ran"), coming)}  # a trial of a candidate ends
