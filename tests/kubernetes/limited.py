"""A user of a genuine cluster who may do all that the toolkit does, but for what is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from waiting import until

from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules.kinds import KINDS
from toolkit.platforms.kubernetes.session import SESSION

_VERBS = ("get", "list", "create", "update", "patch", "delete")
_LOOKED_AT = {
    "": ("pods", "pods/log", "pods/proxy", "services/proxy", "events", "secrets"),
    "apps": ("replicasets", "statefulsets"),
    "coordination.k8s.io": ("leases",),
}
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@contextmanager
def limited(
    platform: KubernetesPlatform, kubeconfig: Path, *forbidden: tuple[str, str]
) -> Iterator[KubernetesPlatform]:
    """Theirs, and KUBECONFIG until it is left. `forbidden` are pairs of verb and resource, such as `pods/log`."""
    name, before = f"limited-{platform.cluster.namespace}", kubeconfig.read_text()
    platform.cluster.call("POST", _ACCOUNTS, {"metadata": {"name": name}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = platform.cluster.call("POST", f"{_ACCOUNTS}/{name}/token", asked)["status"]["token"]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    platform.cluster.call("POST", f"{_RBAC}/clusterroles", {**rbac, "kind": "ClusterRole", "rules": _rules(forbidden)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
    bound = {**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}
    platform.cluster.call("POST", f"{_RBAC}/clusterrolebindings", bound)
    config = yaml.safe_load(before)
    config["users"][0]["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(config))
    theirs = SESSION.open(f"/{platform.cluster.namespace}")
    _until_known(theirs)
    try:
        yield replace(platform, cluster=theirs.cluster)
    finally:
        kubeconfig.write_text(before)


def _rules(forbidden: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    kinds = [(kind.api.version.rpartition("/")[0], kind.api.plural) for kind in KINDS]
    kinds += [(group, resource) for group, resources in _LOOKED_AT.items() for resource in resources]
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [v for v in _VERBS if (v, resource) not in forbidden]}
        for group, resource in kinds
    ]


def _until_known(platform: KubernetesPlatform) -> None:
    """The API server learns of a role a moment after it is there."""
    asks = {"resourceAttributes": {"verb": "get", "resource": "namespaces"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": asks}
    place = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    until(lambda: platform.cluster.call("POST", place, review)["status"]["allowed"])
