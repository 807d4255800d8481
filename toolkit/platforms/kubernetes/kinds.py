"""Where the kinds of a plan are in the Kubernetes API, and what makes an object ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.planning.resources import Kind
from toolkit.platforms.kubernetes.rules.kinds import RULES_BY_KIND
from toolkit.platforms.kubernetes.rules.metadata import OURS

FIELD_MANAGER = "toolkit"


def path(kind: Kind, namespace: str, name: str = "") -> str:
    """The address of an object, or of all of a kind in the namespace."""
    rule, plural = RULES_BY_KIND[kind], f"{kind.lower()}s"
    return address(rule.api_version, plural, "" if rule.is_cluster_wide else namespace, name)


def address(group_version: str, plural: str, namespace: str, name: str = "") -> str:
    """The same for any kind; an empty namespace is all of them, or none."""
    root = "/apis" if "/" in group_version else "/api"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{group_version}{place}/{plural}" + (f"/{name}" if name else "")


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Whether the toolkit made it."""
    return OURS.items() <= labels(manifest).items()


def labels(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of an object."""
    found: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return found


def selector(found: Mapping[str, str]) -> str:
    """Labels as the API's labelSelector."""
    return ",".join(f"{key}={value}" for key, value in found.items())
