"""Small manifests of an endpoint, labelled as platforms/kubernetes/rules/metadata.py labels them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME

NAME = "chat"
_OURS = {"app.kubernetes.io/managed-by": "toolkit"}


def manifest(
    kind: str, name: str = NAME, namespace: str = "ml", instance: str | None = NAME, recipe: str = "aaaa", **body: Any
) -> Resource:
    """One resource; `instance` None is shared."""
    labels = {**_OURS, **({"app.kubernetes.io/instance": instance} if instance else {})}
    metadata: dict[str, Any] = {"name": name, "labels": labels, "annotations": {"toolkit/recipe": recipe}}
    if kind not in ("Namespace", "PersistentVolume"):
        metadata["namespace"] = namespace
    return Resource(
        kind, name, {"apiVersion": KINDS_BY_NAME[kind].api.version, "kind": kind, "metadata": metadata, **body}
    )


def placed(desired: Sequence[Resource], namespace: str) -> list[Resource]:
    """The same in another namespace."""
    found = []
    for item in desired:
        metadata = {**item.request["metadata"]}
        if "namespace" in metadata:
            metadata["namespace"] = namespace
        name = metadata["name"] = namespace if item.kind == "Namespace" else item.name
        found.append(Resource(item.kind, name, {**item.request, "metadata": metadata}))
    return found


def namespace(name: str = "ml") -> Resource:
    return manifest("Namespace", name, instance=None)


def deployment(
    image: str = "vllm:1",
    name: str = NAME,
    namespace: str = "ml",
    recipe: str = "aaaa",
    replicas: int | None = 1,
    labels: Mapping[str, str] | None = None,
) -> Resource:
    found = {"app.kubernetes.io/instance": name, **(labels or {})}
    ports = [{"name": "http", "containerPort": 8080}]
    pod = {"containers": [{"name": "engine", "image": image, "ports": ports, "env": [{"name": "A", "value": "1"}]}]}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": found},
        "template": {"metadata": {"labels": {**_OURS, **found}}, "spec": pod},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return manifest("Deployment", name, namespace, instance=name, recipe=recipe, spec=spec)


def service(name: str = NAME, namespace: str = "ml") -> Resource:
    ports = [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    spec = {"selector": {"app.kubernetes.io/instance": name}, "ports": ports}
    return manifest("Service", name, namespace, instance=name, spec=spec)


def config_map(text: str = "print()", name: str = "chat-1", namespace: str = "ml") -> Resource:
    return manifest("ConfigMap", name, namespace, data={"serve": text}, immutable=True)


def endpoint(image: str = "vllm:1", name: str = NAME, namespace_: str = "ml", recipe: str = "aaaa") -> list[Resource]:
    """All that serves, in the order in which it is made."""
    account = manifest("ServiceAccount", name, namespace_, instance=name)
    return [
        namespace(namespace_),
        account,
        config_map(namespace=namespace_, name=f"{name}-1") if name == NAME else account,
        service(name, namespace_),
        deployment(image, name, namespace_, recipe),
    ]
