"""Autoscaling: instances of a variant, copies of an inference component, by the requests in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.planning.names import ENDPOINT_TAG, tag_map
from toolkit.planning.resources import Existing, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.kinds.base import ApiCall, ContentKind, Look, Work, key_values
from toolkit.platforms.sagemaker.kinds.monitoring import AlarmKind, no_copy, owner_of_alarm, read_alarms
from toolkit.platforms.sagemaker.rules.arms import endpoint_name, variants
from toolkit.platforms.sagemaker.rules.names import (
    COMPONENT,
    FROM_ZERO,
    TRACKING,
    resource_ids,
    scalable,
    scale_from_zero_alarm,
    tags,
)
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

# A container takes minutes to start, while requests keep failing: a shorter cooldown would add a copy every minute.
_FROM_ZERO_COOLDOWN = 900

ANSWERED_ARN = "<PolicyARN of PutScalingPolicy's answer>"


class ScalableTargetKind(ContentKind):
    """Deleting it also deletes its policies."""

    kind = "ScalableTarget"
    goes_on_pause = True
    needs_service = True
    resource_type = "AWS::ApplicationAutoScaling::ScalableTarget"
    creates = ("application-autoscaling", "RegisterScalableTarget")
    content_keys = ("MinCapacity", "MaxCapacity")

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [_target(deployment.recipe, name) for name in _variants_to_scale(deployment.recipe)]

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        for target, its_tags in look.once(_targets, name):
            found = self.described(target["ResourceId"], its_tags.get(ENDPOINT_TAG), target)
            yield replace(found, state={**found.state, "Tags": its_tags})

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("application-autoscaling", "DeregisterScalableTarget", scalable(name)),)

    def tags(self, clients: Clients, name: str) -> Mapping[str, str]:
        client = clients.application_autoscaling
        answer = client.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[name])
        (target,) = answer["ScalableTargets"]
        return client.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"]

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        return {**request, "Tags": key_values(request.get("Tags", {}))}

    def depends_on(self, item: Resource) -> Iterator[tuple[str, str]]:
        what, name = item.request["ResourceId"].split("/")[:2]
        yield ("Endpoint" if what == "endpoint" else "InferenceComponent"), name


class ScalingPolicyKind(ContentKind):
    """Includes the alarm that triggers it."""

    kind = "ScalingPolicy"
    goes_on_pause = True
    needs_service = True
    resource_type = "AWS::ApplicationAutoScaling::ScalingPolicy"
    content_keys = (
        "PolicyType",
        "TargetTrackingScalingPolicyConfiguration",
        "StepScalingPolicyConfiguration",
        "Alarm",
    )

    def desired(self, deployment: Deployment) -> list[Resource]:
        recipe = deployment.recipe
        ids = _variants_to_scale(recipe)
        from_zero = [_scale_from_zero(recipe, name) for name in ids if recipe.scaling.min_instances == 0]
        return [*(_tracking(recipe, name) for name in ids), *from_zero]

    def content(self, request: Mapping[str, Any]) -> dict[str, Any]:
        content = super().content(request)
        if "Alarm" in content:
            content["Alarm"] = AlarmKind(on_aws=self.on_aws).content(content["Alarm"])
        return content

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        client, alarms = look.clients.application_autoscaling, look.once(read_alarms, name)
        names = {resource_id: scale_from_zero_alarm(resource_id) for resource_id in resource_ids(name)}
        from_zero = {resource_id: alarms[alarm] for resource_id, alarm in names.items() if alarm in alarms}
        found: list[str] = []
        for target, its_tags in look.once(_targets, name):
            owner, resource_id = its_tags.get(ENDPOINT_TAG), target["ResourceId"]
            pages = client.get_paginator("describe_scaling_policies").paginate(
                ServiceNamespace="sagemaker", ResourceId=resource_id
            )
            for policy in [policy for page in pages for policy in page["ScalingPolicies"]]:
                alarm = from_zero.get(resource_id, {})
                # An alarm that triggers another policy counts as missing.
                starts_it = policy["PolicyARN"] in alarm.get("AlarmActions", ())
                found.append(f"{resource_id}/{policy['PolicyName']}")
                yield self.described(found[-1], owner, {**policy, "Alarm": alarm} if starts_it else policy)
        for resource_id, alarm in from_zero.items():
            policy_name = f"{resource_id}/{FROM_ZERO}"
            if policy_name not in found:  # its endpoint was deleted by somebody else
                yield self.described(policy_name, owner_of_alarm(look.clients, alarm), {"Alarm": alarm})

    def creating(self, request: Any) -> tuple[ApiCall, ...]:
        """Before the first call is made, the ARN that it answers stands as `ANSWERED_ARN`."""
        keys = {key: value for key, value in request.items() if key != "Alarm"}
        policy = ApiCall("application-autoscaling", "PutScalingPolicy", keys)
        if "Alarm" not in request:
            return (policy,)
        return policy, ApiCall("cloudwatch", "PutMetricAlarm", {**request["Alarm"], "AlarmActions": [ANSWERED_ARN]})

    def create(self, work: Work, request: Any) -> None:
        policy, *alarms = self.creating(request)
        arn = policy.send(work.clients)["PolicyARN"]
        for alarm in alarms:
            replace(alarm, request={**alarm.request, "AlarmActions": [arn]}).send(work.clients)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        """The alarm first: without its policy it could not be found again."""
        resource_id, _, policy = name.rpartition("/")
        own = {"PolicyName": policy, **scalable(resource_id)}
        alarm = ApiCall("cloudwatch", "DeleteAlarms", {"AlarmNames": [scale_from_zero_alarm(resource_id)]})
        removed = ApiCall("application-autoscaling", "DeleteScalingPolicy", own)
        return (alarm, removed) if policy == FROM_ZERO else (removed,)

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        *alarms, policy = self.deleting(name, request)
        for alarm in alarms:
            unless_missing(clients, partial(alarm.send, clients))
        policy.send(clients)

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        return {key: value for key, value in request.items() if key != "Alarm"}

    def companions(self, item: Resource, logical_id: str) -> dict[str, Any]:
        if "Alarm" not in item.request:
            return {}
        properties = {**item.request["Alarm"], "AlarmActions": [{"Ref": logical_id}]}
        return {f"{logical_id}Alarm": {"Type": AlarmKind.resource_type, "Properties": properties}}

    def depends_on(self, item: Resource) -> Iterator[tuple[str, str]]:
        yield "ScalableTarget", item.request["ResourceId"]


def _variants_to_scale(recipe: Recipe) -> list[str]:
    """Resource ids that scale; empty unless `scaling.max_instances` is above `scaling.min_instances`."""
    if recipe.scaling.max_instances <= recipe.scaling.min_instances:
        return []
    if aws(recipe).inference_component is None:
        return [f"endpoint/{endpoint_name(recipe)}/variant/{variant}" for variant in variants(recipe)]
    return [f"{COMPONENT}{recipe.name}"]


def _targets(look: Look, endpoint: str) -> list[tuple[Mapping[str, Any], Mapping[str, str]]]:
    """Existing targets, with their tags."""
    client, ids = look.clients.application_autoscaling, resource_ids(endpoint)
    pages = client.get_paginator("describe_scalable_targets").paginate(ServiceNamespace="sagemaker", ResourceIds=ids)
    targets = [target for page in pages for target in page["ScalableTargets"]]
    tags = [client.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"] for target in targets]
    return list(zip(targets, tags, strict=True))


def _target(recipe: Recipe, resource_id: str) -> Resource:
    limits = {"MinCapacity": recipe.scaling.min_instances, "MaxCapacity": recipe.scaling.max_instances}
    update = {**scalable(resource_id), **limits}
    # Tags are only accepted for a new target.
    return Resource("ScalableTarget", resource_id, {**update, "Tags": tag_map(recipe)}, update)


def _tracking(recipe: Recipe, resource_id: str) -> Resource:
    """Target tracking of the requests in flight per container, which CloudWatch gets every 10 seconds.

    Requests per minute mean little if one answer has ten tokens and another thousands.
    """
    metric = (
        "InferenceComponentConcurrentRequestsPerCopy"
        if aws(recipe).inference_component
        else "VariantConcurrentRequestsPerModel"
    )
    configuration = {
        "TargetValue": float(recipe.target_requests),
        "PredefinedMetricSpecification": {"PredefinedMetricType": f"SageMaker{metric}HighResolution"},
        "ScaleOutCooldown": recipe.scaling.scale_out_seconds,
        "ScaleInCooldown": recipe.scaling.scale_in_seconds,
        "DisableScaleIn": not recipe.scaling.scale_in,
    }
    request = {
        "PolicyName": TRACKING,
        **scalable(resource_id),
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": configuration,
    }
    return Resource("ScalingPolicy", f"{resource_id}/{TRACKING}", request)


def _scale_from_zero(recipe: Recipe, resource_id: str) -> Resource:
    """Step scaling from zero to one copy, because metrics per copy do not exist without copies.

    As in AWS's developer guide, "Scale an endpoint to zero instances", except for the threshold (the first failed
    request counts) and the cooldown. The key `Alarm` is not the API's: it is a PutMetricAlarm request without its
    action, which is the ARN of the policy.
    """
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": _FROM_ZERO_COOLDOWN,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
    }
    alarm = {
        "AlarmName": scale_from_zero_alarm(resource_id),
        "AlarmDescription": f"{recipe.name} has no copy and got a request: starts the first copy.",
        **no_copy(recipe),
        "TreatMissingData": "notBreaching",
        "Tags": tags(recipe),
    }
    request = {
        "PolicyName": FROM_ZERO,
        **scalable(resource_id),
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": configuration,
        "Alarm": alarm,
    }
    return Resource("ScalingPolicy", f"{resource_id}/{FROM_ZERO}", request)
