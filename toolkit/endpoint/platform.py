"""What a handle and a measurement need of a platform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from toolkit.apply.waiter import Waitable
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.generation import Invoker
from toolkit.endpoint.metrics import Figure, Metrics

if TYPE_CHECKING:
    from sagemaker.core.resources import Endpoint as SdkEndpoint

VARIANT_MARK = "@"
"""In an address, between the name of an endpoint and that of one of its production variants."""


class EndpointPlatform(Waitable, Invoker, Protocol):
    """What a handle needs of a platform."""

    def pause_between_arms(self, endpoint: str) -> float:
        """Seconds until an endpoint that has answered no longer slows others down. Raises EndpointNotFound."""

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        """The OpenAI route of an endpoint, or of `endpoint/component`. Raises PlatformError."""

    def sdk_endpoint(self, endpoint: str) -> SdkEndpoint:
        """The endpoint as the SageMaker Python SDK has it. Raises MissingPackage, PlatformError, and UsageError where
        there is no SageMaker.
        """

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        """What an endpoint, or `endpoint/component`, did in the last `minutes`. Raises PlatformError."""

    def publish(self, name: str, figures: Sequence[Figure]) -> str:
        """Add measured figures to the platform's monitoring; where they are. Raises UsageError where it has none."""

    def captured_traffic(self, endpoint: str) -> str | None:
        """The prefix in S3 of what the endpoint captures of its requests; None if it captures nothing.

        Raises EndpointNotFound, PlatformError.
        """

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Key and content of each object below `s3://bucket/…`, by key. Raises UsageError where there is no S3."""
