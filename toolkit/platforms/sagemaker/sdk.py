"""The SageMaker Python SDK's own object of an endpoint. The SDK is an extra, and loaded only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.errors import MissingPackage
from toolkit.platforms.sagemaker.clients import Clients

if TYPE_CHECKING:
    from sagemaker.core.resources import Endpoint


def sdk_endpoint(clients: Clients, name: str) -> Endpoint:
    """An endpoint in version 3 of the SDK, with the session of `clients`. Raises MissingPackage or ClientError."""
    try:
        from sagemaker.core.resources import Endpoint
    except ImportError as error:
        raise MissingPackage("version 3 of the SageMaker Python SDK is not installed", extra="sagemaker") from error
    return Endpoint.get(endpoint_name=name, session=clients.session, region=clients.session.region_name)
