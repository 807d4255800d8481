"""What a pod may do on its node, and whom it may talk to: as little as it needs.

All but pods on Trainium pass the Pod Security Standard `restricted`: those run as root, without a right of root's, as
neither Neuron's images nor its device plugin say that another user may open /dev/neuron*. NVIDIA's devices are open to
every user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.rules.metadata import BENCHMARK, COMPONENT, INSTANCE, TRAINING, manifest
from toolkit.recipe.recipe import Recipe

PORT = 8080
"""Where SageMaker and our entrypoint have it."""

TEMPORARY = {"tmp": "/tmp", "var-tmp": "/var/tmp"}  # noqa: S108
"""Volumes on the pod's own disk, and the folders that programs expect to write to."""

# It has an entry in every image's /etc/passwd, without which PyTorch finds no folder for its cache.
_NOBODY = 65534
_EKS_POD_IDENTITY = "169.254.170.23/32"  # AWS: "EKS Pod Identity agent"

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

    It reaches the hub and AWS, and not the node's own credentials (169.254.169.254). Policies add up: one of the
    cluster's own can allow more, such as a proxy.
    """
    components = ["server", "compile", *(["worker"] if recipe.nodes > 1 else [])]
    pods = {
        "matchLabels": {INSTANCE: recipe.name},
        "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": components}],
    }
    https: Rule = {"ports": [_tcp(443)]}
    identity: Rule = {"to": [{"ipBlock": {"cidr": _EKS_POD_IDENTITY}}], "ports": [_tcp(80)]}
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


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


_DNS: Rule = {"ports": [{"protocol": "UDP", "port": 53}, _tcp(53)]}


def _policy(
    recipe: Recipe, name: str, pods: dict[str, Any], ingress: list[Rule], egress: list[Rule], **more: Any
) -> Resource:
    spec = {"podSelector": pods, "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress}
    return manifest(recipe, "NetworkPolicy", name, spec=spec, **more)
