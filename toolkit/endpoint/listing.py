"""What `toolkit status` tells of an endpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Deployed:
    """An endpoint that the toolkit made. `created` is seconds since 1970, `instances` pairs of type and number.

    `price_per_hour` is in US dollars, None where a price is not known; `status` is one of
    apply.waiter.EndpointStatus; `region` is that of AWS, or the `context/namespace` of a cluster.
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
        """All of it, for `--json`."""
        return asdict(self)
