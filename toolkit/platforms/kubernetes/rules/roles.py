"""What the toolkit's users need of a cluster's RBAC, by what they do. Who gets a role is for the cluster to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules.kinds import KINDS
from toolkit.platforms.kubernetes.rules.metadata import OURS
from toolkit.platforms.kubernetes.rules.routing import PICKER_RULES
from toolkit.recipe.recipe import Recipe

_RBAC = "rbac.authorization.k8s.io/v1"
_LOOK = ("get", "list")
# Server-side apply creates what is not there, and a plan is its dry run.
_APPLY = (*_LOOK, "create", "patch", "delete")

Rule = dict[str, Any]


def _rule(api_version: str, resources: Sequence[str], verbs: Sequence[str]) -> Rule:
    group = api_version.rpartition("/")[0]
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_READ = [
    _rule("apps/v1", ("deployments", "replicasets", "statefulsets"), _LOOK),
    _rule("leaderworkerset.x-k8s.io/v1", ("leaderworkersets",), _LOOK),
    _rule("batch/v1", ("jobs",), _LOOK),
    _rule("v1", ("pods", "events"), _LOOK),
    _rule("v1", ("pods/log",), ("get",)),
]
_ASK = [_rule("v1", ("services/proxy",), ("get", "create")), _rule("v1", ("pods/proxy",), ("get",))]


def roles(recipe: Recipe) -> list[Resource]:
    """For reading (`status`, `logs`, `explain`), watching (also `watch`, `metrics`, `prove` and requests) and deploying
    (all). The last needs also the ClusterRole: namespaces and volumes are no namespace's.
    """
    deploys = [
        *(_rule(rule.api.version, (rule.api.plural,), _APPLY) for rule in KINDS if rule.api.namespaced),
        _rule("coordination.k8s.io/v1", ("leases",), ("get", "create", "update", "delete")),
        # For a moment, where a trained head is copied.
        _rule("v1", ("pods",), ("create", "delete")),
        # Nobody may give rights away that they do not have.
        *PICKER_RULES,
    ]
    namespace = cluster(recipe).namespace
    everywhere = [
        {**_rule("v1", ("namespaces",), ("get", "create", "patch")), "resourceNames": [namespace]},
        # Their names have their content, so that nobody knows them before.
        _rule("v1", ("persistentvolumes",), _APPLY),
    ]
    return [
        _role("Role", "toolkit-read", _READ, namespace),
        _role("Role", "toolkit-watch", [*_READ, *_ASK], namespace),
        _role("Role", "toolkit-deploy", [*_READ, *_ASK, *deploys], namespace),
        _role("ClusterRole", f"toolkit-deploy-{namespace}", everywhere),
    ]


def _role(kind: str, name: str, rules: Sequence[Rule], namespace: str | None = None) -> Resource:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(OURS)}
    return Resource(kind, name, {"apiVersion": _RBAC, "kind": kind, "metadata": metadata, "rules": list(rules)})
