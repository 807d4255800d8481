"""Endpoints: their status, what they serve now, what they are brought to, and how that is described."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.platforms.local.aws import Region, ServiceError, now
from toolkit.platforms.local.host import Answer, Deployment, EndpointSpec, ModelHost, Request, Target, Variant

_LONGEST_REASON = 1024  # of a FailureReason, by the service model
_IN_PROGRESS = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")


@dataclass(eq=False)
class Release:
    """A deployment and what it was made from; it is the deployment's watcher."""

    lifecycle: Lifecycle
    spec: EndpointSpec
    deployment: Deployment
    began: float = field(default_factory=now)

    def healthy(self) -> None:
        """Put it in service; what served before is retired."""
        lifecycle = self.lifecycle
        with lifecycle.lock:
            old, lifecycle.live, lifecycle.pending, lifecycle.spec = lifecycle.live, self, None, self.spec
            if old and old.deployment is not self.deployment:
                old.deployment.retire(lambda: lifecycle.turn("InService"))
            else:
                lifecycle.turn("InService")

    def failing(self, reason: str) -> None:
        """The earlier release goes on serving."""
        with self.lifecycle.lock:
            if self.lifecycle.live:
                self.lifecycle.turn("RollingBack", reason)

    def failed(self, reason: str) -> None:
        """An earlier release goes on serving; without one, or if this one had served, the status is Failed."""
        lifecycle = self.lifecycle
        with lifecycle.lock:
            if lifecycle.pending is self:
                lifecycle.pending = None
            elif lifecycle.live and lifecycle.live.deployment is self.deployment:
                lifecycle.live = None
            lifecycle.turn("InService" if lifecycle.live else "Failed", reason)


@dataclass(eq=False)
class Lifecycle:
    """The status of one thing: its release `live` serves, `pending` is being started. `lock` guards all changes."""

    spec: EndpointSpec
    """Of what serves; of what was wanted first, when nothing ever served."""
    lock: threading.RLock
    status: str = "Creating"
    failure: str = ""
    live: Release | None = None
    pending: Release | None = None
    created: float = field(default_factory=now)
    modified: float = field(default_factory=now)

    def turn(self, status: str, failure: str = "") -> None:
        """Take another status; an empty `failure` clears the reason."""
        with self.lock:
            self.status, self.failure, self.modified = status, failure[:_LONGEST_REASON], now()

    def deploy(self, spec: EndpointSpec, deployment: Deployment) -> None:
        """Start it beside what serves, and let it take over when it is healthy."""
        self.pending = Release(self, spec, deployment)
        self.turn("Updating" if self.live else "Creating")
        deployment.start(self.pending)

    def rescale(self, spec: EndpointSpec) -> None:
        assert self.live is not None
        self.pending = Release(self, spec, self.live.deployment)
        self.turn("Updating")
        self.live.deployment.rescale(spec, self.pending)

    def delete(self, forget: Callable[[], None]) -> None:
        self.turn("Deleting")
        self.end(forget)

    def end(self, ended: Callable[[], None]) -> None:
        """End all its containers, then call `ended`."""
        deployments = {id(release.deployment): release.deployment for release in (self.live, self.pending) if release}
        remaining = len(deployments)
        if not remaining:
            ended()

        def one_ended() -> None:
            nonlocal remaining
            with self.lock:
                remaining -= 1
                last = not remaining
            if last:
                ended()

        for deployment in deployments.values():
            deployment.stop(one_ended)

    @property
    def in_progress(self) -> bool:
        return self.status in _IN_PROGRESS

    @property
    def new(self) -> Release | None:
        """A deployment that is being made, when one is."""
        changing = self.pending and self.live and self.pending.deployment is self.live.deployment
        return None if changing else self.pending

    def times(self) -> Answer:
        return {"CreationTime": self.created, "LastModifiedTime": self.modified}


# What DescribeEndpoint repeats of a variant's entry in the endpoint configuration.
_REPEATED = ("ManagedInstanceScaling", "RoutingConfig", "CapacityReservationConfig", "AcceleratorPartitionLayouts")


@dataclass(eq=False)
class Endpoint(Lifecycle):
    """An endpoint. `last_deployment` is the DeploymentConfig of its last update that had one."""

    last_deployment: Mapping[str, Any] | None = None


class Endpoints:
    """All endpoints of one region. Every method may be called from any thread."""

    def __init__(self, region: Region, host: ModelHost) -> None:
        self._region = region
        self._host = host
        self._by_name: dict[str, Endpoint] = {}
        self._lock = threading.RLock()

    def create(self, spec: EndpointSpec) -> None:
        """Start the containers in the background; the status tells how it goes."""
        with self._lock:
            if spec.endpoint in self._by_name:
                raise ServiceError(f'Cannot create already existing endpoint "{self._arn(spec.endpoint)}".')
            deployment = self._host.endpoint(spec)
            endpoint = self._by_name[spec.endpoint] = Endpoint(spec, self._lock)
            endpoint.deploy(spec, deployment)

    def update(self, spec: EndpointSpec, request: Request) -> None:
        """Start new containers beside the old ones; requests move over when the new ones are healthy."""
        with self._lock:
            endpoint = self.changeable(spec.endpoint)
            if request.get("RetainAllVariantProperties"):
                excluded = request.get("ExcludeRetainedVariantProperties", [])
                spec = _retain(spec, endpoint.spec, {item["VariantPropertyType"] for item in excluded})
            deployment = self._host.endpoint(spec)
            endpoint.last_deployment = request.get("DeploymentConfig", endpoint.last_deployment)
            endpoint.deploy(spec, deployment)

    def rescale(self, name: str, desired: Sequence[Mapping[str, Any]]) -> None:
        """Change weights and numbers of instances of an endpoint in service."""
        with self._lock:
            endpoint = self.changeable(name)
            by_variant = {variant.name: variant for variant in endpoint.spec.variants}
            for item in desired:
                if item["VariantName"] not in by_variant:
                    missing = f'variant "{item["VariantName"]}" of endpoint "{self._arn(name)}"'
                    raise ServiceError(f"Could not find {missing}.")
                variant = by_variant[item["VariantName"]]
                by_variant[variant.name] = replace(
                    variant,
                    weight=item.get("DesiredWeight", variant.weight),
                    count=item.get("DesiredInstanceCount", variant.count),
                )
            endpoint.rescale(replace(endpoint.spec, variants=tuple(by_variant.values())))

    def delete(self, name: str, gone: Callable[[], None]) -> None:
        """End the endpoint's containers in the background, then forget it and call `gone`."""

        def forget() -> None:
            with self._lock:
                self._by_name.pop(name, None)
                gone()

        with self._lock:
            self.settled(name).delete(forget)

    def describe(self, name: str) -> Answer:
        with self._lock:
            endpoint = self._find(name)
            answer = {
                **self._summary(endpoint),
                "EndpointConfigName": endpoint.spec.config,
                **(_variants(endpoint.spec, endpoint.live.deployment) if endpoint.live else {}),
                "DataCaptureConfig": _data_capture(endpoint.spec.data_capture),
                "LastDeploymentConfig": endpoint.last_deployment,
                "FailureReason": endpoint.failure or None,
            }
            if new := endpoint.new:
                answer["PendingDeploymentSummary"] = {
                    "EndpointConfigName": new.spec.config,
                    **_variants(new.spec, new.deployment),
                    "StartTime": new.began,
                }
            return {key: value for key, value in answer.items() if value is not None}

    def summaries(self) -> list[Answer]:
        """ListEndpoints' items, in no order."""
        with self._lock:
            return [self._summary(endpoint) for endpoint in self._by_name.values()]

    def targets(self, name: str) -> Sequence[Target] | None:
        """Where requests to that endpoint go, empty while its containers are being restarted.

        None when there is no such endpoint in service.
        """
        endpoint = self._by_name.get(name)
        if endpoint is None or endpoint.live is None or endpoint.status not in ("InService", "Updating", "RollingBack"):
            return None
        return endpoint.live.deployment.targets()

    def settled(self, name: str) -> Endpoint:
        """The endpoint, when nothing is under way with it. AWS uses the same words for updating and deleting."""
        with self._lock:
            endpoint = self._find(name)
        if endpoint.in_progress:
            raise ServiceError(f'Cannot update in-progress endpoint "{self._arn(name)}".')
        return endpoint

    def changeable(self, name: str) -> Endpoint:
        """The endpoint, when it may be updated now."""
        endpoint = self.settled(name)
        if endpoint.status == "Failed":
            raise ServiceError(f'Cannot update failed endpoint "{self._arn(name)}". Delete it.')
        return endpoint

    def close(self) -> None:
        """End all containers of all endpoints and wait for it."""
        with self._lock:
            endpoints = list(self._by_name.values())
        ending = [threading.Event() for _ in endpoints]
        for endpoint, ended in zip(endpoints, ending, strict=True):
            endpoint.end(ended.set)
        for ended in ending:
            ended.wait()

    def _find(self, name: str) -> Endpoint:
        if name not in self._by_name:
            raise ServiceError(f'Could not find endpoint "{self._arn(name)}".')
        return self._by_name[name]

    def _arn(self, name: str) -> str:
        return self._region.arn("endpoint", name)

    def _summary(self, endpoint: Endpoint) -> Answer:
        name = endpoint.spec.endpoint
        return {
            "EndpointName": name,
            "EndpointArn": self._arn(name),
            "EndpointStatus": endpoint.status,
            **endpoint.times(),
        }


def _retain(new: EndpointSpec, old: EndpointSpec, excluded: set[str]) -> EndpointSpec:
    """The new specification, with what may have been changed since the old one was configured."""
    known = {variant.name: variant for variant in old.variants}
    variants = tuple(
        replace(
            variant,
            weight=variant.weight if "DesiredWeight" in excluded else known.get(variant.name, variant).weight,
            count=variant.count if "DesiredInstanceCount" in excluded else known.get(variant.name, variant).count,
        )
        for variant in new.variants
    )
    data_capture = new.data_capture if "DataCaptureConfig" in excluded else old.data_capture
    return replace(new, variants=variants, data_capture=data_capture)


def _variants(spec: EndpointSpec, deployment: Deployment) -> Answer:
    in_service = {target.variant for target in deployment.targets()}
    summaries: Answer = {}
    for variant in spec.variants:
        key = "ShadowProductionVariants" if variant.is_shadow else "ProductionVariants"
        current = variant.count if variant.name in in_service else 0
        summaries.setdefault(key, []).append(_variant(variant, deployment, current))
    return summaries


def _variant(variant: Variant, deployment: Deployment, current: int) -> Answer:
    placement = deployment.placement(variant)
    image = placement.container.get("Image")
    summary = {
        "VariantName": variant.name,
        "DeployedImages": [{"SpecifiedImage": image, "ResolvedImage": image}] if image else None,
        "CurrentWeight": variant.weight,
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": current,
        "DesiredInstanceCount": variant.count,
        "InstancePools": [
            {"InstanceType": pool.instance_type, "CurrentInstanceCount": current if pool == placement else 0}
            for pool in variant.placements
        ]
        if "InstancePools" in variant.asked
        else None,
        **{key: variant.asked[key] for key in _REPEATED if key in variant.asked},
    }
    return {key: value for key, value in summary.items() if value is not None}


def _data_capture(config: Mapping[str, Any] | None) -> Answer | None:
    if config is None:
        return None
    capturing = config.get("EnableCapture", False)
    return {
        "EnableCapture": capturing,
        "CaptureStatus": "Started" if capturing else "Stopped",
        "CurrentSamplingPercentage": config["InitialSamplingPercentage"],
        "DestinationS3Uri": config["DestinationS3Uri"],
        "KmsKeyId": config.get("KmsKeyId", ""),
    }
