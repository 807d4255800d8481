"""The SageMaker Python SDK, version 3: its objects of an endpoint, and what they say as AWS says it.

Its package is optional, and `sagemaker.serve`, which has ModelBuilder, more so (it brings torch and mlflow).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolkit.errors import EndpointNotFound, MissingPackage, UsageError
from toolkit.platforms.sagemaker.aws_errors import is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors

if TYPE_CHECKING:
    from sagemaker.serve import ModelBuilder

    from toolkit.endpoint.platform import SdkKind
    from toolkit.platforms.rules import AwsSession

_LOCAL_TYPES = ("local", "local_gpu")
_LOCAL_MODES = ("LOCAL_CONTAINER", "IN_PROCESS")
# What `build` names where there is no model data (sagemaker-serve 1.27, _get_serve_setting).
_EMPTY = re.compile(r"/model-builder/[^/]+/[0-9a-f]{32}/$")
_BUILDER = ("image_uri", "env_vars", "sagemaker_session")
_ACCEPTED = "Pass a ModelBuilder, a Model or an Endpoint of the SageMaker SDK's version 3, or an endpoint's name."


def sdk_object(clients: Clients, address: str, kind: SdkKind) -> Any:
    """An endpoint, its configuration or its model, with the session of `clients`. Raises MissingPackage, ClientError.

    `address` is a name, or `name/component` for the model of an inference component.
    """
    try:
        from sagemaker.core import resources
    except ImportError as error:
        raise MissingPackage("version 3 of the SageMaker Python SDK is not installed", extra="sagemaker") from error
    own = {"session": clients.session, "region": clients.session.region_name}
    name, _, component = address.partition("/")
    endpoint = resources.Endpoint.get(endpoint_name=name, **own)
    if kind == "endpoint":
        return endpoint
    if kind == "model" and component:
        found = clients.sagemaker.describe_inference_component(InferenceComponentName=component)
        return resources.Model.get(model_name=found["Specification"]["ModelName"], **own)
    config = resources.EndpointConfig.get(endpoint_config_name=endpoint.endpoint_config_name, **own)
    return config if kind == "config" else resources.Model.get(model_name=_model_of(config), **own)


def _model_of(config: Any) -> str:
    """The model of the first variant. Raises UsageError for a configuration of inference components."""
    name = config.production_variants[0].model_name
    if not name:
        hint = "Name the component: toolkit.connect('ENDPOINT/COMPONENT').sagemaker_model()"
        raise UsageError(f"{config.endpoint_config_name} has no model: its components have one each", hint=hint)
    return str(name)


def describe(source: object, clients: Callable[[], Clients]) -> dict[str, Any]:
    """DescribeModel's answer for an object of the SDK, or for the endpoint of that name, with its variants.

    Nothing is run, and `clients` are opened for an endpoint only. Raises UsageError, EndpointNotFound.
    """
    if isinstance(source, str):
        return _describe_endpoint(source, clients())
    if all(hasattr(source, name) for name in _BUILDER):
        return _describe_builder(source)
    if hasattr(source, "primary_container"):
        from sagemaker.core.utils.utils import serialize

        return dict(serialize(source))
    if hasattr(source, "endpoint_config_name") and hasattr(source, "endpoint_name"):
        return _describe_endpoint(str(source.endpoint_name), clients())
    raise UsageError(f"{type(source).__name__} is nothing that becomes a recipe", hint=_ACCEPTED)


def is_local(source: object) -> bool:
    """Whether an object is for the SDK's local mode."""
    mode = getattr(getattr(source, "mode", None), "name", "")
    return mode in _LOCAL_MODES or getattr(source, "instance_type", None) in _LOCAL_TYPES


def _describe_builder(builder: Any) -> dict[str, Any]:
    """What its `build` and `deploy` would ask AWS for, as far as it was given."""
    model = builder.model
    if model is not None and not isinstance(model, str):
        hint = (
            "Save it, and start from its folder: toolkit new ./FOLDER. Or give ModelBuilder `image_uri` and variables."
        )
        raise UsageError(f"its model is a {type(model).__name__}, not the name of one", hint=hint)
    if model and not model.startswith("s3://") and "/" not in model:
        hint = f"Run: toolkit new jumpstart:{model}"
        raise UsageError(f"{model} is a model of JumpStart, which is read from its own entry", hint=hint)
    data = next((uri for uri in (model, builder.model_path) if str(uri).startswith("s3://")), None)
    if builder.s3_model_data_url and not _EMPTY.search(str(builder.s3_model_data_url)):
        data = builder.s3_model_data_url
    container: dict[str, Any] = {
        "Image": builder.image_uri,
        "Environment": {**(builder.env_vars or {})},
        "ModelDataSource" if isinstance(data, Mapping) else "ModelDataUrl": data,
        "AdditionalModelDataSources": getattr(builder, "additional_model_data_sources", None),
    }
    if model and not model.startswith("s3://"):
        container["Environment"].setdefault("HF_MODEL_ID", model)
    # Else it is the SDK's own choice, which knows nothing of the model.
    is_chosen = getattr(builder, "_user_provided_instance_type", True) and not is_local(builder)
    variant = {
        "InstanceType": builder.instance_type if is_chosen else None,
        "InitialInstanceCount": getattr(builder, "instance_count", 1),
    }
    network = builder.network
    return {
        "PrimaryContainer": container,
        "ExecutionRoleArn": builder.role_arn,
        "ProductionVariants": [variant],
        "EnableNetworkIsolation": bool(network and network.enable_network_isolation),
        "VpcConfig": {"Subnets": network.subnets, "SecurityGroupIds": network.security_group_ids} if network else {},
    }


def _describe_endpoint(name: str, clients: Clients) -> dict[str, Any]:
    sagemaker = clients.sagemaker
    with aws_errors(f"reading endpoint {name}"):
        try:
            config = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
        except clients.refusal as error:
            if not is_missing(error):
                raise
            hint = f"Its region is {clients.session.region_name}; pass `session` for another. {_ACCEPTED}"
            raise EndpointNotFound(f"there is no endpoint {name}", hint=hint) from error
        variants = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
        if "ModelName" not in variants[0]:
            hint = "Pass the model of one of them: sagemaker.core.resources.Model.get(NAME)."
            raise UsageError(f"{name} serves inference components, which have a model each", hint=hint)
        model = sagemaker.describe_model(ModelName=variants[0]["ModelName"])
    return {**model, "ProductionVariants": variants}


def model_builder(
    arguments: Mapping[str, Any], later: Mapping[str, Any], clients: Clients, session: AwsSession | None
) -> ModelBuilder:
    """The SDK's ModelBuilder, with the session that was passed or that of `clients`. Raises UsageError."""
    try:
        from sagemaker.core.helper.session_helper import Session
        from sagemaker.core.training.configs import Networking
        from sagemaker.serve import ModelBuilder
    except ImportError as error:
        hint = "Run: pip install 'sagemaker>=3,<4'"
        raise UsageError(f"the SDK's ModelBuilder is not installed: {error}", hint=hint) from error
    of_sdk = session if hasattr(session, "boto_session") else Session(boto_session=clients.session)
    network = Networking(**arguments["network"]) if "network" in arguments else None
    builder = ModelBuilder(**{**arguments, "network": network}, sagemaker_session=of_sdk)
    for name, value in later.items():
        setattr(builder, name, value)
    return builder
