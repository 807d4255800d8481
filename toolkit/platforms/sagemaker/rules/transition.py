"""What an update of an endpoint needs besides the update: what AWS refuses it with, and guardrails that AWS refuses.

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

from toolkit.errors import PlatformError
from toolkit.planning.kinds import Transition
from toolkit.planning.plan import Action
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.rules.scaling_names import scalable, variant_of

_SCALING_KINDS = ("ScalingPolicy", "ScalableTarget")
# Keys of UpdateEndpoint.
_GUARDRAILS = ("DeploymentConfig",)
_RETAINED = ("RetainAllVariantProperties", "ExcludeRetainedVariantProperties")


@dataclass(frozen=True)
class _Change:
    """The instance types of each variant of an endpoint, before and after an update."""

    endpoint: str
    before: Mapping[str, Sequence[str]]
    after: Mapping[str, Sequence[str]]

    @property
    def renames(self) -> bool:
        return self.before.keys() != self.after.keys()

    @property
    def keeps_one(self) -> bool:
        return bool(self.before.keys() & self.after.keys())

    def reason(self, variant: str) -> str:
        """Why autoscaling of the variant stands in the way; empty if it does not."""
        if variant not in self.before or self.before[variant] == self.after.get(variant):
            return ""
        return "its variant's instance types change" if variant in self.after else "its variant goes"


def transition(desired: Sequence[Resource], observed: Observed) -> Transition:
    """What the updates of endpoints need besides. Raises PlatformError for somebody else's autoscaling in the way."""
    configs = {item.name: item for item in desired if item.kind == "EndpointConfig"}
    found = Transition(tuple(desired))
    for item in desired:
        if item.kind == "Endpoint":
            wanted = configs[item.request["EndpointConfigName"]]
            found = _with_update(found, item, instance_types(wanted.request), observed)
    return found


def require_free_hosts(desired: Sequence[Resource], observed: Observed) -> None:
    """Raise PlatformError if the endpoint of an inference component already serves a model of its own."""
    for item in desired:
        host = item.request["EndpointName"] if item.kind == "InferenceComponent" else None
        endpoint = observed.get("Endpoint", host) if host and host != item.name else None
        config = observed.get("EndpointConfig", endpoint.state["Running"]) if endpoint else None
        if config and config.state["Models"]:
            message = f"Endpoint {host} serves a model of its own, so it cannot host inference components"
            raise PlatformError(message, hint="Set `platform.inference_component.endpoint` to another endpoint.")


def removed_before(endpoint: str, config: Existing, observed: Observed) -> tuple[Action, ...]:
    """Autoscaling that stands in the way of an update to an existing configuration, as actions that remove it."""
    change = _change(endpoint, config.state.get("Variants", {}), observed)
    return _removals(change, observed) if change else ()


def registered_again(
    endpoint: str, removed: Sequence[Action], config: Existing, observed: Observed
) -> tuple[Action, ...]:
    """What registers the removed autoscaling again, with the same settings, for variants that the configuration has."""
    found: list[Action] = []
    for action in reversed(removed):
        item = observed.get(action.kind, action.name)
        if item and variant_of(endpoint, item.name) in config.state["Variants"]:
            found.append(Action(item.kind, item.name, "create", "again, after the update", _request(item)))
    return tuple(found)


def instance_types(config: Mapping[str, object]) -> dict[str, list[str]]:
    """The instance types of each variant of an endpoint configuration, shadow variants too, first choice first."""
    lists = [config.get(key) for key in ("ProductionVariants", "ShadowProductionVariants")]
    variants = [variant for found in lists if isinstance(found, list) for variant in found]
    return {
        variant["VariantName"]: [pool["InstanceType"] for pool in variant.get("InstancePools", [variant])]
        for variant in variants
    }


def _with_update(
    found: Transition, item: Resource, after: Mapping[str, Sequence[str]], observed: Observed
) -> Transition:
    change = _change(item.name, after, observed)
    if change is None:
        return found
    removals, notes, resources = _removals(change, observed), list(found.notes), found.desired
    if change.renames:
        dropped = _GUARDRAILS if change.keeps_one else (*_GUARDRAILS, *_RETAINED)
        plain = replace(item, update={key: value for key, value in item.update.items() if key not in dropped})
        resources = tuple(plain if other is item else other for other in resources)
        if "DeploymentConfig" in item.update:
            notes.append(
                f"The variants of {item.name} change from {', '.join(change.before)} to {', '.join(change.after)}: "
                "SageMaker does that only all at once, without `rollout.update` and without alarms that roll it back"
            )
    if removals:
        notes.append(
            f"{item.name} is not scaled while it is updated, because SageMaker refuses this update otherwise. If the "
            "update fails, deploy the older recipe to scale it again"
        )
    return Transition(resources, (*found.removed_first, *removals), tuple(notes))


def _change(endpoint: str, after: Mapping[str, Sequence[str]], observed: Observed) -> _Change | None:
    """The change of the endpoint's variants; None if it does not exist, or runs a configuration that is not ours."""
    existing = observed.get("Endpoint", endpoint)
    running = observed.get("EndpointConfig", existing.state.get("Running", "")) if existing else None
    before = running.state.get("Variants", {}) if running else {}
    return _Change(endpoint, before, after) if before and before != after else None


def _removals(change: _Change, observed: Observed) -> tuple[Action, ...]:
    """Policies first, then their targets."""
    found: list[Action] = []
    for kind in _SCALING_KINDS:
        for item in observed.existing:
            reason = change.reason(variant_of(change.endpoint, item.name)) if item.kind == kind else ""
            if reason and not item.ours:
                raise _foreign(item)
            if reason:
                found.append(Action(kind, item.name, "delete", f"{reason}: AWS refuses the update otherwise", {}))
    return tuple(found)


def _request(item: Existing) -> Mapping[str, Any]:
    """The request that creates an existing target or policy again, with the tags that it had."""
    content = item.state["Content"]
    if item.kind == "ScalableTarget":
        return {**scalable(item.name), **content, "Tags": _settable(item.state["Tags"])}
    resource_id, _, name = item.name.rpartition("/")
    return {"PolicyName": name, **scalable(resource_id), **content}


def _settable(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that a request may set: AWS keeps those of `aws:` for itself."""
    return {key: value for key, value in tags.items() if not key.startswith("aws:")}


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
