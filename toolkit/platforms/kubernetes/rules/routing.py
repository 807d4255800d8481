"""What lets a Gateway choose among an endpoint's pods: a pool of them, the endpoint picker that it asks, and a route.

Image, flags, plugins, weights, rights and resources of the picker are those of its project's chart, the last that it
has released: kubernetes-sigs/gateway-api-inference-extension v1.5.0, config/charts/inferencepool and epplib. Here its
plugins stand in a flag and not in a ConfigMap, so that others mean another pod, and its pod is a restricted one.
"""

from __future__ import annotations

import json
from typing import Any

from toolkit.catalog.lookup import default_engine
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import RoutingSection, cluster
from toolkit.platforms.kubernetes.rules.metadata import COMPONENT, manifest, pod_labels, selector
from toolkit.platforms.kubernetes.rules.pod import grace_seconds
from toolkit.platforms.kubernetes.rules.security import PORT, container_security, picker_policy, pod_security
from toolkit.recipe.recipe import Recipe

PICKER_ENDING = "-epp"
"""Of the names of all that is the picker's, as its project has it."""

PICKER_IMAGE = "registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0"
PICKER_REQUESTS = {"cpu": "4", "memory": "8Gi"}
READS = f"{default_engine()}:"
"""What the names of metrics begin with that the picker knows without being told."""

_GROUP, _ALPHA = "inference.networking.k8s.io", "inference.networking.x-k8s.io"
_LOOKED_AT = {"": ["pods"], _GROUP: ["inferencepools"], _ALPHA: ["inferenceobjectives", "inferencemodelrewrites"]}
PICKER_RULES = [
    {"apiGroups": [group], "resources": kinds, "verbs": ["get", "watch", "list"]} for group, kinds in _LOOKED_AT.items()
]
"""What the picker may do. Who makes its Role has to be allowed as much."""

_ASKED, _HEALTH, _METRICS = 9002, 9003, 9090
_WEIGHTS = {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}
"""Few waiting requests, much free KV cache, and most of all a prefix that the pod has seen."""


def routing(recipe: Recipe) -> list[Resource]:
    """None without `kubernetes.routing`, nor for a baseline, which is there to be measured and no user asks."""
    wanted = cluster(recipe).routing
    if wanted is None or recipe.baseline_of is not None:
        return []
    return [*_picker(recipe), _pool(recipe), _route(recipe, wanted)]


def _picker(recipe: Recipe) -> list[Resource]:
    name = _picker_name(recipe)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    account = {"kind": "ServiceAccount", "name": name, "namespace": cluster(recipe).namespace}
    ports = [{"name": "grpc-ext-proc", "protocol": "TCP", "port": _ASKED}]
    its_pod = selector(recipe, "picker")
    spec = {
        "replicas": 1,  # what it knows of prefixes is in its memory
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": its_pod},
        "template": {"metadata": {"labels": pod_labels(recipe, "picker")}, "spec": _pod(recipe)},
    }
    return [
        manifest(recipe, "ServiceAccount", name, automountServiceAccountToken=False),
        picker_policy(recipe, name, (_ASKED, _METRICS)),
        manifest(recipe, "Role", name, rules=PICKER_RULES),
        manifest(recipe, "RoleBinding", name, roleRef=role, subjects=[account]),
        manifest(recipe, "Service", name, spec={"type": "ClusterIP", "selector": its_pod, "ports": ports}),
        manifest(recipe, "Deployment", name, labels={COMPONENT: "picker"}, spec=spec),
    ]


def _pod(recipe: Recipe) -> dict[str, Any]:
    """It answers for a request until that ends, so it goes no sooner than the pods that it sends requests to."""
    probe = {"grpc": {"port": _HEALTH, "service": "inference-extension"}}
    container = {
        "name": "picker",
        "image": PICKER_IMAGE,
        "args": [
            f"--pool-name={recipe.name}",
            f"--pool-namespace={cluster(recipe).namespace}",
            f"--config-text={json.dumps(_plugins(), indent=1)}",
            "--zap-encoder=json",
            "--v=1",
            "--tracing=false",
        ],
        "ports": [{"name": "grpc", "containerPort": _ASKED}, {"name": "grpc-health", "containerPort": _HEALTH}],
        "livenessProbe": {**probe, "initialDelaySeconds": 5, "periodSeconds": 10},
        "readinessProbe": {**probe, "periodSeconds": 2},
        "resources": {"requests": PICKER_REQUESTS, "limits": {"memory": "16Gi"}},
        "securityContext": container_security(),
    }
    return {
        "serviceAccountName": _picker_name(recipe),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": grace_seconds(recipe, "server"),
        "containers": [container],
    }


def _plugins() -> dict[str, Any]:
    """Where metrics are, and by what a pod is chosen. Their port is the pool's, their names those of vLLM."""
    source = {"type": "metrics-data-source", "parameters": {"scheme": "http", "path": "/metrics"}}
    scorers = [{"pluginRef": name, "weight": weight} for name, weight in _WEIGHTS.items()]
    return {
        "apiVersion": f"{_ALPHA}/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*({"type": name} for name in _WEIGHTS), source, {"type": "core-metrics-extractor"}],
        "schedulingProfiles": [{"name": "default", "plugins": scorers}],
    }


def _pool(recipe: Recipe) -> Resource:
    """The pods that answer, of several nodes the leaders. Without its picker the Gateway sends requests to any."""
    picker = {"name": _picker_name(recipe), "port": {"number": _ASKED}, "failureMode": "FailOpen"}
    spec = {
        "selector": {"matchLabels": selector(recipe)},
        "targetPorts": [{"number": PORT}],
        "endpointPickerRef": picker,
    }
    return manifest(recipe, "InferencePool", recipe.name, spec=spec)


def _route(recipe: Recipe, wanted: RoutingSection) -> Resource:
    """All that comes to the Gateway, or to the host name. It has no time limit, as the engine has none."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [{"group": _GROUP, "kind": "InferencePool", "name": recipe.name}],
        "timeouts": {"request": "0s"},
    }
    gateway = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": wanted.gateway,
        **({"namespace": wanted.namespace} if wanted.namespace else {}),
    }
    hosts = {"hostnames": [wanted.hostname]} if wanted.hostname else {}
    return manifest(recipe, "HTTPRoute", recipe.name, spec={"parentRefs": [gateway], **hosts, "rules": [rule]})


def _picker_name(recipe: Recipe) -> str:
    return f"{recipe.name}{PICKER_ENDING}"
