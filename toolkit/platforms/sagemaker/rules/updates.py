"""Updates of endpoints: what they need besides, what is kept to go back, the way back, and where a new head is tried.

- "If the update would change the instance type for any model that is a target for auto scaling, the update fails"
  (developer guide, endpoint-scaling-update). So autoscaling is removed first, and registered again after.
- "Your new endpoint configuration must have the same variant name as the old endpoint configuration" (developer guide,
  deployment-guardrails-exclusions). So an update that changes the variants goes without guardrails. A variant that
  stays keeps the instances that autoscaling has given it; no document says that AWS refuses that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import PlatformError, UsageError
from toolkit.planning.kinds import Transition
from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.parts import Trial
from toolkit.platforms.sagemaker.keys import aws, aws_rollout
from toolkit.platforms.sagemaker.rules.access import also_reading
from toolkit.platforms.sagemaker.rules.arms import CANDIDATE, VARIANT, endpoint_name, instances
from toolkit.platforms.sagemaker.rules.model_data import addresses
from toolkit.platforms.sagemaker.rules.names import on_aws, ran_before, scalable, variant_of
from toolkit.recipe.recipe import Recipe

_SCALING_KINDS = ("ScalingPolicy", "ScalableTarget")
# Keys of UpdateEndpoint.
_GUARDRAILS = ("DeploymentConfig",)
_RETAINED = ("RetainAllVariantProperties", "ExcludeRetainedVariantProperties")
_NOT_SCALED = "{endpoint} had other variants before, which are not scaled again: deploy the older recipe for that"


@dataclass(frozen=True)
class _Change:
    """The instance types of each variant of an endpoint, before and after an update."""

    endpoint: str
    before: Mapping[str, Sequence[str]]
    after: Mapping[str, Sequence[str]]

    def reason(self, variant: str) -> str:
        """Why autoscaling of the variant stands in the way; empty if it does not."""
        if variant not in self.before or self.before[variant] == self.after.get(variant):
            return ""
        return "its variant's instance types change" if variant in self.after else "its variant goes"


def transition(desired: Sequence[Resource], observed: Observed) -> Transition:
    """What the updates of endpoints need besides. Raises PlatformError for somebody else's autoscaling in the way."""
    configs = {item.name: item for item in desired if item.kind == "EndpointConfig"}
    resources, removed_first, notes = _reading_both(desired, observed), list[Action](), list[str]()
    for index, item in enumerate(desired):
        if item.kind != "Endpoint":
            continue
        wanted = configs[item.request["EndpointConfigName"]]
        change = _change(item.name, instance_types(wanted.request), observed)
        if change is None:
            continue
        removals = _removals(change, observed)
        removed_first += removals
        if change.before.keys() != change.after.keys():
            dropped = _GUARDRAILS if change.before.keys() & change.after.keys() else (*_GUARDRAILS, *_RETAINED)
            kept = {key: value for key, value in item.update.items() if key not in dropped}
            resources[index] = replace(item, update=kept)
            if "DeploymentConfig" in item.update:
                notes.append(
                    f"The variants of {item.name} change from {', '.join(change.before)} to {', '.join(change.after)}: "
                    "SageMaker does that only all at once, without `rollout.update` and without alarms that roll it "
                    "back"
                )
        if removals:
            notes.append(
                f"{item.name} is not scaled while it is updated, because SageMaker refuses this update otherwise. If "
                "the update fails, deploy the older recipe to scale it again"
            )
    return Transition(tuple(resources), tuple(removed_first), tuple(notes))


def _reading_both(desired: Sequence[Resource], observed: Observed) -> list[Resource]:
    """With the policies of endpoints' roles letting them read what a rollback would bring back, too.

    An update that fails half-way, or `toolkit rollback`, starts containers of the models before, under the same role.
    What lies in S3 is encrypted with the key that the policy had then.
    """
    served = {item.name: item.request["EndpointConfigName"] for item in desired if item.kind == "Endpoint"}
    endpoints = [item for item in observed.existing if item.kind == "Endpoint" and item.name in served]
    updated = {item.name: served[item.name] for item in endpoints if item.state.get("Running") != served[item.name]}
    before: dict[str, set[str]] = {}
    for kind, name in kept_for_rollback(observed, updated):
        model = observed.get(kind, name) if kind == "Model" else None
        if model:
            content = model.state["Content"]
            before.setdefault(content["ExecutionRoleArn"], set()).update(addresses(content.get("PrimaryContainer", {})))
    resources = list(desired)
    for role, uris in before.items():
        arn, name = role.partition(":iam:")[0], role.rpartition("/")[2]
        for index, item in enumerate(resources):
            if item.kind == "RolePolicy" and item.request["RoleName"] == name:
                there = observed.get(item.kind, item.name)
                resources[index] = also_reading(item, arn, uris, there.state["PolicyDocument"] if there else None)
    return resources


def require_free_hosts(desired: Sequence[Resource], observed: Observed) -> None:
    """Raise PlatformError if the endpoint of an inference component already serves a model of its own."""
    for item in desired:
        host = item.request["EndpointName"] if item.kind == "InferenceComponent" else None
        endpoint = observed.get("Endpoint", host) if host and host != item.name else None
        config = observed.get("EndpointConfig", endpoint.state["Running"]) if endpoint else None
        if config and config.state["Models"]:
            message = f"Endpoint {host} serves a model of its own, so it cannot host inference components"
            raise PlatformError(message, hint="Set `platform.inference_component.endpoint` to another endpoint.")


def instance_types(config: Mapping[str, object]) -> dict[str, list[str]]:
    """The instance types of each variant of an endpoint configuration, shadow variants too, first choice first."""
    lists = [config.get(key) for key in ("ProductionVariants", "ShadowProductionVariants")]
    variants = [variant for some in lists if isinstance(some, list) for variant in some]
    return {
        variant["VariantName"]: [pool["InstanceType"] for pool in variant.get("InstancePools", [variant])]
        for variant in variants
    }


def _change(endpoint: str, after: Mapping[str, Sequence[str]], observed: Observed) -> _Change | None:
    """The change of the endpoint's variants; None if it does not exist, or runs a configuration that is not ours."""
    existing = observed.get("Endpoint", endpoint)
    running = observed.get("EndpointConfig", existing.state.get("Running", "")) if existing else None
    before = running.state.get("Variants", {}) if running else {}
    return _Change(endpoint, before, after) if before and before != after else None


def _removals(change: _Change, observed: Observed) -> tuple[Action, ...]:
    """Policies first, then their targets."""
    actions: list[Action] = []
    for kind in _SCALING_KINDS:
        for item in observed.existing:
            reason = change.reason(variant_of(change.endpoint, item.name)) if item.kind == kind else ""
            if reason and not item.ours:
                raise _foreign(item)
            if reason:
                actions.append(Action(kind, item.name, "delete", f"{reason}: AWS refuses the update otherwise", {}))
    return tuple(actions)


def _request(item: Existing) -> Mapping[str, Any]:
    """The request that creates an existing target or policy again, with the tags that it had."""
    content = item.state["Content"]
    if item.kind == "ScalableTarget":
        # AWS keeps the tags of `aws:` for itself.
        tags = {key: value for key, value in item.state["Tags"].items() if not key.startswith("aws:")}
        return {**scalable(item.name), **content, "Tags": tags}
    resource_id, _, name = item.name.rpartition("/")
    return {"PolicyName": name, **scalable(resource_id), **content}


def _foreign(item: Existing) -> PlatformError:
    resource_id = item.name.rpartition("/")[0] if item.kind == "ScalingPolicy" else item.name
    names = scalable(resource_id)
    command = (
        "aws application-autoscaling deregister-scalable-target --service-namespace sagemaker "
        f"--resource-id {names['ResourceId']} --scalable-dimension {names['ScalableDimension']}"
    )
    return PlatformError(
        f"{item.kind} {item.name}, which the toolkit did not create, scales a variant that this update changes, and "
        "AWS refuses such an update",
        hint=f"Remove it, and register it again after the update: {command}",
    )


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
        why, hint = "it was never updated", "Deploy the older recipe."
        if previous:
            why, hint = "its last update was rolled back already", "Correct the recipe of that update, and deploy it."
        raise UsageError(f"{endpoint} runs {running} and cannot be rolled back: {why}", hint=hint)
    config = observed.get("EndpointConfig", previous)
    if config is None or not config.ours:
        raise UsageError(
            f"{endpoint} ran {previous} before, which does not exist any more", hint="Deploy the recipe that you want."
        )
    # All at once and without alarms, because the current configuration is the bad one.
    request = {"EndpointName": endpoint, "EndpointConfigName": previous, "RetainAllVariantProperties": True}
    seconds = lookup.platform(platform).endpoint_seconds
    action = Action("Endpoint", endpoint, "update", f"rolls back from {running}", request, seconds)
    change = _change(endpoint, config.state.get("Variants", {}), observed)
    removed = _removals(change, observed) if change else ()
    # With the same settings, for variants that the configuration has.
    again = tuple(
        Action(item.kind, item.name, "create", "again, after the update", _request(item))
        for action in reversed(removed)
        if (item := observed.get(action.kind, action.name))
        and variant_of(endpoint, item.name) in config.state["Variants"]
    )
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


def trial(recipe: Recipe) -> Trial:
    """Where the recipe's endpoint lets a candidate be tried, and what that does to it.

    A production variant with a weight, and no shadow variant: a shadow's answers are dropped, so neither its latency
    nor its acceptance could be measured pair by pair. A request can name a production variant, which "overrides the
    default behavior for the endpoint, which is to distribute the invocation traffic based on the variant weights" (API
    reference, InvokeEndpoint, TargetVariant).
    """
    if reason := _why_own_endpoint(recipe):
        return Trial(f"The new head is tried on an endpoint of its own, because {reason}")
    name, count = endpoint_name(recipe), instances(recipe)
    note = (
        f"The new head is tried as production variant {CANDIDATE} of {name}, one instance beside {VARIANT}: each "
        f"instance answers as many requests, so {CANDIDATE} {100 / (count + 1):.0f} % of them while it is measured"
    )
    if on_aws(recipe):
        note += (
            ". Adding it and removing it are updates of the endpoint, all at once and without alarms that roll back: "
            f"SageMaker starts {count + 1} new instances beside those that serve, and removes these after that"
        )
    return Trial(note, VARIANT, CANDIDATE)


def _why_own_endpoint(recipe: Recipe) -> str:
    if aws(recipe).inference_component:
        return "an inference component has no production variants of its own"
    if aws_rollout(recipe).shadow or aws_rollout(recipe).speculative_percent < 100:
        return "`rollout` has the endpoint share its requests with a variant without speculation"
    return ""
