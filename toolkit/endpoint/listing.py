"""The facts about an endpoint that `toolkit status` shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Deployed:
    """An endpoint created by the toolkit. `created` is in seconds since 1970, `instances` are pairs of type and count.

    `price_per_hour` is in US dollars, None if unknown; `status` is one of
    apply.waiter.EndpointStatus; `region` is an AWS region, or the `context/namespace` of a cluster.
    """

    name: str
    platform: str
    region: str
    status: str
    config: str
    created: float
    instances: tuple[tuple[str, int], ...]
    price_per_hour: float | None
    failure_reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit status --json`."""
        return asdict(self)
