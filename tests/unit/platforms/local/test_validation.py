"""Requests against botocore's model of SageMaker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape

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


@pytest.mark.parametrize("service", ["sagemaker", "sagemaker-runtime", "application-autoscaling"])
def test_every_pattern_of_the_operations_here_can_be_read(service: str) -> None:
    """No pattern is beyond Python's `re`: a control character is refused by each that does not take anything."""
    model = botocore.session.get_session().get_service_model(service)
    shapes = [model.operation_model(name).input_shape for name in OPERATIONS[service]]
    patterns = {string.metadata["pattern"]: string for shape in shapes for string in strings(shape)}
    taken = {pattern for pattern, string in patterns.items() if not list(problems("a\x01" * 4, string))}
    assert taken <= TAKE_ANYTHING
    assert set(patterns) > taken


OPERATIONS = {
    "sagemaker": (
        "CreateModel",
        "CreateEndpointConfig",
        "CreateEndpoint",
        "UpdateEndpoint",
        "AddTags",
        "ListEndpoints",
    ),
    "sagemaker-runtime": ["InvokeEndpoint", "InvokeEndpointWithResponseStream"],
    "application-autoscaling": ["RegisterScalableTarget", "PutScalingPolicy"],
}
TAKE_ANYTHING = {".*", r"[\S\s]*", r"[\s\S]+", r"[\S]+", r"(?!\s*$).+", r"\p{ASCII}*"}


def strings(shape: Shape) -> Iterator[StringShape]:
    """The strings with a pattern in what is sent."""
    if isinstance(shape, StructureShape):
        members = [*shape.members.values()]
    elif isinstance(shape, ListShape):
        members = [shape.member]
    else:
        members = [shape.key, shape.value] if isinstance(shape, MapShape) else []
    for member in members:
        yield from strings(member)
    if isinstance(shape, StringShape) and "pattern" in shape.metadata:
        yield shape
