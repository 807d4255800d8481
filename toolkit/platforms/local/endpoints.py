"""Endpoints and their life cycle: Creating, InService, Updating, Deleting, Failed with a reason."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.platforms.local.aws import ServiceError, arn, now
from toolkit.platforms.local.deployment import Deployment, StartError, Target, Variant
from toolkit.platforms.local.folders import endpoint_folder

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_LONGEST_REASON = 1024  # of a FailureReason, by the service model
_IN_PROGRESS = ("Creating", "Updating", "Deleting")


@dataclass
class Endpoint:
    """An endpoint as DescribeEndpoint shows it: `live` serves, `pending` is on its way to."""

    name: str
    config: str
    status: str = "Creating"
    failure: str = ""
    live: Deployment | None = None
    pending: Deployment | None = None
    pending_config: str = ""
    created: float = field(default_factory=now)
    modified: float = field(default_factory=now)

    def turn(self, status: str, failure: str = "") -> None:
        """Take another status; an empty `failure` clears the reason."""
        self.status, self.failure, self.modified = status, failure[:_LONGEST_REASON], now()


class Endpoints:
    """All endpoints of this machine. Every method may be called from any thread."""

    def __init__(self, folder: Path, s3: Callable[[], S3Client]) -> None:
        self._folder = folder
        self._s3 = s3
        self._by_name: dict[str, Endpoint] = {}
        self._generations = itertools.count(1)
        self._lock = threading.RLock()

    def create(self, name: str, config: str, variants: Sequence[Variant]) -> None:
        """Start the containers in the background; the status tells how it goes."""
        with self._lock:
            if name in self._by_name:
                raise ServiceError(f'Cannot create already existing endpoint "{arn("endpoint", name)}".')
            endpoint = Endpoint(name, config)
            self._deploy(endpoint, config, variants)
            self._by_name[name] = endpoint

    def update(self, name: str, config: str, variants: Sequence[Variant]) -> None:
        """Start new containers beside the old ones; requests move over when the new ones are healthy."""
        with self._lock:
            endpoint = self._settled(name)
            if endpoint.live is None:
                raise ServiceError(f'Cannot update failed endpoint "{arn("endpoint", name)}". Delete it.')
            endpoint.turn("Updating")
            self._deploy(endpoint, config, variants)

    def delete(self, name: str) -> None:
        """End the endpoint's containers in the background, then forget it."""
        with self._lock:
            endpoint = self._settled(name)
            endpoint.turn("Deleting")
            threading.Thread(target=self._end, args=(endpoint,), daemon=True).start()

    def describe(self, name: str) -> dict[str, Any]:
        """DescribeEndpoint's answer."""
        with self._lock:
            endpoint = self._find(name)
            answer = {
                **_summary(endpoint),
                "EndpointConfigName": endpoint.config,
                "ProductionVariants": _variants(endpoint.live) if endpoint.live else None,
                "FailureReason": endpoint.failure or None,
            }
            if endpoint.pending:
                answer["PendingDeploymentSummary"] = {
                    "EndpointConfigName": endpoint.pending_config,
                    "ProductionVariants": _variants(endpoint.pending),
                    "StartTime": endpoint.modified,
                }
            return {key: value for key, value in answer.items() if value is not None}

    def summaries(self) -> list[dict[str, Any]]:
        """ListEndpoints' items, in no order."""
        with self._lock:
            return [_summary(endpoint) for endpoint in self._by_name.values()]

    def targets(self, name: str) -> Sequence[Target] | None:
        """Where requests to that endpoint go, empty while its containers are being restarted.

        None when there is no such endpoint in service.
        """
        endpoint = self._by_name.get(name)
        if endpoint is None or endpoint.live is None or endpoint.status not in ("InService", "Updating"):
            return None
        return endpoint.live.targets()

    def close(self) -> None:
        """End all containers of all endpoints and wait for it."""
        with self._lock:
            endpoints = list(self._by_name.values())
        ending = [threading.Thread(target=self._end, args=(endpoint,)) for endpoint in endpoints]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def _deploy(self, endpoint: Endpoint, config: str, variants: Sequence[Variant]) -> None:
        folder = endpoint_folder(self._folder, endpoint.name) / str(next(self._generations))
        deployment = Deployment(endpoint.name, variants, folder, self._s3(), self._lost)
        endpoint.pending, endpoint.pending_config = deployment, config
        threading.Thread(target=self._switch, args=(endpoint, deployment), daemon=True).start()

    def _switch(self, endpoint: Endpoint, new: Deployment) -> None:
        """Start a deployment and put it in service, or say why not and leave what serves as it is."""
        try:
            new.start()
        except StartError as exc:
            with self._lock:
                endpoint.pending = None
                endpoint.turn("InService" if endpoint.live else "Failed", str(exc))
            return
        with self._lock:
            old, endpoint.live, endpoint.pending = endpoint.live, new, None
            endpoint.config = endpoint.pending_config
        if old:
            old.drain()
            old.stop()
        with self._lock:
            endpoint.turn("InService")

    def _lost(self, deployment: Deployment, reason: str) -> None:
        """A container in service died and did not come back."""
        with self._lock:
            lost = [endpoint for endpoint in self._by_name.values() if endpoint.live is deployment]
            for endpoint in lost:
                endpoint.live = None
                endpoint.turn("Failed", reason)
        deployment.stop()

    def _end(self, endpoint: Endpoint) -> None:
        for deployment in (endpoint.live, endpoint.pending):
            if deployment:
                deployment.stop()
        with self._lock:
            self._by_name.pop(endpoint.name, None)

    def _find(self, name: str) -> Endpoint:
        if name not in self._by_name:
            raise ServiceError(f'Could not find endpoint "{arn("endpoint", name)}".')
        return self._by_name[name]

    def _settled(self, name: str) -> Endpoint:
        """The endpoint, when nothing is under way with it. AWS uses the same words for updating and deleting."""
        endpoint = self._find(name)
        if endpoint.status in _IN_PROGRESS:
            raise ServiceError(f'Cannot update in-progress endpoint "{arn("endpoint", name)}".')
        return endpoint


def _summary(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": arn("endpoint", endpoint.name),
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }


def _variants(deployment: Deployment) -> list[dict[str, Any]]:
    in_service = {target.variant for target in deployment.targets()}
    return [
        {
            "VariantName": variant.name,
            "DeployedImages": [{"SpecifiedImage": variant.image, "ResolvedImage": variant.image}],
            "CurrentWeight": variant.weight,
            "DesiredWeight": variant.weight,
            "CurrentInstanceCount": int(variant.name in in_service),
            "DesiredInstanceCount": 1,
        }
        for variant in deployment.variants
    ]
