"""Requests against botocore's model of SageMaker."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.model import ServiceModel

from toolkit.platforms.local.validation import problems


@pytest.fixture(scope="module")
def sagemaker() -> ServiceModel:
    return botocore.session.get_session().get_service_model("sagemaker")


VARIANT = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.g6.xlarge", "InitialInstanceCount": 1}


@pytest.mark.parametrize(
    ("operation", "request_", "problem"),
    [
        ("DeleteModel", {}, "Value 'null' at 'modelName' failed to satisfy constraint: Member must not be null"),
        ("DeleteModel", {"ModelName": 1}, "Value '1' at 'modelName' failed {}: Member must be of type string"),
        ("DeleteModel", {"ModelName": "m", "Force": True}, "Unknown parameter 'force'"),
        (
            "DeleteModel",
            {"ModelName": "-m"},
            "Value '-m' at 'modelName' failed {}: Member must satisfy regular expression",
        ),
        (
            "DeleteModel",
            {"ModelName": "m" * 64},
            "at 'modelName' failed {}: Member must have length less than or equal to 63",
        ),
        ("DeleteModel", "m", "Value 'm' at '' failed {}: Member must be of type structure"),
        (
            "ListModels",
            {"MaxResults": 101},
            "Value '101' at 'maxResults' failed {}: Member must have value less than or equal",
        ),
        (
            "ListModels",
            {"MaxResults": 0},
            "Value '0' at 'maxResults' failed {}: Member must have value greater than or equal",
        ),
        ("ListModels", {"MaxResults": True}, "Value 'True' at 'maxResults' failed {}: Member must be of type integer"),
        ("ListModels", {"SortBy": "Age"}, "Member must satisfy enum value set: [CreationTime, Name]"),
        ("ListModels", {"CreationTimeAfter": "now"}, "Member must be of type timestamp"),
        (
            "CreateEndpointConfig",
            {"EndpointConfigName": "c", "ProductionVariants": []},
            "Value '[]' at 'productionVariants' failed {}: Member must have length greater than or equal to 1",
        ),
        (
            "CreateEndpointConfig",
            {"EndpointConfigName": "c", "ProductionVariants": [VARIANT, VARIANT | {"InitialVariantWeight": -1}]},
            "Value '-1' at 'productionVariants.2.member.initialVariantWeight' failed {}",
        ),
        (
            "CreateModel",
            {"ModelName": "m", "Tags": [{"Key": "tab\there", "Value": ""}]},
            "at 'tags.1.member.key' failed {}: Member must satisfy regular expression pattern",
        ),
        (
            "CreateModel",
            {"ModelName": "m", "PrimaryContainer": {"Environment": {"A": 1}}},
            "at 'primaryContainer.environment.A",
        ),
        (
            "CreateModel",
            {"ModelName": "m", "PrimaryContainer": {"Environment": {"A": "x" * 2000}}},
            "Value '" + "x" * 80 + "...'",
        ),
    ],
)
def test_what_is_refused(sagemaker: ServiceModel, operation: str, request_: Any, problem: str) -> None:
    shape = sagemaker.operation_model(operation).input_shape
    (found,) = problems(request_, shape)
    assert problem.format("to satisfy constraint") in found


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        (
            "CreateEndpointConfig",
            {"EndpointConfigName": "c", "ProductionVariants": [VARIANT | {"InitialVariantWeight": 0}]},
        ),
        ("CreateModel", {"ModelName": "a-1", "Tags": [{"Key": "Größe_1", "Value": "二 + 2 = 4, /:@"[:9]}]}),
        ("CreateModel", {"ModelName": "m", "PrimaryContainer": {"Environment": {"_A1": "line\nline"}}}),
        ("ListModels", {"CreationTimeAfter": 1.7e9, "MaxResults": 100, "SortOrder": "Ascending"}),
    ],
)
def test_what_is_fine(sagemaker: ServiceModel, operation: str, request_: Any) -> None:
    shape = sagemaker.operation_model(operation).input_shape
    assert list(problems(request_, shape)) == []


def test_every_pattern_of_the_operations_here_can_be_read(sagemaker: ServiceModel) -> None:
    """A value for each string of the requests: no pattern may be beyond Python's `re`."""
    for operation in (
        "CreateModel",
        "CreateEndpointConfig",
        "CreateEndpoint",
        "UpdateEndpoint",
        "AddTags",
        "ListEndpoints",
    ):
        shape = sagemaker.operation_model(operation).input_shape
        list(problems(_filled(shape), shape))


def _filled(shape: Any) -> Any:
    if shape.type_name == "structure":
        return {name: _filled(member) for name, member in shape.members.items()}
    if shape.type_name == "list":
        return [_filled(shape.member)]
    if shape.type_name == "map":
        return {"key": _filled(shape.value)}
    return "text" if shape.type_name == "string" else 1
