"""Where the kinds of a plan are in the Kubernetes API, and what makes an object ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.platforms.kubernetes.rules.kinds import KINDS, ApiResource
from toolkit.platforms.kubernetes.rules.metadata import OURS

FIELD_MANAGER = "toolkit"


# What nobody plans, but is looked at on the way.
_OTHERS = {
    "Pod": ApiResource("v1", "pods"),
    "Event": ApiResource("v1", "events"),
    "ReplicaSet": ApiResource("apps/v1", "replicasets"),
    "Lease": ApiResource("coordination.k8s.io/v1", "leases"),
}
_RESOURCES = {**{str(rule.kind): rule.api for rule in KINDS}, **_OTHERS}


def path(kind: str, namespace: str, name: str = "") -> str:
    """The address of an object, or of all of a kind in the namespace; an empty namespace is all of them."""
    version, plural, namespaced = _RESOURCES[kind]
    root = "/apis" if "/" in version else "/api"
    within = f"/namespaces/{namespace}" if namespaced and namespace else ""
    return f"{root}/{version}{within}/{plural}" + (f"/{name}" if name else "")


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Whether the toolkit made it."""
    return OURS.items() <= labels(manifest).items()


def labels(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return found


def annotations_of(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return found


def selector(found: Mapping[str, str]) -> str:
    """Labels as the API's labelSelector."""
    return ",".join(f"{key}={value}" for key, value in found.items())
