"""The pod that runs an engine, to serve or to compile. Pure but for reading the container's files and local models.

The engine's public image runs as it is: programs, models and compiled code are mounted (storage.py), or models come
from the hub.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic.alias_generators import to_camel

from toolkit.engines.arguments import environment, flag_variables
from toolkit.planning import artifacts
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import base_image
from toolkit.platforms.kubernetes.keys import PodUser, Toleration, cluster
from toolkit.platforms.kubernetes.rules.devices import claims, container_resources, on_trainium, placement
from toolkit.platforms.kubernetes.rules.metadata import (
    COMPONENT,
    INSTANCE,
    Component,
    manifest,
    pod_labels,
    selector,
)
from toolkit.platforms.kubernetes.rules.security import PORT, TEMPORARY, container_security, pod_security
from toolkit.platforms.kubernetes.rules.several_nodes import GROUP_KEY, LEADER_ADDRESS, WORKER_INDEX
from toolkit.platforms.kubernetes.rules.storage import ARTIFACTS, CACHE, HUB_CACHE, PROGRAMS, mounts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Rank

CONTAINER = "engine"
AT_START_SECONDS = 570 * 30
"""How long an engine that compiles while it starts may take: 4 h 45 min, as in aws-neuron-eks-samples."""

_PROBE_SECONDS = 10
# Karpenter moves pods to cheaper nodes; what compiles would begin anew.
_UNDISTURBED = {"karpenter.sh/do-not-disrupt": "true"}
_START_SECONDS = 3600
# On top of the container's start: the node, its volumes, an image of ten gigabytes or more. An estimate.
PULL_SECONDS = 1800
# The pod gets no new requests any more once its address is out of all nodes' tables, which takes seconds; then
# serve_middleware.py drains, and the engine ends its processes.
_PRE_STOP_SECONDS, _END_SECONDS = 10, 35
# What compiles ends the engine that it has started (compiling.py, END_SECONDS).
_COMPILE_GRACE_SECONDS = 70
# A slow stream: a guess, as a longer drain costs only time. The cluster autoscaler kills what has not ended after 600 s
# (its --max-graceful-termination-sec), from the first of the three steps to the last.
_TOKENS_PER_SECOND, _MOST_DRAIN_SECONDS = 20, 600 - _PRE_STOP_SECONDS - _END_SECONDS


def start_seconds(recipe: Recipe) -> int:
    """How long a container may take until it has answered its first request."""
    if recipe.engine_rules.compilation and not recipe.engine.compile_ahead:
        return AT_START_SECONDS
    return recipe.platform.health_check_timeout or _START_SECONDS


def rollout_seconds(recipe: Recipe) -> int:
    """How long a pod may take until it is ready, where it waits for the accelerators of one that ends."""
    return start_seconds(recipe) + PULL_SECONDS + drain_seconds(recipe)


def drain_seconds(recipe: Recipe) -> int:
    """How long a pod that ends lets open requests go on."""
    longest = recipe.engine.max_model_len
    default = math.ceil(longest / _TOKENS_PER_SECOND) if longest else _MOST_DRAIN_SECONDS
    return cluster(recipe).pod.drain_seconds or min(default, _MOST_DRAIN_SECONDS)


def pod_template(recipe: Recipe, component: Component) -> dict[str, Any]:
    """The pod that serves, a node's share of it, or what compiles: the same but for its program, who asks it, and who
    may write to the bucket.
    """
    answers, compiles = component == "server", component == "compile"
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT), "prometheus.io/path": "/metrics"}
    mounted = mounts(recipe, read_only=not compiles)
    container = {
        "name": CONTAINER,
        "image": base_image(recipe, Account("", "")),
        "command": ["python3", f"{PROGRAMS}/{'compile' if compiles else 'serve'}"],
        "env": _environment(recipe, component),
        "resources": container_resources(recipe, compiles=compiles),
        "volumeMounts": [item.mount for item in mounted],
        "securityContext": container_security(),
        # Neuron's compiler writes into the folder that it runs in.
        **({"workingDir": TEMPORARY["tmp"]} if on_trainium(recipe) else {}),
        **(_serving(recipe) if answers else {}),
    }
    spec = {
        "serviceAccountName": recipe.name,
        "automountServiceAccountToken": False,  # a role's token (IRSA) is mounted all the same
        "enableServiceLinks": False,  # variables such as <NAME>_PORT, which an engine may take for its own
        **_together(recipe, adapt_pod(recipe)),
        **claims(recipe),
        **_node_cache(recipe),
        "containers": [container],
        "volumes": [item.volume for item in mounted],
        "terminationGracePeriodSeconds": grace_seconds(recipe, component),
        **({"restartPolicy": "Never"} if compiles else _spread(recipe)),
    }
    # A pod gets a role when it is made, so that another role, or another way to it, wants other pods.
    role, own = cluster(recipe).service_account_role, cluster(recipe).pod.annotations
    if cluster(recipe).pod_identity:
        role = f"pod-identity:{role}"
    if cluster(recipe).monitors is not None:
        scraped = {}  # it would count everything twice
    ours = scraped if answers else _UNDISTURBED if compiles else {}
    annotations = {**ours, **own, **({"toolkit/role": role} if role else {})}
    about = {"annotations": annotations} if annotations else {}
    return {"metadata": {"labels": pod_labels(recipe, component), **about}, "spec": spec}


def grace_seconds(recipe: Recipe, component: Component) -> int:
    """How long it gets to end. A worker is told to when its leader, which has drained, is gone."""
    if component == "server":
        return _PRE_STOP_SECONDS + drain_seconds(recipe) + _END_SECONDS
    return _COMPILE_GRACE_SECONDS if component == "compile" else _END_SECONDS


def _together(recipe: Recipe, places: dict[str, Any]) -> dict[str, Any]:
    """Nodes that run a model together are in one zone: its layers wait for what goes from one to the other.

    The label is the group's own (LeaderWorkerSet's webhook), and so those of other groups may be elsewhere.
    """
    if recipe.nodes == 1:
        return places
    near = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {INSTANCE: recipe.name}},
        "matchLabelKeys": [GROUP_KEY],
    }
    wanted = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    return {**places, "affinity": {**places.get("affinity", {}), **wanted}}


def _spread(recipe: Recipe) -> dict[str, Any]:
    """On several zones and nodes where there are accelerators; those of one version, as the others are about to go."""
    if recipe.nodes > 1:
        return {}
    one = {
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(recipe)},
        "matchLabelKeys": ["pod-template-hash"],
    }
    keys = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    return {"topologySpreadConstraints": [{**one, "topologyKey": key} for key in keys]}


def _node_cache(recipe: Recipe) -> dict[str, Any]:
    """Opens the node's folder for the users of its pods: the kubelet makes it root's."""
    if cluster(recipe).weights_cache != "node":
        return {}
    opens = {
        "name": "hub-cache",
        "image": base_image(recipe, Account("", "")),
        "command": ["python3", "-c", f"import os; os.chmod({HUB_CACHE!r}, 0o1777)"],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "hub", "mountPath": HUB_CACHE}],
        "securityContext": {**container_security(), "runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0},
    }
    return {"initContainers": [opens]}


def _environment(recipe: Recipe, component: Component) -> list[dict[str, Any]]:
    """As the entrypoint reads it. Weights and caches go to the pod's disk; the hub's token stays in its Secret."""
    more = {"TOOLKIT_DRAIN_SECONDS": str(drain_seconds(recipe))} if component == "server" else {}
    home = {"HOME": CACHE, "HF_HOME": HUB_CACHE}
    caches = {name: f"{CACHE}/{folder}" for name, folder in recipe.engine_rules.cache_folders.items()}
    ours = {**home, **caches}
    compiled = artifacts.variables(recipe, f"{ARTIFACTS}/{artifacts.key(recipe)}")
    # Kubernetes reads $(NAME) in a value, and $$ as $.
    every = {**ours, **more, **environment(recipe), **compiled}
    plain = {name: value.replace("$", "$$") for name, value in every.items()}
    plain |= _of_rank(recipe, leads=component == "server")
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(plain.items())]
    return [*variables, *hub_token(recipe)]


def _of_rank(recipe: Recipe, *, leads: bool) -> dict[str, str]:
    """What makes the pod one of a group; LeaderWorkerSet's own variables stand before these, and are filled in."""
    rank_flags = recipe.engine_rules.rank_flags
    if recipe.nodes == 1 or rank_flags is None:
        return {}
    rank = Rank(recipe.nodes, f"$({WORKER_INDEX})", f"$({LEADER_ADDRESS})", leads)
    return flag_variables(recipe, rank_flags(rank))


def hub_token(recipe: Recipe) -> list[dict[str, Any]]:
    secret = recipe.platform.hub_token_secret
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}}] if secret else []


def _serving(recipe: Recipe) -> dict[str, Any]:
    """Port, probes and end.

    /ping is 503 until a generation has worked, and again while the pod drains: no requests for it then. Whether it
    lives is asked only in between, by /health, which fails when the engine has died, and by serve_middleware.py also
    when it is stuck.
    """
    ping = {"httpGet": {"path": "/ping", "port": "http"}, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 5}
    health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 30, "timeoutSeconds": 10}
    return {
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**ping, "failureThreshold": math.ceil(start_seconds(recipe) / _PROBE_SECONDS)},
        "readinessProbe": {**ping, "failureThreshold": 3},
        "livenessProbe": {**health, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": _PRE_STOP_SECONDS}}},
    }


def adapt_pod(recipe: Recipe) -> dict[str, Any]:
    """Nodes, user, class and credentials of the engine's pods."""
    wanted = cluster(recipe).pod
    places = placement(recipe)
    if wanted.node_selector:
        places["nodeSelector"] = {**places.get("nodeSelector", {}), **wanted.node_selector}
    if wanted.tolerations:
        places["tolerations"] = [*places.get("tolerations", []), *map(_toleration, wanted.tolerations)]
    named = {
        "priorityClassName": wanted.priority_class,
        "runtimeClassName": wanted.runtime_class,
        "imagePullSecrets": [{"name": name} for name in wanted.image_pull_secrets],
    }
    return {
        "securityContext": {**pod_security(root=on_trainium(recipe)), **_user(wanted.security_context or PodUser())},
        **places,
        **{key: value for key, value in named.items() if value},
    }


def disruption_budget(recipe: Recipe) -> Resource | None:
    least = cluster(recipe).pod.min_available
    if least is None:
        return None
    spec: dict[str, Any] = {"minAvailable": least, "selector": {"matchLabels": selector(recipe)}}
    if recipe.nodes > 1:  # a group goes with any of its pods
        parts = [{"key": COMPONENT, "operator": "In", "values": ["server", "worker"]}]
        most = max(0, recipe.scaling.min_instances - least)
        spec = {
            "maxUnavailable": most,
            "selector": {"matchLabels": {INSTANCE: recipe.name}, "matchExpressions": parts},
        }
    return manifest(recipe, "PodDisruptionBudget", recipe.name, spec=spec)


def _toleration(wanted: Toleration) -> dict[str, Any]:
    by_value = {"operator": "Exists"} if wanted.value is None else {"operator": "Equal", "value": wanted.value}
    return {"key": wanted.key, **by_value, **({"effect": wanted.effect} if wanted.effect else {})}


def _user(wanted: PodUser) -> dict[str, Any]:
    given: dict[str, Any] = {to_camel(key): value for key, value in wanted.model_dump(exclude_none=True).items()}
    return given if wanted.run_as_user is None else {**given, "runAsNonRoot": wanted.run_as_user != 0}
