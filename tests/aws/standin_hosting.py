"""What SageMaker does as execution roles while an endpoint or an inference component starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from standin_components import ComponentSpec, SageMakerWithComponents, is_for_components
from standin_iam import Iam
from standin_startup import AsRole

from toolkit.platforms.local import validation
from toolkit.platforms.local.aws import Region, log_group
from toolkit.platforms.local.host import EndpointSpec
from toolkit.platforms.local.service import containers_of


class Hosting:
    """Asks the roles of one region, by what SageMaker keeps of models and configurations."""

    def __init__(self, iam: Iam, region: Region, service: SageMakerWithComponents) -> None:
        self._iam, self._region, self._service = iam, region, service

    def endpoint(self, spec: EndpointSpec) -> tuple[str, bool]:
        """Why its containers do not start, empty if they do, and whether they write logs."""
        config = self._described("DescribeEndpointConfig", {"EndpointConfigName": spec.config})
        roles = [config["ExecutionRoleArn"]] if "ExecutionRoleArn" in config else []
        named = [(variant, name) for variant in validation.variants(config) for name in _models(variant)]
        why, writes = [], True
        for variant, name in named:
            model = self._described("DescribeModel", {"ModelName": name})
            role = self._as(model["ExecutionRoleArn"])
            roles.append(model["ExecutionRoleArn"])
            why += self._starts(role, containers_of(model), model.get("VpcConfig"))
            writes &= role.write_log(log_group(spec.endpoint), f"{variant['VariantName']}/i-1")
        for arn in dict.fromkeys(roles):
            role = self._as(arn)
            role.publish()
            why.append(role.join(config.get("VpcConfig")))
            # Documented for the volumes of jobs; whether it is the role or the caller for endpoints, is not.
            why.append(role.use_key(config.get("KmsKeyId"), "CreateGrant"))
            self._captures(role, config.get("DataCaptureConfig"), (variant.name for variant in spec.variants))
            if is_for_components(spec):
                writes &= role.write_log(log_group(spec.endpoint), "AllTraffic/i-1")
        return next(filter(None, why), ""), writes

    def component(self, spec: ComponentSpec) -> tuple[str, bool]:
        """The same of a component, for whose image and log it may be its model's role or its endpoint's."""
        asked = spec.asked.get("Specification", {})
        if "ModelName" not in asked:
            return "", True
        model = self._described("DescribeModel", {"ModelName": asked["ModelName"]})
        endpoint = self._described("DescribeEndpoint", {"EndpointName": spec.endpoint})
        named = {"EndpointConfigName": endpoint["EndpointConfigName"]}
        config = self._described("DescribeEndpointConfig", named)
        containers = containers_of(model)
        own, host = self._as(model["ExecutionRoleArn"]), self._as(config["ExecutionRoleArn"])
        group, stream = f"/aws/sagemaker/InferenceComponents/{spec.name}", f"{spec.variant}/i-1"
        why = self._starts(own, containers, model.get("VpcConfig"))
        why += [host.pull(container["Image"]) for container in containers if "Image" in container]
        own.publish()
        why.append(own.use_key(config.get("KmsKeyId"), "CreateGrant"))
        self._captures(own, config.get("DataCaptureConfig"), [spec.variant])
        writes = [role.write_log(group, stream) for role in (own, host)]
        return next(filter(None, why), ""), all(writes)

    def _starts(
        self, role: AsRole, containers: Sequence[Mapping[str, Any]], vpc: Mapping[str, Any] | None
    ) -> list[str]:
        reasons = [role.pull(container["Image"]) for container in containers if "Image" in container]
        return [*reasons, role.join(vpc), role.download(uri for one in containers for uri in model_data(one))]

    def _captures(self, role: AsRole, capture: Mapping[str, Any] | None, variants: Iterable[str]) -> None:
        if capture and capture.get("EnableCapture"):
            role.write(capture["DestinationS3Uri"], *(f"{name}/2026/11/26/10/1.jsonl" for name in variants))
            role.use_key(capture.get("KmsKeyId"), "GenerateDataKey")

    def _described(self, operation: str, request: dict[str, Any]) -> Mapping[str, Any]:
        """Without the service's lock, which whoever starts containers holds."""
        return self._service.operations[operation](request)

    def _as(self, role: str) -> AsRole:
        return AsRole(self._iam, self._region, role)


def model_data(container: Mapping[str, Any]) -> list[str]:
    """All S3 addresses of a container."""
    sources = [container.get("ModelDataSource", {}), *container.get("AdditionalModelDataSources", [])]
    structured = [source["S3DataSource"]["S3Uri"] for source in sources if "S3DataSource" in source]
    return [*structured, *(container[key] for key in ("ModelDataUrl", "ArtifactUrl") if key in container)]


def _models(variant: Mapping[str, Any]) -> Iterable[str]:
    return sorted(validation.model_names(variant))
