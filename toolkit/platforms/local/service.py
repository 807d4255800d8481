"""SageMaker's control plane for real-time endpoints, on this machine.

It answers like AWS, in AWS's words where they are known, and differs in three points, on purpose: an image must be one
that this machine can run, a variant has one instance (its type only has to exist), and what would change the answers
to requests but is not built here is refused instead of ignored (`_REFUSED`). What concerns network, encryption,
drivers, routing or metrics is accepted and has no effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.model import ServiceModel

from toolkit.platforms.local import modeldata
from toolkit.platforms.local.aws import ServiceError, arn
from toolkit.platforms.local.container import entrypoint, runnable_images
from toolkit.platforms.local.deployment import Variant
from toolkit.platforms.local.endpoints import Endpoints
from toolkit.platforms.local.resources import Answer, Request, Resources, Tags, page
from toolkit.platforms.local.validation import problems

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_STARTUP_TIMEOUT_S = 480  # SageMaker's, where ContainerStartupHealthCheckTimeoutInSeconds is not given

_REFUSED: Mapping[str, tuple[str, ...]] = {
    "CreateModel": ("Containers", "InferenceExecutionConfig"),
    "PrimaryContainer": ("ModelDataUrl", "ModelPackageName", "MultiModelConfig"),
    "CreateEndpointConfig": (
        "AsyncInferenceConfig",
        "DataCaptureConfig",
        "ExplainerConfig",
        "ShadowProductionVariants",
    ),
    "ProductionVariant": ("ServerlessConfig",),
}


class SageMaker:
    """The service. `answer()` may be called from any thread."""

    def __init__(self, endpoints: Endpoints, containers: Path, s3: Callable[[], S3Client]) -> None:
        self._endpoints = endpoints
        self._containers = containers
        self._s3 = s3
        self._models = Resources("Model", "model", "model")
        self._configs = Resources("EndpointConfig", "endpoint-config", "endpoint configuration")
        self._tags = Tags()
        self._lock = threading.Lock()
        self._operations: Mapping[str, Callable[[Request], Answer]] = {
            "CreateModel": self._create_model,
            "DescribeModel": self._models.describe,
            "ListModels": self._models.list,
            "DeleteModel": self._delete_model,
            "CreateEndpointConfig": self._create_endpoint_config,
            "DescribeEndpointConfig": self._configs.describe,
            "ListEndpointConfigs": self._configs.list,
            "DeleteEndpointConfig": self._delete_endpoint_config,
            "CreateEndpoint": self._create_endpoint,
            "UpdateEndpoint": self._update_endpoint,
            "DescribeEndpoint": lambda request: self._endpoints.describe(request["EndpointName"]),
            "ListEndpoints": lambda request: page("Endpoint", self._endpoints.summaries(), request),
            "DeleteEndpoint": self._delete_endpoint,
            "AddTags": self._tags.add,
            "ListTags": self._tags.list,
            "DeleteTags": self._tags.delete,
        }

    def answer(self, operation: str, request: Request) -> Answer:
        """What the operation returns; raises ServiceError when it is refused."""
        if operation not in self._operations:
            raise ServiceError(
                f"The local platform has no {operation}. It has: {', '.join(self._operations)}.",
                code="UnknownOperationException",
            )
        shape = self._service_model.operation_model(operation).input_shape
        assert shape is not None
        if found := list(problems(request, shape)):
            raise ServiceError(f"{len(found)} validation error{'s'[: len(found) > 1]} detected: {'; '.join(found)}")
        with self._lock:
            return self._operations[operation](request)

    @cached_property
    def _service_model(self) -> ServiceModel:
        return botocore.session.get_session().get_service_model("sagemaker")

    def _create_model(self, request: Request) -> Answer:
        self._models.must_be_new(request)
        _refuse("CreateModel", request)
        if "PrimaryContainer" not in request or "ExecutionRoleArn" not in request:
            raise ServiceError("CreateModel needs PrimaryContainer and ExecutionRoleArn.")
        container = request["PrimaryContainer"]
        _refuse("PrimaryContainer", container)
        image = container.get("Image", "")
        if entrypoint(image, self._containers) is None:
            runnable = ", ".join(runnable_images(self._containers))
            raise ServiceError(f"Requested image {image} not found. This machine runs {runnable}.")
        for uri in _model_data(container).values():
            if not modeldata.exists(self._s3(), uri):
                raise ServiceError(f"Could not find model data at {uri}.")
        model = self._models.add(request)
        self._tags.new(model, request)
        return {"ModelArn": model}

    def _delete_model(self, request: Request) -> Answer:
        self._tags.forget(arn("model", request["ModelName"]))
        return self._models.delete(request)

    def _create_endpoint_config(self, request: Request) -> Answer:
        self._configs.must_be_new(request)
        _refuse("CreateEndpointConfig", request)
        variants = request["ProductionVariants"]
        if len({variant["VariantName"] for variant in variants}) < len(variants):
            raise ServiceError("The VariantName of each production variant must be unique.")
        for variant in variants:
            _refuse("ProductionVariant", variant)
            if "ModelName" not in variant:
                raise ServiceError("The local platform has no inference components: a variant needs a ModelName.")
            if "InitialInstanceCount" not in variant or not ("InstanceType" in variant or "InstancePools" in variant):
                raise ServiceError(
                    f"Variant {variant['VariantName']} needs InitialInstanceCount, and InstanceType or InstancePools."
                )
            self._models.describe(variant)
        config = self._configs.add(request)
        self._tags.new(config, request)
        return {"EndpointConfigArn": config}

    def _delete_endpoint_config(self, request: Request) -> Answer:
        self._tags.forget(arn("endpoint-config", request["EndpointConfigName"]))
        return self._configs.delete(request)

    def _create_endpoint(self, request: Request) -> Answer:
        name = request["EndpointName"]
        self._endpoints.create(name, request["EndpointConfigName"], self._variants(request))
        self._tags.new(arn("endpoint", name), request)
        return {"EndpointArn": arn("endpoint", name)}

    def _update_endpoint(self, request: Request) -> Answer:
        name = request["EndpointName"]
        self._endpoints.update(name, request["EndpointConfigName"], self._variants(request))
        return {"EndpointArn": arn("endpoint", name)}

    def _delete_endpoint(self, request: Request) -> Answer:
        self._endpoints.delete(request["EndpointName"])
        self._tags.forget(arn("endpoint", request["EndpointName"]))
        return {}

    def _variants(self, request: Request) -> list[Variant]:
        """What the endpoint configuration and its models say now; later changes do not matter to the endpoint."""
        return [self._variant(variant) for variant in self._configs.describe(request)["ProductionVariants"]]

    def _variant(self, variant: dict[str, Any]) -> Variant:
        if variant["InitialInstanceCount"] > 1:
            raise ServiceError(
                f"The local platform runs 1 instance of a variant; {variant['VariantName']} wants "
                f"{variant['InitialInstanceCount']}. Set InitialInstanceCount to 1.",
                code="ResourceLimitExceeded",
            )
        container = self._models.describe(variant)["PrimaryContainer"]
        program = entrypoint(container["Image"], self._containers)
        assert program is not None, "CreateModel has looked"
        return Variant(
            name=variant["VariantName"],
            image=container["Image"],
            program=program,
            environment=container.get("Environment", {}),
            model_data=_model_data(container),
            weight=variant.get("InitialVariantWeight", 1.0),
            startup_timeout_s=variant.get("ContainerStartupHealthCheckTimeoutInSeconds", _STARTUP_TIMEOUT_S),
        )


def _refuse(what: str, request: Request) -> None:
    if found := [key for key in _REFUSED[what] if key in request]:
        raise ServiceError(f"The local platform does not do {', '.join(found)} in {what}. Leave it out here.")


def _model_data(container: dict[str, Any]) -> dict[str, str]:
    """S3 prefix by folder below /opt/ml."""
    sources = {"model": container["ModelDataSource"]} if "ModelDataSource" in container else {}
    for source in container.get("AdditionalModelDataSources", []):
        sources[f"additional-model-data-sources/{source['ChannelName']}"] = source
    return {folder: _prefix(source) for folder, source in sources.items()}


def _prefix(source: dict[str, Any]) -> str:
    data = source.get("S3DataSource", {})
    uri: str = data.get("S3Uri", "")
    if data.get("S3DataType") != "S3Prefix" or data.get("CompressionType") != "None":
        raise ServiceError("The local platform takes model data as S3DataType S3Prefix with CompressionType None only.")
    if not uri.startswith("s3://") or not uri.endswith("/"):
        raise ServiceError(f"The S3Uri of an S3Prefix must start with s3:// and end with a forward slash: {uri!r}.")
    return uri
