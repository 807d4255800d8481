"""Application Auto Scaling for SageMaker: targets, policies, and the alarms that it makes for them.

moto's knows no inference components and takes targets that do not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from standin_account import AccountRules
from standin_components import in_service
from standin_http import Call, page

from toolkit.platforms.local import validation
from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError, now
from toolkit.platforms.local.service import SageMaker

_DIMENSIONS = {
    "endpoint": "sagemaker:variant:DesiredInstanceCount",
    "inference-component": "sagemaker:inference-component:DesiredCopyCount",
}
_CONFIGURATIONS = {
    "TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration",
    "StepScaling": "StepScalingPolicyConfiguration",
}
_SERVICE_ROLE = (
    f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
    "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)

Place = tuple[str, str]
"""Region and resource id."""


class Scaling:
    """All regions' targets and policies. Messages are unverified, but for those of missing and of existing targets."""

    def __init__(self, account: AccountRules, sagemaker: Callable[[str], SageMaker]) -> None:
        self._account, self._sagemaker = account, sagemaker
        self._targets: dict[Place, dict[str, Any]] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._policies: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._scheduled: dict[tuple[str, str, str], dict[str, Any]] = {}
        operations: Mapping[str, Callable[[Call], object]] = {
            "RegisterScalableTarget": self._register,
            "DescribeScalableTargets": self._describe_targets,
            "DeregisterScalableTarget": self._deregister,
            "PutScalingPolicy": self._put_policy,
            "DescribeScalingPolicies": self._describe_policies,
            "DeleteScalingPolicy": self._delete_policy,
            "PutScheduledAction": self._schedule,
            "DescribeScheduledActions": self._describe_schedule,
            "DeleteScheduledAction": self._unschedule,
            "DescribeScalingActivities": lambda call: {"ScalingActivities": []},
            "ListTagsForResource": lambda call: {"Tags": self._tags_of(call)},
            "TagResource": self._tag,
            "UntagResource": self._untag,
        }
        self.operations = {f"application-autoscaling:{name}": answer for name, answer in operations.items()}

    def leftovers(self) -> list[str]:
        """What exists."""
        return [
            *(f"application-autoscaling target {resource}" for _, resource in self._targets),
            *(f"application-autoscaling policy {resource}/{name}" for _, resource, name in self._policies),
            *(f"application-autoscaling schedule {resource}/{name}" for _, resource, name in self._scheduled),
        ]

    def has_policy(self, call: Call) -> bool:
        """Whether the policy that PutScalingPolicy names is there."""
        return (*_place(call), call.request["PolicyName"]) in self._policies

    def other_policies(self, call: Call) -> list[dict[str, Any]]:
        """The policies of the same target that PutScalingPolicy does not name."""
        name = call.request["PolicyName"]
        return [policy for key, policy in self._policies.items() if key[:2] == _place(call) and key[2] != name]

    def must_be_deletable(self, call: Call) -> None:
        """Raise ServiceError when DeleteEndpoint may not deregister targets, which it does in the caller's name."""
        if self._of_endpoint(call) and "application-autoscaling:DeregisterScalableTarget" in self._account.denied:
            raise ServiceError(  # AWS's words
                "An Application AutoScaling scalable target exists for a variant being deleted, and the IAM identity "
                "used to invoke DeleteEndpoint does not have application-autoscaling:DeregisterScalableTarget "
                "permission to deregister the scalable target."
            )

    def must_be_updatable(self, call: Call) -> None:
        """Raise ServiceError when UpdateEndpoint would remove a scaled variant, or change its instance types.

        Developer guide, "Update endpoints that use auto scaling", and hashicorp/terraform-provider-aws#14337; wording
        unverified.
        """
        sagemaker = self._sagemaker(call.region)
        before = _types(sagemaker, sagemaker.endpoints.changeable(call.request["EndpointName"]).spec.config)
        after = _types(sagemaker, call.request["EndpointConfigName"])
        scaled = [place[1].rpartition("/")[2] for place in self._of_endpoint(call)]
        if changed := [name for name in scaled if before.get(name) != after.get(name)]:
            raise ServiceError(
                f'The variant(s) "[{", ".join(changed)}]" must be deregistered as scalable targets with AutoScaling '
                "before they can be removed or have their instance type updated."
            )

    def endpoint_is_deleted(self, call: Call) -> None:
        """The targets of its variants go with it."""
        for place in self._of_endpoint(call):
            self._forget(place)

    def _of_endpoint(self, call: Call) -> list[Place]:
        prefix = f"endpoint/{call.request['EndpointName']}/"
        return [place for place in self._targets if place[0] == call.region and place[1].startswith(prefix)]

    def _register(self, call: Call) -> object:
        request, place = call.request, _place(call)
        known = self._targets.get(place)
        if known is None:
            self._must_exist(call)
            if "MinCapacity" not in request or "MaxCapacity" not in request:
                raise ServiceError("MinCapacity and MaxCapacity are required to register a new scalable target.")
        elif request.get("Tags"):
            raise ServiceError(  # AWS's words
                "The scalable target that you tried to tag already exists. To update tags on an existing scalable "
                "target, use the TagResource API."
            )
        target = {**(known or {"CreationTime": now()}), **{key: request[key] for key in request if key != "Tags"}}
        if target["MinCapacity"] > target["MaxCapacity"]:
            raise ServiceError("Maximum capacity cannot be less than minimum capacity")
        target["RoleARN"] = _SERVICE_ROLE
        target["ScalableTargetARN"] = _arn(
            call, f"scalable-target/{hashlib.sha256(place[1].encode()).hexdigest()[:32]}"
        )
        self._targets[place] = target
        self._tags.setdefault(target["ScalableTargetARN"], {}).update(request.get("Tags", {}))
        return {"ScalableTargetARN": target["ScalableTargetARN"]}

    def _must_exist(self, call: Call) -> None:
        """The endpoint's variant, or the inference component, is in service."""
        request = call.request
        kind, *names = request["ResourceId"].split("/")
        if (request["ServiceNamespace"], request["ScalableDimension"]) != ("sagemaker", _DIMENSIONS.get(kind)):
            raise ServiceError("Unsupported service namespace, resource type or scalable dimension")
        sagemaker = self._sagemaker(call.region)
        if kind == "endpoint":
            endpoint, _, variant = names
            if variant not in {known.name for known in in_service(sagemaker.endpoints, endpoint).variants}:
                raise ServiceError(f'Could not find variant "{variant}" of endpoint "{endpoint}".')
        else:
            component = sagemaker.answer("DescribeInferenceComponent", {"InferenceComponentName": names[0]})
            if component["InferenceComponentStatus"] != "InService":
                raise ServiceError(f"Inference component {names[0]} is not in service.")

    def _deregister(self, call: Call) -> object:
        self._must_be_registered(call, "found")
        self._forget(_place(call))
        return {}

    def _forget(self, place: Place) -> None:
        self._tags.pop(self._targets.pop(place)["ScalableTargetARN"], None)
        for key in [key for key in self._policies if key[:2] == place]:
            self._forget_policy(key)
        for key in [key for key in self._scheduled if key[:2] == place]:
            del self._scheduled[key]

    def _put_policy(self, call: Call) -> object:
        request, place = call.request, _place(call)
        self._must_be_registered(call, "registered")
        key = (*place, request["PolicyName"])
        kind = request.get("PolicyType", self._policies.get(key, {}).get("PolicyType", "StepScaling"))
        if _CONFIGURATIONS.get(kind, "") not in request:
            raise ServiceError(f"A policy of type {kind} needs a {_CONFIGURATIONS.get(kind)}.")
        alarms = [self._alarm(call, side) for side in ("High", "Low")] if kind == "TargetTrackingScaling" else []
        arn = _arn(call, f"scalingPolicy:1:resource/sagemaker/{place[1]}:policyName/{request['PolicyName']}")
        created = {"CreationTime": self._policies.get(key, {}).get("CreationTime", now())}
        self._policies[key] = {**request, **created, "PolicyType": kind, "PolicyARN": arn, "Alarms": alarms}
        return {"PolicyARN": arn, "Alarms": alarms}

    def _alarm(self, call: Call, side: str) -> dict[str, str]:
        """One of the two alarms by which a target is tracked; AWS makes and removes them."""
        name = f"TargetTracking-{call.request['ResourceId']}-{call.request['PolicyName']}-Alarm{side}"
        cloudwatch_backends[ACCOUNT][call.region].put_metric_alarm(
            name=name,
            namespace="AWS/SageMaker",
            metric_name="tracked",
            comparison_operator=f"{'GreaterThan' if side == 'High' else 'LessThan'}Threshold",
            evaluation_periods=3,
            period=60,
            threshold=0.0,
            statistic="Average",
            description="DO NOT EDIT OR DELETE. For TargetTrackingScaling policy.",
            dimensions=[],
            alarm_actions=[],
        )
        region = Region(call.region)
        arn = f"arn:{region.partition}:cloudwatch:{region.name}:{ACCOUNT}:alarm:{name}"
        return {"AlarmName": name, "AlarmARN": arn}

    def _delete_policy(self, call: Call) -> object:
        key = (*_place(call), call.request["PolicyName"])
        if key not in self._policies:
            raise ServiceError(f"No scaling policy found for {_words(call)}", "ObjectNotFoundException")
        self._forget_policy(key)
        return {}

    def _forget_policy(self, key: tuple[str, str, str]) -> None:
        alarms = [alarm["AlarmName"] for alarm in self._policies.pop(key)["Alarms"]]
        cloudwatch_backends[ACCOUNT][key[0]].delete_alarms(alarms)

    def _schedule(self, call: Call) -> object:
        self._must_be_registered(call, "registered")
        key = (*_place(call), call.request["ScheduledActionName"])
        kept = self._scheduled.get(key, {"CreationTime": now()})
        name = f"scheduledAction:1:resource/sagemaker/{key[1]}:scheduledActionName/{key[2]}"
        self._scheduled[key] = {**kept, **call.request, "ScheduledActionARN": _arn(call, name)}
        return {}

    def _describe_schedule(self, call: Call) -> object:
        resource_id = call.request.get("ResourceId")
        found = [
            action
            for (region, resource, _), action in sorted(self._scheduled.items())
            if region == call.region and resource_id in (None, resource)
        ]
        return page("ScheduledActions", found, call, most=50)

    def _unschedule(self, call: Call) -> object:
        key = (*_place(call), call.request["ScheduledActionName"])
        if key not in self._scheduled:
            raise ServiceError(f"No scheduled action found for {_words(call)}", "ObjectNotFoundException")
        del self._scheduled[key]
        return {}

    def _describe_targets(self, call: Call) -> object:
        wanted = call.request.get("ResourceIds")
        found = [
            target
            for (region, resource), target in sorted(self._targets.items())
            if region == call.region and (not wanted or resource in wanted)
        ]
        return page("ScalableTargets", found, call, most=50)

    def _describe_policies(self, call: Call) -> object:
        names, resource_id = call.request.get("PolicyNames"), call.request.get("ResourceId")
        found = [
            policy
            for (region, resource, name), policy in sorted(self._policies.items())
            if region == call.region and resource_id in (None, resource) and (not names or name in names)
        ]
        return page("ScalingPolicies", found, call, most=50)

    def _must_be_registered(self, call: Call, word: str) -> None:
        if _place(call) not in self._targets:
            raise ServiceError(f"No scalable target {word} for {_words(call)}", "ObjectNotFoundException")

    def _tags_of(self, call: Call) -> dict[str, str]:
        arn = call.request["ResourceARN"]
        if arn not in self._tags:
            raise ServiceError(f"The specified resource doesn't exist: {arn}", "ResourceNotFoundException")
        return self._tags[arn]

    def _tag(self, call: Call) -> object:
        self._tags_of(call).update(call.request["Tags"])
        return {}

    def _untag(self, call: Call) -> object:
        for key in call.request["TagKeys"]:
            self._tags_of(call).pop(key, None)
        return {}


def _types(sagemaker: SageMaker, config: str) -> dict[str, list[str]]:
    """Instance types of each variant of an endpoint configuration."""
    described = sagemaker.answer("DescribeEndpointConfig", {"EndpointConfigName": config})
    return {
        variant["VariantName"]: [] if "ServerlessConfig" in variant else validation.instance_types(variant)
        for variant in validation.variants(described)
    }


def _place(call: Call) -> Place:
    return call.region, call.request["ResourceId"]


def _arn(call: Call, name: str) -> str:
    region = Region(call.region)
    return f"arn:{region.partition}:application-autoscaling:{region.name}:{ACCOUNT}:{name}"


def _words(call: Call) -> str:
    request = call.request
    return (
        f"service namespace: {request['ServiceNamespace']}, resource ID: {request['ResourceId']}, "
        f"scalable dimension: {request['ScalableDimension']}"
    )
