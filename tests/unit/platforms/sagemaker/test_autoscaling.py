"""Autoscaling: which targets and policies a recipe gets, requests to the letter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_kinds import SCALING, halved, wanted
from botocore.model import StringShape
from botocore.validate import validate_parameters
from pairs import recipe_with, write_hub_pair

from toolkit.loading import load
from toolkit.planning.names import tag_map
from toolkit.planning.resources import Resource
from toolkit.platforms.sagemaker.keys import ComponentSection
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection

AWS = botocore.session.get_session().get_service_model("application-autoscaling")
OPERATIONS: Mapping[str, str] = {"ScalableTarget": "RegisterScalableTarget", "ScalingPolicy": "PutScalingPolicy"}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


def scaled(recipe: Recipe, component: bool = False, **scaling: Any) -> Recipe:
    return recipe_with(
        recipe,
        scaling=ScalingSection(**{"min_instances": 1, "max_instances": 4, **scaling}),
        inference_component=ComponentSection() if component else None,
    )


def named(resources: list[Resource]) -> list[tuple[str, str]]:
    return [(item.kind, item.name) for item in resources]


def policy(recipe: Recipe, number: int = 0) -> Mapping[str, Any]:
    return [item for item in wanted(recipe, *SCALING) if item.kind == "ScalingPolicy"][number].request


@pytest.mark.parametrize("instances", [1, 3])
def test_a_fixed_number_of_instances_is_not_scaled(recipe: Recipe, instances: int) -> None:
    assert wanted(scaled(recipe, min_instances=instances, max_instances=instances), *SCALING) == []


def test_instances_of_a_variant(recipe: Recipe) -> None:
    target, tracking = wanted(scaled(recipe), *SCALING)
    variant = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/hub/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    assert (target.kind, target.name) == ("ScalableTarget", "endpoint/hub/variant/AllTraffic")
    assert target.request == {**variant, "MinCapacity": 1, "MaxCapacity": 4, "Tags": tag_map(scaled(recipe))}
    assert (tracking.kind, tracking.name) == ("ScalingPolicy", "endpoint/hub/variant/AllTraffic/concurrency")
    assert tracking.request == {
        **variant,
        "PolicyName": "concurrency",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": 64.0,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
            },
            "ScaleOutCooldown": 60,
            "ScaleInCooldown": 600,
            "DisableScaleIn": False,
        },
    }


def test_copies_of_an_inference_component(recipe: Recipe) -> None:
    target, tracking = wanted(scaled(recipe, component=True), *SCALING)
    assert target.name == "inference-component/hub"
    assert target.request["ScalableDimension"] == "sagemaker:inference-component:DesiredCopyCount"
    metric = tracking.request["TargetTrackingScalingPolicyConfiguration"]["PredefinedMetricSpecification"]
    assert metric == {
        "PredefinedMetricType": "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
    }


def test_the_variants_of_an_experiment_are_scaled_each_for_itself(recipe: Recipe) -> None:
    assert named(wanted(halved(scaled(recipe)), *SCALING)) == [
        ("ScalableTarget", "endpoint/hub/variant/speculative"),
        ("ScalableTarget", "endpoint/hub/variant/baseline"),
        ("ScalingPolicy", "endpoint/hub/variant/speculative/concurrency"),
        ("ScalingPolicy", "endpoint/hub/variant/baseline/concurrency"),
    ]


@pytest.mark.parametrize(
    ("scaling", "key", "value"),
    [
        ({"requests_per_instance": 5}, "TargetValue", 5.0),
        ({"scale_in": False}, "DisableScaleIn", True),
        ({"scale_out_seconds": 30}, "ScaleOutCooldown", 30),
        ({"scale_in_seconds": 900}, "ScaleInCooldown", 900),
    ],
)
def test_what_the_recipe_says_of_scaling(recipe: Recipe, scaling: dict[str, Any], key: str, value: object) -> None:
    made = policy(scaled(recipe, **scaling))
    assert made["TargetTrackingScalingPolicyConfiguration"][key] == value


def test_an_engine_that_decodes_one_request_at_a_time(recipe: Recipe) -> None:
    one = replace(recipe, engine=recipe.engine.edit(max_num_seqs=1))
    assert policy(scaled(one))["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 1.0


@pytest.mark.parametrize(("fewest", "copies"), [(0, 1), (1, 1), (2, 2)])
def test_a_component_starts_with_a_copy_even_where_it_may_have_none_later(
    recipe: Recipe, fewest: int, copies: int
) -> None:
    (component,) = wanted(scaled(recipe, component=True, min_instances=fewest), "InferenceComponent")
    assert component.request["RuntimeConfig"] == {"CopyCount": copies}


def test_a_component_without_copies_is_woken_by_the_first_request_that_fails(recipe: Recipe) -> None:
    idle = scaled(recipe, component=True, min_instances=0)
    assert named(wanted(idle, *SCALING)) == [
        ("ScalableTarget", "inference-component/hub"),
        ("ScalingPolicy", "inference-component/hub/concurrency"),
        ("ScalingPolicy", "inference-component/hub/from-zero"),
    ]
    from_zero = policy(idle, 1)
    assert from_zero["PolicyType"] == "StepScaling"
    assert from_zero["StepScalingPolicyConfiguration"]["StepAdjustments"] == [
        {"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}
    ]
    alarm = from_zero["Alarm"]
    assert (alarm["AlarmName"], alarm["MetricName"]) == ("toolkit-hub-from-zero", "NoCapacityInvocationFailures")
    assert alarm["Dimensions"] == [{"Name": "InferenceComponentName", "Value": "hub"}]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanOrEqualToThreshold", 1.0)


def test_a_copy_has_time_to_start_before_the_next_is_added(recipe: Recipe) -> None:
    from_zero = policy(scaled(recipe, component=True, min_instances=0), 1)
    assert from_zero["StepScalingPolicyConfiguration"]["Cooldown"] >= 600


def test_a_target_that_exists_gets_no_tags(recipe: Recipe) -> None:
    target = wanted(scaled(recipe), *SCALING)[0]
    assert {**target.update, "Tags": target.request["Tags"]} == target.request


@pytest.mark.parametrize("component", [False, True])
def test_requests_are_such_as_aws_takes(recipe: Recipe, component: bool) -> None:
    for item in wanted(scaled(recipe, component=component, min_instances=int(not component)), *SCALING):
        request = {key: value for key, value in item.request.items() if key != "Alarm"}
        shape = AWS.operation_model(OPERATIONS[item.kind]).input_shape
        assert shape is not None
        validate_parameters(request, shape)
        assert request["ScalableDimension"] in values("ScalableDimension")
        tracking = request.get("TargetTrackingScalingPolicyConfiguration", {}).get("PredefinedMetricSpecification")
        assert tracking is None or tracking["PredefinedMetricType"] in values("MetricType")


def values(enumeration: str) -> list[str]:
    shape = AWS.shape_for(enumeration)
    assert isinstance(shape, StringShape)
    return list(shape.enum)
