"""What a recipe's `kubernetes.pod` adds to the engine's pods."""

from __future__ import annotations

from typing import Any

from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import PodUser, Toleration
from toolkit.platforms.kubernetes.rules.devices import placement
from toolkit.platforms.kubernetes.rules.metadata import manifest, section, selector
from toolkit.platforms.kubernetes.rules.security import pod_security, runs_as_root
from toolkit.recipe.recipe import Recipe


def adapted(recipe: Recipe) -> dict[str, Any]:
    """Nodes, user, class and credentials of the engine's pods."""
    wanted = section(recipe).pod
    found = placement(recipe)
    if wanted.node_selector:
        found["nodeSelector"] = {**found.get("nodeSelector", {}), **wanted.node_selector}
    if wanted.tolerations:
        found["tolerations"] = [*found.get("tolerations", []), *map(_toleration, wanted.tolerations)]
    named = {
        "priorityClassName": wanted.priority_class,
        "runtimeClassName": wanted.runtime_class,
        "imagePullSecrets": [{"name": name} for name in wanted.image_pull_secrets],
    }
    return {
        "securityContext": {**pod_security(root=runs_as_root(recipe)), **_user(wanted.security_context or PodUser())},
        **found,
        **{key: value for key, value in named.items() if value},
    }


def disruption_budget(recipe: Recipe) -> Resource | None:
    """How many pods draining nodes must leave running; None where the recipe says nothing."""
    least = section(recipe).pod.min_available
    if least is None:
        return None
    spec = {"minAvailable": least, "selector": {"matchLabels": selector(recipe)}}
    return manifest(recipe, "PodDisruptionBudget", recipe.name, spec=spec)


def _toleration(wanted: Toleration) -> dict[str, Any]:
    by_value = {"operator": "Exists"} if wanted.value is None else {"operator": "Equal", "value": wanted.value}
    return {"key": wanted.key, **by_value, **({"effect": wanted.effect} if wanted.effect else {})}


def _user(wanted: PodUser) -> dict[str, Any]:
    found: dict[str, Any] = {
        "runAsUser": wanted.run_as_user,
        "runAsGroup": wanted.run_as_group,
        "fsGroup": wanted.fs_group,
    }
    given = {key: value for key, value in found.items() if value is not None}
    return given if wanted.run_as_user is None else {**given, "runAsNonRoot": wanted.run_as_user != 0}
