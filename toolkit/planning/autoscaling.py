"""Autoscaling as requests to Application Auto Scaling: instances of a variant, copies of an inference component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.planning.hosting import BASELINE, SPECULATIVE, VARIANT, endpoint_name
from toolkit.planning.metrics import INVOCATIONS
from toolkit.planning.names import tag_map, tags
from toolkit.planning.resources import Resource
from toolkit.recipe.resolve import Recipe

TRACKING, WAKING = "concurrency", "from-zero"
"""Names of the policies."""

_COMPONENT = "inference-component/"
# A container takes minutes to start, and all the while requests fail: a shorter pause would add a copy for each minute.
_WAKING_SECONDS = 900


def autoscaling(recipe: Recipe, variants: Sequence[str]) -> list[Resource]:
    """Scalable targets and their policies; none unless `scaling.max_instances` is above `scaling.min_instances`.

    The policy tracks the requests in flight per container, which CloudWatch gets every 10 seconds. Requests per minute
    say little where one answer has ten tokens and another thousands.
    """
    if recipe.scaling.max_instances <= recipe.scaling.min_instances:
        return []
    if recipe.platform.component is None:
        ids = [f"endpoint/{endpoint_name(recipe)}/variant/{variant}" for variant in variants]
    else:
        ids = [f"{_COMPONENT}{recipe.name}"]
    waking = [_waking(recipe, name) for name in ids if recipe.scaling.min_instances == 0]
    return [*(_target(recipe, name) for name in ids), *(_tracking(recipe, name) for name in ids), *waking]


def target_requests(recipe: Recipe) -> int:
    """Requests in flight per container that autoscaling aims at: the recipe's, or half of `engine.max_num_seqs`.

    Above max_num_seqs requests wait. Another container takes minutes to start, and traffic may double meanwhile; and
    what speculation gains shrinks as the batch grows.
    """
    return recipe.scaling.requests_per_instance or max(1, recipe.engine.max_num_seqs // 2)


def resource_ids(name: str) -> list[str]:
    """Every scalable target that an endpoint or an inference component of ours may have."""
    return [*(f"endpoint/{name}/variant/{variant}" for variant in (VARIANT, SPECULATIVE, BASELINE)), _COMPONENT + name]


def scalable(resource_id: str) -> dict[str, Any]:
    """How Application Auto Scaling's requests name a target."""
    dimension = "inference-component:DesiredCopyCount" if _is_component(resource_id) else "variant:DesiredInstanceCount"
    return {"ServiceNamespace": "sagemaker", "ResourceId": resource_id, "ScalableDimension": f"sagemaker:{dimension}"}


def waking_alarm(resource_id: str) -> str:
    """The alarm that starts the policy `from-zero`."""
    return f"toolkit-{resource_id.removeprefix(_COMPONENT)}-{WAKING}"


def _is_component(resource_id: str) -> bool:
    return resource_id.startswith(_COMPONENT)


def _target(recipe: Recipe, resource_id: str) -> Resource:
    limits = {"MinCapacity": recipe.scaling.min_instances, "MaxCapacity": recipe.scaling.max_instances}
    update = {**scalable(resource_id), **limits}
    # Tags are for a new target only.
    return Resource("ScalableTarget", resource_id, {**update, "Tags": tag_map(recipe)}, update)


def _tracking(recipe: Recipe, resource_id: str) -> Resource:
    metric = (
        "InferenceComponentConcurrentRequestsPerCopy"
        if recipe.platform.component
        else "VariantConcurrentRequestsPerModel"
    )
    configuration = {
        "TargetValue": float(target_requests(recipe)),
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


def _waking(recipe: Recipe, resource_id: str) -> Resource:
    """The first copy after none: what is tracked per copy says nothing without copies.

    As in AWS's developer guide, "Scale an endpoint to zero instances", but for the threshold (the first failed request
    counts) and the pause. The request has one key that is not the API's: `Alarm`, a request of its own (PutMetricAlarm)
    but for its action, the policy's ARN, which is not known before.
    """
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": _WAKING_SECONDS,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
    }
    alarm = {
        "AlarmName": waking_alarm(resource_id),
        "AlarmDescription": f"{recipe.name} has no copy and was asked: makes the first one.",
        "Namespace": INVOCATIONS,
        "MetricName": "NoCapacityInvocationFailures",
        "Dimensions": [{"Name": "InferenceComponentName", "Value": recipe.name}],
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "notBreaching",
        "Tags": tags(recipe),
    }
    request = {
        "PolicyName": WAKING,
        **scalable(resource_id),
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": configuration,
        "Alarm": alarm,
    }
    return Resource("ScalingPolicy", f"{resource_id}/{WAKING}", request)
