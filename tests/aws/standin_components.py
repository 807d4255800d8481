"""SageMaker with inference components: models that share the instances of one endpoint.

The local platform has none. Here endpoint configurations may come without models, and components bring them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from component_rules import specification_problems

from toolkit.platforms.local import validation
from toolkit.platforms.local.aws import Region, ServiceError
from toolkit.platforms.local.endpoints import Endpoints, Lifecycle
from toolkit.platforms.local.host import Answer, Deployment, EndpointSpec, ModelHost, Placement, Request, Variant
from toolkit.platforms.local.resources import Resources, Tags, page
from toolkit.platforms.local.service import SageMaker, containers_of

SERVERLESS = "serverless"
"""In place of an instance type."""

NO_CONTAINER: Mapping[str, Any] = {}
"""Of a variant whose models are brought by inference components."""


@dataclass(frozen=True)
class ComponentSpec:
    """What an inference component shall be. `asked` is CreateInferenceComponent's request, with later changes."""

    name: str
    endpoint: str
    variant: str
    asked: Mapping[str, Any]
    copies: int


class ComponentHost(ModelHost, Protocol):
    """Runs the models of components too."""

    def component(self, spec: ComponentSpec) -> Deployment:
        """Containers that will serve an inference component. Raises ServiceError."""


def container_of(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first container of a model, nothing where there is no model."""
    return next(iter(containers_of(model)), {})


def is_for_components(spec: EndpointSpec) -> bool:
    """Whether inference components bring the models."""
    return not any(placement.container for variant in spec.variants for placement in variant.placements)


def in_service(endpoints: Endpoints, name: str) -> EndpointSpec:
    """What an endpoint serves. Raises ServiceError when there is none, or nothing."""
    described = endpoints.describe(name)
    if (status := described["EndpointStatus"]) != "InService":
        raise ServiceError(f'Endpoint "{described["EndpointArn"]}" is not in service: it is {status}.')
    return endpoints.settled(name).spec


class SageMakerWithComponents(SageMaker):
    """The local platform's service, with inference components on endpoints without models."""

    def __init__(self, region: Region, host: ComponentHost) -> None:
        super().__init__(region, host)
        self._components = Components(region, host, self.endpoints, self.models, self.tags)
        self._delete_endpoint_without_components = self.operations["DeleteEndpoint"]
        self.operations |= {**self._components.operations, "DeleteEndpoint": self._delete_endpoint_if_unused}

    def must_be_possible(self, config: Request) -> None:
        """Raise ServiceError for an endpoint configuration that AWS would refuse."""
        on_instances = [v for v in config["ProductionVariants"] if "ServerlessConfig" not in v]
        if not on_instances:
            return
        config = {**config, "ProductionVariants": on_instances}
        with_model = [bool(validation.model_names(variant)) for variant in validation.variants(config)]
        if any(with_model) and not all(with_model):
            raise ServiceError("Either every variant has a ModelName, or none has, for inference components.")
        problems = validation.config_problems if all(with_model) else _problems
        if problem := next(problems(config), None):
            raise ServiceError(problem)

    def variant(self, asked: Mapping[str, Any], is_shadow: bool) -> Variant:
        """A variant of an endpoint configuration; it has containers if it names models."""
        if "ServerlessConfig" in asked:
            return super().variant({**asked, "InstanceType": SERVERLESS, "InitialInstanceCount": 0}, is_shadow)
        if validation.model_names(asked):
            return super().variant(asked, is_shadow)
        return Variant(
            name=asked["VariantName"],
            asked=asked,
            placements=tuple(Placement(name, NO_CONTAINER) for name in validation.instance_types(asked)),
            weight=asked.get("InitialVariantWeight", 1.0),
            count=asked.get("InitialInstanceCount", asked.get("ManagedInstanceScaling", {}).get("MinInstanceCount", 1)),
            is_shadow=is_shadow,
        )

    def _delete_endpoint_if_unused(self, request: Request) -> Answer:
        name = request["EndpointName"]
        self.endpoints.settled(name)
        if components := self._components.on(name):
            raise ServiceError(f"Endpoint {name} still has inference components: {', '.join(components)}.")
        return self._delete_endpoint_without_components(request)


def _problems(config: Request) -> Iterator[str]:
    """What AWS would refuse of an endpoint configuration without models."""
    yield from validation.list_problems(config)
    if "ExecutionRoleArn" not in config:
        yield "An endpoint configuration for inference components, without ModelName, needs an ExecutionRoleArn."
    for variant in validation.variants(config):
        name, scaling = variant["VariantName"], variant.get("ManagedInstanceScaling", {})
        if "InitialInstanceCount" not in variant and not scaling:
            yield f"Variant {name} needs InitialInstanceCount, and InstanceType or InstancePools."
        lowest = scaling.get("MinInstanceCount", 0)
        if lowest > scaling.get("MaxInstanceCount", lowest):
            yield f"MinInstanceCount of variant {name} is larger than MaxInstanceCount."
        yield from validation.variant_problems(variant)


Component = Lifecycle


class Components:
    """All inference components of one region. `operations` answer requests, from any thread."""

    def __init__(
        self, region: Region, host: ComponentHost, endpoints: Endpoints, models: Resources, tags: Tags
    ) -> None:
        self._region, self._host, self._tags = region, host, tags
        self._endpoints, self._models = endpoints, models
        self._by_name: dict[str, Component] = {}
        self._lock = threading.RLock()
        self.operations: Mapping[str, Callable[[Request], Answer]] = {
            "CreateInferenceComponent": self._create,
            "DescribeInferenceComponent": self._describe,
            "ListInferenceComponents": self._list,
            "UpdateInferenceComponent": self._update,
            "UpdateInferenceComponentRuntimeConfig": self._update_copies,
            "DeleteInferenceComponent": self._delete,
        }

    def on(self, endpoint: str) -> list[str]:
        """Names of the components that an endpoint has."""
        with self._lock:
            return [name for name, component in self._by_name.items() if component.spec.endpoint == endpoint]

    def _create(self, request: Request) -> Answer:
        name, arn = request["InferenceComponentName"], self._arn(request["InferenceComponentName"])
        with self._lock:
            if name in self._by_name:
                raise ServiceError(f'Cannot create already existing inference component "{arn}".')
            variant = self._variant(request)
            if not _specifications(request):
                raise ServiceError("An inference component needs a Specification.")
            self._examine("CreateInferenceComponent", request)
            copies = request.get("RuntimeConfig", {}).get("CopyCount", 1)
            spec = ComponentSpec(name, request["EndpointName"], variant, request, copies)
            deployment = self._host.component(spec)
            component = self._by_name[name] = Component(spec, self._lock)
            self._tags.new(arn, request)
            component.deploy(spec, deployment)
        return {"InferenceComponentArn": arn}

    def _update(self, request: Request) -> Answer:
        with self._lock:
            component = self._settled(request)
            self._examine("UpdateInferenceComponent", request)
            if problem := next(
                validation.guardrail_problems(request.get("DeploymentConfig", {}), component.spec.copies), None
            ):
                raise ServiceError(problem)
            asked = {**component.spec.asked, **request}
            copies = request.get("RuntimeConfig", {}).get("CopyCount", component.spec.copies)
            spec = replace(component.spec, asked=asked, copies=copies)
            component.deploy(spec, self._host.component(spec))
        return {"InferenceComponentArn": self._arn(component.spec.name)}

    def _update_copies(self, request: Request) -> Answer:
        with self._lock:
            component = self._settled(request)
            if component.status == "Failed":
                raise ServiceError(f'Cannot update failed inference component "{self._arn(component.spec.name)}".')
            component.rescale(replace(component.spec, copies=request["DesiredRuntimeConfig"]["CopyCount"]))
        return {"InferenceComponentArn": self._arn(component.spec.name)}

    def _delete(self, request: Request) -> Answer:
        with self._lock:
            component = self._settled(request)
            name = component.spec.name
            for other in self._by_name.values():
                if name in map(_base_name, _specifications(other.spec.asked)):
                    raise ServiceError(f"{name} is the base of {other.spec.name}; delete that first.")
            component.delete(lambda: self._forget(name))
        return {}

    def _describe(self, request: Request) -> Answer:
        with self._lock:
            component = self._find(request)
            spec = component.spec
            runtime = {
                "DesiredCopyCount": (component.pending or component).spec.copies,
                "CurrentCopyCount": component.live.spec.copies if component.live else 0,
            }
            answer = {**self._summary(component), "RuntimeConfig": runtime}
            if "Specification" in spec.asked:
                answer["Specification"] = _described(spec.asked["Specification"])
            if "Specifications" in spec.asked:
                answer["Specifications"] = [_described(item) for item in spec.asked["Specifications"]]
            if "DeploymentConfig" in spec.asked:
                answer["LastDeploymentConfig"] = spec.asked["DeploymentConfig"]
            if component.failure:
                answer["FailureReason"] = component.failure
        return answer

    def _list(self, request: Request) -> Answer:
        with self._lock:
            found = [
                self._summary(component)
                for component in self._by_name.values()
                if request.get("EndpointNameEquals") in (None, component.spec.endpoint)
                and request.get("VariantNameEquals") in (None, component.spec.variant)
            ]
        return page("InferenceComponent", found, request)

    def _variant(self, request: Request) -> str:
        """The variant that it goes to: the one asked for, or its base component's."""
        endpoint = in_service(self._endpoints, request["EndpointName"])
        if not is_for_components(endpoint):
            raise ServiceError(
                f"Endpoint {endpoint.endpoint} cannot have inference components: its variants have a ModelName."
            )
        base = next((self._base(item, endpoint) for item in _specifications(request) if _base_name(item)), None)
        wanted: str = request.get("VariantName", base.variant if base else "")
        if wanted not in [variant.name for variant in endpoint.variants]:
            raise ServiceError(f'Could not find variant "{wanted}" of endpoint "{endpoint.endpoint}".')
        return wanted

    def _base(self, specification: Mapping[str, Any], endpoint: EndpointSpec) -> ComponentSpec:
        """The component that an adapter belongs to."""
        base = self._find({"InferenceComponentName": _base_name(specification)})
        if base.spec.endpoint != endpoint.endpoint or base.status != "InService":
            raise ServiceError(f"The base {base.spec.name} is not in service on endpoint {endpoint.endpoint}.")
        return base.spec

    def _examine(self, operation: str, request: Request) -> None:
        """Raise ServiceError when a specification contradicts itself, or names what does not exist."""
        if "Specification" in request and "Specifications" in request:
            raise ServiceError("Give Specification or Specifications, not both.")
        if problem := next(specification_problems(request), None):
            raise ServiceError(problem)
        for specification in _specifications(request):
            if _base_name(specification):
                if "ComputeResourceRequirements" in specification:
                    raise ServiceError("An adapter, which has a BaseInferenceComponentName, uses its base's resources.")
                continue
            if ("ModelName" in specification) == ("Container" in specification):
                raise ServiceError("The specification of an inference component needs either ModelName or Container.")
            if "ComputeResourceRequirements" not in specification:
                raise ServiceError("The specification of an inference component needs ComputeResourceRequirements.")
            if "ModelName" in specification:
                self._models.describe(dict(specification))
        self._host.examine(operation, request)

    def _find(self, request: Request) -> Component:
        name = request["InferenceComponentName"]
        if name not in self._by_name:
            raise ServiceError(f'Could not find inference component "{self._arn(name)}".')
        return self._by_name[name]

    def _settled(self, request: Request) -> Component:
        component = self._find(request)
        if component.in_progress:
            raise ServiceError(f'Cannot update in-progress inference component "{self._arn(component.spec.name)}".')
        return component

    def _forget(self, name: str) -> None:
        with self._lock:
            self._by_name.pop(name, None)
            self._tags.forget(self._arn(name))

    def _arn(self, name: str) -> str:
        return self._region.arn("inference-component", name)

    def _summary(self, component: Component) -> Answer:
        spec, status = component.spec, component.status
        return {
            "InferenceComponentName": spec.name,
            "InferenceComponentArn": self._arn(spec.name),
            "EndpointName": spec.endpoint,
            "EndpointArn": self._region.arn("endpoint", spec.endpoint),
            "VariantName": spec.variant,
            # Components have no status for that.
            "InferenceComponentStatus": "Updating" if status == "RollingBack" else status,
            **component.times(),
        }


def _specifications(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    one = [request["Specification"]] if "Specification" in request else []
    return one or list(request.get("Specifications", []))


def _base_name(specification: Mapping[str, Any]) -> str:
    name: str = specification.get("BaseInferenceComponentName", "")
    return name


def _described(specification: Mapping[str, Any]) -> Answer:
    """A specification as Describe shows it, which names the image that was deployed."""
    container = specification.get("Container")
    if container is None:
        return dict(specification)
    shown = {key: value for key, value in container.items() if key != "Image"}
    if "Image" in container:
        shown["DeployedImage"] = {"SpecifiedImage": container["Image"], "ResolvedImage": container["Image"]}
    return {**specification, "Container": shown}
