"""SageMaker's control plane for real-time endpoints, on this machine.

It answers like AWS, in AWS's words where they are known. What runs the models is a `ModelHost`: containers on this
machine (`container_host.py`), or a script in tests. What would change the answers to requests but is not built in a
host is refused instead of ignored (`ModelHost.refused`). What concerns network, encryption, drivers, routing or metrics
is accepted and has no effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel

from toolkit.platforms.local import validation
from toolkit.platforms.local.aws import Region, ServiceError
from toolkit.platforms.local.endpoints import Endpoints
from toolkit.platforms.local.host import Answer, EndpointSpec, ModelHost, Placement, Request, Variant
from toolkit.platforms.local.resources import Resources, Tags, must_be_allowed, page

_LARGEST_ENVIRONMENT = 32 * 1024  # bytes of all keys and values, by the API reference of ContainerDefinition


class SageMaker:
    """The service in one region. `answer()` may be called from any thread; `operations` are what it answers."""

    def __init__(self, region: Region, host: ModelHost) -> None:
        self.region = region
        self.endpoints = Endpoints(region, host)
        self.tags = Tags()
        self._host = host
        self.models = Resources(region, self.tags, "Model", "model", "model")
        self._configs = Resources(region, self.tags, "EndpointConfig", "endpoint-config", "endpoint configuration")
        self._lock = threading.Lock()
        self.operations: dict[str, Callable[[Request], Answer]] = {
            "CreateModel": self._create_model,
            "DescribeModel": self.models.describe,
            "ListModels": self.models.list,
            "DeleteModel": self.models.delete,
            "CreateEndpointConfig": self._create_endpoint_config,
            "DescribeEndpointConfig": self._configs.describe,
            "ListEndpointConfigs": self._configs.list,
            "DeleteEndpointConfig": self._configs.delete,
            "CreateEndpoint": self._create_endpoint,
            "UpdateEndpoint": self._update_endpoint,
            "UpdateEndpointWeightsAndCapacities": self._update_weights,
            "DescribeEndpoint": lambda request: self.endpoints.describe(request["EndpointName"]),
            "ListEndpoints": lambda request: page("Endpoint", self.endpoints.summaries(), request),
            "DeleteEndpoint": self._delete_endpoint,
            "AddTags": self.tags.add,
            "ListTags": self.tags.list,
            "DeleteTags": self.tags.delete,
            # There are no training jobs and no inference components here, but they are asked for.
            "ListTrainingJobs": lambda _: {"TrainingJobSummaries": []},
            "ListInferenceComponents": lambda _: {"InferenceComponents": []},
            "DescribeInferenceComponent": self._no_component,
        }

    def answer(self, operation: str, request: Request) -> Answer:
        """What the operation returns; raises ServiceError when it is refused."""
        if operation not in self.operations:
            raise ServiceError(
                f"The local platform has no {operation}. It has: {', '.join(self.operations)}.",
                code="UnknownOperationException",
            )
        shape = _service_model().operation_model(operation).input_shape
        assert shape is not None
        if wrong := list(validation.problems(request, shape)):
            raise ServiceError(f"{len(wrong)} validation error{'s'[: len(wrong) > 1]} detected: {'; '.join(wrong)}")
        must_be_allowed(request.get("Tags", []))
        with self._lock:
            return self.operations[operation](request)

    def _create_model(self, request: Request) -> Answer:
        self.models.must_be_new(request)
        self._refuse("CreateModel", request)
        if not (containers := containers_of(request)) or "ExecutionRoleArn" not in request:
            raise ServiceError("CreateModel needs PrimaryContainer, or Containers, and ExecutionRoleArn.")
        for container in containers:
            self._refuse("PrimaryContainer", container)
            environment = container.get("Environment", {})
            if sum(len(f"{key}{value}".encode()) for key, value in environment.items()) > _LARGEST_ENVIRONMENT:
                raise ServiceError(f"The keys and values of Environment together exceed {_LARGEST_ENVIRONMENT} bytes.")
            _must_be_folders(container)
        self._host.examine("CreateModel", request)
        return self.models.add(request)

    def _create_endpoint_config(self, request: Request) -> Answer:
        self._configs.must_be_new(request)
        self._refuse("CreateEndpointConfig", request)
        for variant in validation.variants(request):
            self._refuse("ProductionVariant", variant)
        self.must_be_possible(request)
        for variant in validation.variants(request):
            for name in sorted(validation.model_names(variant)):
                self.models.describe({"ModelName": name})
        self._host.examine("CreateEndpointConfig", request)
        return self._configs.add(request)

    def _create_endpoint(self, request: Request) -> Answer:
        name = request["EndpointName"]
        self._examine_deployment("CreateEndpoint", request)
        self.endpoints.create(self._spec(request))
        self.tags.new(self.region.arn("endpoint", name), request)
        return {"EndpointArn": self.region.arn("endpoint", name)}

    def _update_endpoint(self, request: Request) -> Answer:
        current = self.endpoints.changeable(request["EndpointName"]).spec.config
        self._configs.describe({"EndpointConfigName": current})
        if request["EndpointConfigName"] == current:
            raise ServiceError(f"Cannot update endpoint with the endpoint configuration that it has, {current}.")
        self._examine_deployment("UpdateEndpoint", request)
        spec = self._spec(request)
        if "DeploymentConfig" in request:
            _must_have_variants(spec, self.endpoints.changeable(request["EndpointName"]).spec)
        self.endpoints.update(spec, request)
        return {"EndpointArn": self.region.arn("endpoint", request["EndpointName"])}

    def _update_weights(self, request: Request) -> Answer:
        self._host.examine("UpdateEndpointWeightsAndCapacities", request)
        self.endpoints.rescale(request["EndpointName"], request["DesiredWeightsAndCapacities"])
        return {"EndpointArn": self.region.arn("endpoint", request["EndpointName"])}

    def _delete_endpoint(self, request: Request) -> Answer:
        name = request["EndpointName"]
        self.endpoints.delete(name, lambda: self.tags.forget(self.region.arn("endpoint", name)))
        return {}

    def _no_component(self, request: Request) -> Answer:
        arn = self.region.arn("inference-component", request["InferenceComponentName"])
        raise ServiceError(f'Could not find inference component "{arn}".')

    def _examine_deployment(self, operation: str, request: Request) -> None:
        if problem := next(validation.guardrail_problems(request.get("DeploymentConfig", {})), None):
            raise ServiceError(problem)
        self._host.examine(operation, request)

    def _spec(self, request: Request) -> EndpointSpec:
        """What the endpoint configuration and its models say now; later changes do not matter to the endpoint."""
        config = self._configs.describe(request)
        shadows = config.get("ShadowProductionVariants", [])
        return EndpointSpec(
            endpoint=request["EndpointName"],
            config=request["EndpointConfigName"],
            variants=tuple(self.variant(item, item in shadows) for item in validation.variants(config)),
            data_capture=config.get("DataCaptureConfig"),
        )

    def must_be_possible(self, config: Request) -> None:
        """Raise ServiceError for an endpoint configuration that AWS would refuse, or that cannot run here."""
        if not all("ModelName" in variant for variant in validation.variants(config)):
            raise ServiceError("The local platform has no inference components: a variant needs a ModelName.")
        if problem := next(validation.config_problems(config), None):
            raise ServiceError(problem)

    def variant(self, asked: Mapping[str, Any], is_shadow: bool) -> Variant:
        """A variant of an endpoint configuration, with the containers of its models."""
        pools = sorted(asked.get("InstancePools", [asked]), key=lambda pool: int(pool.get("Priority", 0)))
        return Variant(
            name=asked["VariantName"],
            asked=asked,
            placements=tuple(
                Placement(pool["InstanceType"], self._container(pool.get("ModelNameOverride") or asked["ModelName"]))
                for pool in pools
            ),
            weight=asked.get("InitialVariantWeight", 1.0),
            count=asked["InitialInstanceCount"],
            is_shadow=is_shadow,
        )

    def _container(self, model: str) -> Mapping[str, Any]:
        return containers_of(self.models.describe({"ModelName": model}))[0]

    def _refuse(self, what: str, request: Request) -> None:
        if refused := [key for key in self._host.refused.get(what, ()) if key in request]:
            raise ServiceError(f"The local platform does not do {', '.join(refused)} in {what}. Leave it out here.")


@cache
def _service_model() -> ServiceModel:
    return botocore.session.get_session().get_service_model("sagemaker")


def containers_of(model: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The containers of a model, as CreateModel and DescribeModel have them; a pipeline has several."""
    return [model["PrimaryContainer"]] if "PrimaryContainer" in model else model.get("Containers", [])


def _must_have_variants(new: EndpointSpec, old: EndpointSpec) -> None:
    """Developer guide, "Exclusions" of deployment guardrails; wording unverified."""
    if {variant.name for variant in new.variants} != {variant.name for variant in old.variants}:
        raise ServiceError(
            "With DeploymentConfig the new endpoint configuration must have the same variant names as the old one."
        )


def _must_be_folders(container: Mapping[str, Any]) -> None:
    for source in [container.get("ModelDataSource", {}), *container.get("AdditionalModelDataSources", [])]:
        data = source.get("S3DataSource", {})
        uri: str = data.get("S3Uri", "")
        if data.get("S3DataType") == "S3Prefix" and not (uri.startswith("s3://") and uri.endswith("/")):
            raise ServiceError(f"The S3Uri of an S3Prefix must start with s3:// and end with a forward slash: {uri!r}.")
