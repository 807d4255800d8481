"""A recipe as manifests for a cluster, such as EKS. Pure but for reading the container's own files.

The same manifests are applied by `toolkit deploy` and written by `toolkit render`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter

from toolkit.planning.names import without_digest
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules.devices import claim_template
from toolkit.platforms.kubernetes.rules.jobs import benchmark, compile_job
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME, position
from toolkit.platforms.kubernetes.rules.metadata import INSTANCE, manifest, selector, shared
from toolkit.platforms.kubernetes.rules.monitoring import dashboard, monitors, of_endpoint
from toolkit.platforms.kubernetes.rules.pod import disruption_budget, pod_template, rollout_seconds
from toolkit.platforms.kubernetes.rules.roles import roles
from toolkit.platforms.kubernetes.rules.rollback import VERSIONED
from toolkit.platforms.kubernetes.rules.routing import routing
from toolkit.platforms.kubernetes.rules.security import engine_policy
from toolkit.platforms.kubernetes.rules.storage import config_map, volumes
from toolkit.recipe.recipe import Recipe
from toolkit.text import inert

APPLY = "kubectl apply --server-side --field-manager=toolkit"
"""As `deploy` does it: by another way kubectl's fields would be another owner's, which `deploy` refuses to change."""

PARTS = ("namespace", "base", "serve", "compile", "benchmark", "rbac")
"""Sets of manifests, each applied as a whole. `namespace` is where endpoints are, `base` what `serve` and `compile`
both need, `rbac` what its users may be allowed.
"""
Manifest = Mapping[str, Any]

BASE, SERVE = "base", "serve"
"""The parts of what serves."""
_ON_BASE = ("compile",)
# Argo CD ("Sync Options", "Compare Options") and Flux ("Kustomization", prune) remove what a commit no longer has. Pods
# of the version before go on using it during an update, and a rollback needs it.
_UNPRUNED = {
    "argocd.argoproj.io/sync-options": "Prune=false",
    "argocd.argoproj.io/compare-options": "IgnoreExtraneous",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
# Helm makes programs and device claims anew when it rolls back; a volume that it removes stays half deleted as long as
# pods use it, and is gone for the next one.
_KEPT_BY_HELM = {"helm.sh/resource-policy": "keep"}
# Nor may it go with the application that has made it, where other endpoints use it.
_UNDELETED = {**_UNPRUNED, "argocd.argoproj.io/sync-options": "Prune=false,Delete=false"}
# kubectl reads YAML 1.1: these words are no text there unless they are quoted, nor is what begins with a digit.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z/][\w./-]*", re.IGNORECASE)


def resources(recipe: Recipe) -> list[Resource]:
    """All that serves a recipe that has passed its checks. Raises UsageError where no image of the engine is known."""
    settings = cluster(recipe)
    by_annotation = settings.service_account_role and not settings.pod_identity
    annotations = {"eks.amazonaws.com/role-arn": settings.service_account_role} if by_annotation else {}
    account = {"automountServiceAccountToken": False, "annotations": annotations}
    wanted = [
        shared(recipe, "Namespace", settings.namespace),
        manifest(recipe, "ServiceAccount", recipe.name, **account),
        engine_policy(recipe),
        config_map(recipe),
        *volumes(recipe),
        claim_template(recipe),
        _service(recipe),
        _deployment(recipe) if recipe.nodes == 1 else _groups(recipe),
        _autoscaler(recipe),
        disruption_budget(recipe),
        *monitors(recipe),
        *routing(recipe),
    ]
    drawn = dashboard(recipe)
    return [*(_kept(item) for item in wanted if item), *([drawn] if drawn else [])]


def parts(arms: Sequence[Recipe]) -> dict[str, list[Mapping[str, Any]]]:
    """Manifests of the arms by part, in the order in which they are made; a part without any is left out.

    `compile` has a Job for each arm that compiles ahead, `benchmark` one that compares all arms.
    """
    serving = list({(item.kind, item.name): item for arm in arms for item in resources(arm)}.values())
    serving.sort(key=lambda item: position(item.kind))
    by_part = {
        "namespace": [item for item in serving if item.kind == "Namespace"],
        "base": [item for item in serving if KINDS_BY_NAME[item.kind].is_base and item.kind != "Namespace"],
        "serve": [item for item in serving if not KINDS_BY_NAME[item.kind].is_base],
        "compile": [job for arm in arms if (job := compile_job(arm))],
        "benchmark": benchmark(arms),
        "rbac": roles(arms[0]),
    }
    return {part: [item.request for item in by_part[part]] for part in PARTS if by_part[part]}


def _kept(item: Resource) -> Resource:
    """With annotations for what GitOps tools must not remove when a commit no longer has it.

    `deploy` writes them as well: they would go with its next apply otherwise.
    """
    metadata = item.request["metadata"]
    is_shared = INSTANCE not in metadata["labels"]
    if not is_shared and item.kind not in VERSIONED:
        return item
    added = _UNDELETED if is_shared else _UNPRUNED
    in_charts = not is_shared and item.kind in ("PersistentVolume", "PersistentVolumeClaim")
    helm = _KEPT_BY_HELM if in_charts else {}
    annotations = {**metadata.get("annotations", {}), **added, **helm}
    return replace(item, request={**item.request, "metadata": {**metadata, "annotations": annotations}})


def scales(recipe: Recipe) -> bool:
    return recipe.scaling.max_instances > recipe.scaling.min_instances


def _service(recipe: Recipe) -> Resource:
    ports = [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"}]
    spec = {"type": "ClusterIP", "selector": selector(recipe), "ports": ports}
    return manifest(recipe, "Service", recipe.name, spec=spec)


def _deployment(recipe: Recipe) -> Resource:
    """New pods first, unless the recipe says otherwise: the old ones serve until those are healthy, and for ever if
    they never are. It needs accelerators for one more pod. Without them an update waits; the other way, a pod less
    meanwhile, is minutes to hours without any answer, as most endpoints are one pod.
    """
    more = 1 if cluster(recipe).pod.update == "new-first" else 0
    spec = {
        **({} if scales(recipe) else {"replicas": max(1, recipe.scaling.min_instances)}),
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": rollout_seconds(recipe),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": more, "maxUnavailable": 1 - more}},
        "selector": {"matchLabels": selector(recipe)},
        "template": pod_template(recipe, "server"),
    }
    return manifest(recipe, "Deployment", recipe.name, spec=spec)


def _groups(recipe: Recipe) -> Resource:
    """Each replica is a group of pods, of which the leader answers; one that fails takes its group with it, as the
    engine's ranks do not meet again.

    Workers find their leader by a headless Service of the group: that of the set would have the name of our own
    Service, which is not headless, and LeaderWorkerSet makes none where there is one.
    """
    more = 1 if cluster(recipe).pod.update == "new-first" else 0
    spec = {
        **({} if scales(recipe) else {"replicas": max(1, recipe.scaling.min_instances)}),
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxSurge": more, "maxUnavailable": 1 - more},
        },
        "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
        "leaderWorkerTemplate": {
            "size": recipe.nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": pod_template(recipe, "server"),
            "workerTemplate": pod_template(recipe, "worker"),
        },
    }
    return manifest(recipe, "LeaderWorkerSet", recipe.name, spec=spec)


def _autoscaler(recipe: Recipe) -> Resource | None:
    """By requests per pod that answers. KEDA asks Prometheus; without it the metric comes through a Prometheus adapter.

    The engine works on `max_num_seqs` requests at most, so those that wait for it count too: else no load would ever
    exceed a target of that many.
    """
    metrics = recipe.engine_rules.metrics
    if metrics is None or not scales(recipe):
        return None
    kind = "Deployment" if recipe.nodes == 1 else "LeaderWorkerSet"
    target = {"apiVersion": KINDS_BY_NAME[kind].api.version, "kind": kind, "name": recipe.name}
    lowest, most, wanted = max(1, recipe.scaling.min_instances), recipe.scaling.max_instances, recipe.target_requests
    down = {"stabilizationWindowSeconds": recipe.scaling.scale_in_seconds}
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": recipe.scaling.scale_out_seconds},
        "scaleDown": down if recipe.scaling.scale_in else {"selectPolicy": "Disabled"},
    }
    prometheus = cluster(recipe).prometheus
    if prometheus is None:
        metric = {
            "metric": {"name": metrics.names.of_pods},
            "target": {"type": "AverageValue", "averageValue": str(wanted)},
        }
        spec: dict[str, Any] = {
            "scaleTargetRef": target,
            "minReplicas": lowest,
            "maxReplicas": most,
            "metrics": [{"type": "Pods", "pods": metric}],
            "behavior": behavior,
        }
        return manifest(recipe, "HorizontalPodAutoscaler", recipe.name, spec=spec)
    counted = (metrics.names.running_requests, metrics.names.waiting_requests)
    query = " + ".join(f"sum({name}{of_endpoint(recipe)})" for name in counted)
    trigger = {"serverAddress": prometheus, "query": query, "threshold": str(wanted)}
    spec = {
        "scaleTargetRef": target,
        "minReplicaCount": lowest,
        "maxReplicaCount": most,
        "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
    }
    return manifest(recipe, "ScaledObject", recipe.name, spec=spec)


def files(parts: Mapping[str, Sequence[Manifest]]) -> Iterator[tuple[str, str]]:
    """Path and content of each file: a folder for each part. The folder above is what serves, but for `namespace`:
    who deletes one endpoint's folder leaves the others.

    The next version has the same files: their names have no digest of the content.
    """
    for part, manifests in parts.items():
        names = [_file_name(item) for item in manifests]
        for name, item in zip(names, manifests, strict=True):
            yield f"{part}/{name}", text([item])
        yield f"{part}/kustomization.yaml", _kustomization([*([f"../{BASE}"] if part in _ON_BASE else []), *names])
    yield "kustomization.yaml", _kustomization([BASE, SERVE])


def _file_name(item: Manifest) -> str:
    """By kind, endpoint and name. Most names say the endpoint themselves."""
    endpoint, name = item["metadata"]["labels"].get(INSTANCE, ""), without_digest(item["metadata"]["name"])
    return "-".join((item["kind"].lower(), *([] if endpoint in name else [endpoint]), f"{name}.yaml"))


def text(documents: Sequence[Manifest]) -> str:
    """As YAML that means the same to readers of version 1.1 and 1.2."""
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = StringIO()
    yaml.dump_all(documents, stream)
    return inert(stream.getvalue())  # means the same in double quotes, which all that changes stands in


def _kustomization(resources: Sequence[str]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return text([{**head, "resources": list(resources)}])


class _Representer(RoundTripRepresenter):
    """Text is quoted unless it can be taken for nothing else; several lines stand as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        """What stands twice is written twice."""
        return True


def _represent_text(representer: _Representer, value: str) -> Any:
    quotes = "'" if '"' in value else '"'  # JSON is easier to read so
    style = "|" if "\n" in value else None if _PLAIN.fullmatch(value) else quotes
    if inert(value) != value:
        style = '"'
    return representer.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Representer.add_representer(str, _represent_text)
