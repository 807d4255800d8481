"""The model host of the local platform: every variant is one container on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.catalog import lookup
from toolkit.errors import PlatformError
from toolkit.platforms.image import ON_THIS_MACHINE
from toolkit.platforms.local import engine, machine, modeldata
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.command import Starter, entrypoint, process, runnable_images
from toolkit.platforms.local.deployment import ContainerDeployment, Model
from toolkit.platforms.local.folders import endpoint_folder
from toolkit.platforms.local.host import EndpointSpec, Request, StartQueue, Variant
from toolkit.platforms.local.spare import Spares
from toolkit.platforms.sagemaker.keys import ANY_TYPE
from toolkit.recipe.unsafe import CODE_VARIABLES

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

# vLLM imports and compiles on one core, and computes on another.
_CORES_OF_A_START = 2
_STARTUP_TIMEOUT_S = 480  # SageMaker's, where ContainerStartupHealthCheckTimeoutInSeconds is not given


class ContainerHost:
    """A `ModelHost`. It differs from AWS on purpose: an image must be one that this machine can run, and a variant has
    one instance, whose type only has to exist. `containers` holds `<image repository>/serve`; images of `localhost` are
    those that podman or docker hold.
    """

    refused: Mapping[str, tuple[str, ...]] = {
        "CreateModel": ("Containers", "InferenceExecutionConfig"),
        "PrimaryContainer": ("ModelDataUrl", "ModelPackageName", "MultiModelConfig"),
        "CreateEndpointConfig": ("AsyncInferenceConfig", "DataCaptureConfig", "ExplainerConfig"),
        "ProductionVariant": ("ServerlessConfig",),
    }

    def __init__(self, folder: Path, containers: Path, s3: Callable[[], S3Client], spares: Spares) -> None:
        self._folder = folder
        self._containers = containers
        self._s3 = s3
        self._spares = spares
        self._generations = itertools.count(1)
        self._queue = StartQueue(max(1, machine.cores() // _CORES_OF_A_START))

    def examine(self, operation: str, request: Request) -> None:
        if operation == "CreateModel":
            container = request["PrimaryContainer"]
            self._starter(container)
            for uri in _model_data(container).values():
                if not modeldata.exists(self._s3(), uri):
                    raise ServiceError(f"Could not find model data at {uri}.")
        if operation == "UpdateEndpointWeightsAndCapacities":
            for item in request["DesiredWeightsAndCapacities"]:
                _must_be_one(item["VariantName"], "DesiredInstanceCount", item.get("DesiredInstanceCount", 1))

    def endpoint(self, spec: EndpointSpec) -> ContainerDeployment:
        models = {variant.name: self._model(variant) for variant in spec.variants}
        folder = endpoint_folder(self._folder, spec.endpoint) / str(next(self._generations))
        return ContainerDeployment(spec, models, folder, self._s3(), queue=self._queue)

    def _model(self, variant: Variant) -> Model:
        _must_be_one(variant.name, "InitialInstanceCount", variant.count)
        placement = variant.placements[0]
        container = placement.container
        return Model(
            starter=self._starter(container, placement.instance_type),
            data=_model_data(container),
            startup_timeout_s=variant.asked.get("ContainerStartupHealthCheckTimeoutInSeconds", _STARTUP_TIMEOUT_S),
            spares=self._spares,
        )

    def _starter(self, container: Mapping[str, Any], instance_type: str = "") -> Starter:
        image, variables = container.get("Image", ""), container.get("Environment", {})
        if program := entrypoint(image, self._containers):
            _must_not_start_code(variables)
            return partial(process, program, variables)
        if not image.startswith(f"{ON_THIS_MACHINE.registry}/"):
            runnable = ", ".join(runnable_images(self._containers))
            raise ServiceError(f"Requested image {image} not found. This machine runs {runnable}.")
        try:
            if engine.holds(image):
                runner = engine.engine()
                known = lookup.instance(instance_type) if instance_type != ANY_TYPE else None
                return partial(engine.command, runner, image, variables, engine.limits_of(runner, known))
        except PlatformError as error:
            raise ServiceError(str(error)) from error
        raise ServiceError(f"Requested image {image} not found. Build it: toolkit build RECIPE")


def _must_not_start_code(variables: Mapping[str, str]) -> None:
    """A process of this machine has no walls of a container around it."""
    if refused := sorted(CODE_VARIABLES.intersection(variables)):
        raise ServiceError(
            f"The local platform takes no {', '.join(refused)} in Environment: such a variable decides what code runs. "
            "Remove it, or run the model in a container (`run: container`)."
        )


def _must_be_one(variant: str, field: str, count: int) -> None:
    if count != 1:
        raise ServiceError(
            f"The local platform runs 1 instance of a variant; {variant} wants {count}. Set {field} to 1.",
            code="ResourceLimitExceeded",
        )


def _model_data(container: Mapping[str, Any]) -> dict[str, str]:
    """S3 prefix by folder below /opt/ml."""
    sources = {"model": container["ModelDataSource"]} if "ModelDataSource" in container else {}
    for source in container.get("AdditionalModelDataSources", []):
        sources[f"additional-model-data-sources/{source['ChannelName']}"] = source
    data = {folder: source.get("S3DataSource", {}) for folder, source in sources.items()}
    if any((item.get("S3DataType"), item.get("CompressionType")) != ("S3Prefix", "None") for item in data.values()):
        raise ServiceError("The local platform takes model data as S3DataType S3Prefix with CompressionType None only.")
    return {folder: item["S3Uri"] for folder, item in data.items()}
