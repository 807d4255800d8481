"""What a handle and a measurement need of a platform: requests, logs, metrics, and what `toolkit status` lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from toolkit.apply.progress import Progress
from toolkit.apply.waiter import LogLine, Waitable
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.metrics import Figure, Metrics
from toolkit.planning.resources import Account

SdkKind = Literal["endpoint", "config", "model"]
"""Which of the SageMaker SDK's objects of an endpoint."""

PAUSED = "Paused"
"""The status of an endpoint of which nothing runs until it is deployed again."""

VARIANT_MARK = "@"
"""In an address, between the name of an endpoint and that of one of its production variants."""


class EndpointPlatform(Waitable, Protocol):
    """What a handle needs of a platform. `endpoint` is a name, or `name/component` for an inference component of it."""

    def account(self) -> Account:
        """Account and region, or the part of a cluster, that it opens. Raises PlatformError."""

    def last_logs(self, endpoint: str, count: int) -> list[LogLine]:
        """The last lines of `logs`, read from its end where the platform can. Raises EndpointNotFound."""

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The container's JSON answer. Raises EndpointNotFound or InvocationError."""

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The container's answer as it arrives, in chunks that may end anywhere."""

    def pause_between_arms(self, endpoint: str) -> float:
        """Seconds until an endpoint that has answered no longer slows others down. Raises EndpointNotFound."""

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        """The OpenAI route of an endpoint, or of `endpoint/component`. Raises PlatformError."""

    def sdk_object(self, endpoint: str, kind: SdkKind) -> Any:
        """The endpoint, its configuration or its model as the SageMaker Python SDK has it. Raises MissingPackage,
        PlatformError, and UsageError where there is no SageMaker.
        """

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        """What an endpoint, or `endpoint/component`, did in the last `minutes`. Raises PlatformError."""

    def publish(self, name: str, figures: Sequence[Figure]) -> str:
        """Add measured figures to the platform's monitoring; where they are. Raises UsageError where it has none."""

    def benchmark(self, endpoint: str, settings: Mapping[str, Any] | None, progress: Progress, role: str = "") -> Any:
        """The profile that the platform's own benchmark makes of an endpoint, AIPerf's JSON; None without settings.

        `role` is what it runs as, by default the endpoint's own. Raises UsageError where there is no such benchmark,
        PlatformError.
        """

    def captured_traffic(self, endpoint: str) -> str | None:
        """The prefix in S3 of what the endpoint captures of its requests; None if it captures nothing.

        Raises EndpointNotFound, PlatformError.
        """

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Key and content of each object below `s3://bucket/…`, by key. Raises UsageError where there is no S3."""


@dataclass(frozen=True)
class Deployed:
    """An endpoint created by the toolkit. `created` is in seconds since 1970, `instances` are pairs of type and count.

    `price_per_hour` is in US dollars, None if unknown; `status` is one of apply.waiter.EndpointStatus, "Paused" or
    "Unknown"; `region` is an AWS region, or the `context/namespace` of a cluster. `created` is when it was paused, for
    one on AWS that is. One that is not `described` has neither config, instances, price nor reason, and `created` is
    None if unknown.
    """

    name: str
    platform: str
    region: str
    status: str
    config: str
    created: float | None
    instances: tuple[tuple[str, int], ...]
    price_per_hour: float | None
    failure_reason: str = ""
    described: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit status --json`."""
        return asdict(self)


def any_name(_: str) -> bool:
    """Every endpoint is wanted."""
    return True


@dataclass(frozen=True)
class Found:
    """The endpoints of a platform. `incomplete` says why there may be more, and is empty if these are all."""

    endpoints: tuple[Deployed, ...]
    incomplete: str = ""

    def __iter__(self) -> Iterator[Deployed]:
        return iter(self.endpoints)


def read_log(
    platform: Waitable,
    endpoint: str,
    follow: bool = False,
    since: float | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LogLine]:
    """Log lines, oldest first: all, or the last `since` seconds. `follow` then waits for new ones.

    Each line is read once. Raises EndpointNotFound, also if the endpoint is removed meanwhile.
    """
    first = clock() - since if since is not None else 0.0
    bookmarks: dict[str, str] = {}
    while True:
        for line in platform.logs(endpoint, bookmarks=bookmarks, written_since=first):
            if line.time >= first:
                yield line
        if not follow:
            return
        sleep(platform.poll_seconds)
