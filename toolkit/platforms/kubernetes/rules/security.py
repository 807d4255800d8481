"""What a pod may do on its node, and whom it may talk to: as little as it needs.

All but pods on Trainium pass the Pod Security Standard `restricted`: those run as root, without a right of root's, as
neither Neuron's images nor its device plugin say that another user may open /dev/neuron*. NVIDIA's devices are open to
every user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from toolkit.engines.arguments import environment
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.rules.metadata import BENCHMARK, COMPONENT, INSTANCE, TRAINING, manifest, selector
from toolkit.recipe.recipe import Recipe

PORT = 8080
"""Where SageMaker and our entrypoint have it."""

TEMPORARY = {"tmp": "/tmp", "var-tmp": "/var/tmp"}  # noqa: S108
"""Volumes on the pod's own disk, and the folders that programs expect to write to."""

# It has an entry in every image's /etc/passwd, without which PyTorch finds no folder for its cache.
_NOBODY = 65534
_EKS_POD_IDENTITY = ("169.254.170.23/32", "fd00:ec2::23/128")  # AWS: "EKS Pod Identity agent"
_API_SERVER_PORTS = (443, 6443)
"""Of its Service, and of API servers themselves, which some networks look at; EKS's have the first."""

_URL = re.compile(r"""\b[a-z][a-z0-9+.-]*://[^\s"',]+""", re.IGNORECASE)

Rule = dict[str, Any]


def container_security() -> dict[str, Any]:
    """Of every container: it cannot gain rights, nor change its image's files."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def pod_security(*, root: bool = False) -> dict[str, Any]:
    """Of every pod: nobody's user, unless it has to be root, and the system calls that runtimes allow by default."""
    user = {} if root else {"runAsNonRoot": True, "runAsUser": _NOBODY, "runAsGroup": _NOBODY}
    return {**user, "seccompProfile": {"type": "RuntimeDefault"}}


def bare_pod(container: dict[str, Any], volumes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A pod that runs once, and knows nothing of the API server or of Services."""
    head = {"restartPolicy": "Never", "automountServiceAccountToken": False, "enableServiceLinks": False}
    return {**head, **more, "containers": [container], "volumes": volumes}


def engine_policy(recipe: Recipe) -> Resource:
    """Anybody may ask the engine's port; its other ports, whose messages are pickles, only the nodes of one model.

    It reaches the hub, AWS, and what the recipe names, such as a proxy or a collector of traces, but not the node's own
    credentials (169.254.169.254). Policies add up: one of the cluster's own can allow more.
    """
    components = ["server", "compile", *(["worker"] if recipe.nodes > 1 else [])]
    pods = {
        "matchLabels": {INSTANCE: recipe.name},
        "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": components}],
    }
    https: Rule = {"ports": [_tcp(port) for port in (443, *_named_ports(recipe))]}
    identity: Rule = {"to": [{"ipBlock": {"cidr": cidr}} for cidr in _EKS_POD_IDENTITY], "ports": [_tcp(80)]}
    # Ports are chosen by the engine and by NCCL when they start.
    ours = {"podSelector": {"matchLabels": {INSTANCE: recipe.name}}}
    ingress, egress = ([{"from": [ours]}], [{"to": [ours]}]) if recipe.nodes > 1 else ([], [])
    return _policy(recipe, recipe.name, pods, [{"ports": [_tcp(PORT)]}, *ingress], [_DNS, https, identity, *egress])


def benchmark_policy(arms: Sequence[Recipe]) -> Resource:
    """The Job that measures asks the arms, and nobody asks it."""
    recipe = arms[0]
    labels = {INSTANCE: recipe.name, **BENCHMARK}
    names = [{"key": INSTANCE, "operator": "In", "values": [arm.name for arm in arms]}]
    # A network may look at the Service's port or at the pod's.
    ask: Rule = {"to": [{"podSelector": {"matchExpressions": names}}], "ports": [_tcp(80), _tcp(PORT)]}
    return _policy(recipe, f"{recipe.name}-benchmark", {"matchLabels": labels}, [], [_DNS, ask], labels=BENCHMARK)


def training_policy(recipe: Recipe) -> Resource:
    """The Job that trains reaches the hub, and nobody asks it."""
    pods = {"matchLabels": {INSTANCE: recipe.name, **TRAINING}}
    https: Rule = {"ports": [_tcp(443)]}
    return _policy(recipe, f"{recipe.name}-train", pods, [], [_DNS, https], labels=TRAINING)


def picker_policy(recipe: Recipe, name: str, ports: Sequence[int]) -> Resource:
    """Gateways of any namespace ask it at its ports; it asks the pods that answer, and the API server which those are.

    Where nothing else isolates pods it would do without, but not where a policy of the namespace forbids all.
    """
    pods = {"matchLabels": selector(recipe, "picker")}
    engines: Rule = {"to": [{"podSelector": {"matchLabels": selector(recipe)}}], "ports": [_tcp(PORT)]}
    server: Rule = {"ports": [_tcp(port) for port in _API_SERVER_PORTS]}
    return _policy(recipe, name, pods, [{"ports": [_tcp(port) for port in ports]}], [_DNS, server, engines])


def _named_ports(recipe: Recipe) -> list[int]:
    """Ports of addresses in the engine's settings (HTTPS_PROXY, HF_ENDPOINT, --otlp-traces-endpoint), other than 443.

    At 80 the nodes' own credentials are: that is left to a policy of the cluster's own.
    """
    addresses = (url for value in environment(recipe).values() for url in _URL.findall(value))
    return sorted({port for url in addresses if (port := _port(url))} - {80, 443})


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:  # an address that is none
        return None


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


_DNS: Rule = {"ports": [{"protocol": "UDP", "port": 53}, _tcp(53)]}


def _policy(
    recipe: Recipe, name: str, pods: dict[str, Any], ingress: list[Rule], egress: list[Rule], **more: Any
) -> Resource:
    spec = {"podSelector": pods, "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress}
    return manifest(recipe, "NetworkPolicy", name, spec=spec, **more)
