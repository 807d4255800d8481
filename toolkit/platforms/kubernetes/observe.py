"""Read existing objects of a cluster, their owners, and what server-side apply would change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubernetes.client import ApiException

from toolkit.apply.training import TrainingJob
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.kubernetes.cluster import (
    FIELD_MANAGER,
    Cluster,
    SuppressStatus,
    annotations_of,
    is_ours,
    is_served,
    labels,
    path,
    selector,
)
from toolkit.platforms.kubernetes.documents import Cause, seconds
from toolkit.platforms.kubernetes.errors import causes_of, message_of, missing_kind
from toolkit.platforms.kubernetes.pods import (
    OUT_OF_QUOTA,
    Document,
    condition,
    containers,
    last_refused,
    refusal,
    trouble_of,
)
from toolkit.platforms.kubernetes.rollout import changed, has_ready_pods, history, pods, readable_events, settled
from toolkit.platforms.kubernetes.rules.kinds import AUTOSCALERS, ENDPOINTS, KINDS_BY_NAME, WEIGHTS
from toolkit.platforms.kubernetes.rules.metadata import BENCHMARK, INSTANCE, OURS, TRAINING
from toolkit.platforms.kubernetes.rules.several_nodes import (
    GROUP_SERVICES,
    OVERTAKEN,
    READY,
    group_services,
    wanted_services,
)
from toolkit.platforms.kubernetes.rules.storage import WEIGHTS_ANNOTATION

# What the API server and controllers write, which is no change of ours.
_BOOKKEEPING = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
# `conflict with "kubectl" with subresource "scale" using apps/v1`: apimachinery's managedfields.
_MANAGER = re.compile(r'conflict with "([^"]+)"')
_IMMUTABLE = re.compile(r"immutable|may not change once set")
# Autoscalers write through a Deployment's scale: the cluster's own, which runs in the first of these programs, and
# KEDA's operator below the least number of pods (pkg/scaling/executor/scale_scaledobjects.go).
_REPLICAS_SET_BY = {(program, ".spec.replicas") for program in ("kube-controller-manager", "keda")}
_ERROR = "error: "
_Ours = Mapping[tuple[str, str], Mapping[str, Any]]


def observe(cluster: Cluster, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
    """What exists of `desired`, all that is labelled for one of `endpoints`, and what our endpoints share."""
    ours, unseen = _all_ours(cluster, {item.kind for item in desired})
    users = tuple(sorted({labels(item)[INSTANCE] for item in ours.values() if INSTANCE in labels(item)}))
    in_the_way, of_two = [*_in_the_way(ours, desired, endpoints)], _of_two(ours)
    existing = [_weights(current) for current in ours.values() if WEIGHTS_ANNOTATION in annotations_of(current)]
    existing = [item for item in existing if {*item.endpoints} & {*endpoints}]
    for item in desired:
        if item.kind == WEIGHTS.kind:
            continue
        current = ours.pop((item.kind, item.name), None) or cluster.find(path(item.kind, cluster.namespace, item.name))
        if current:
            existing.append(_existing(item.kind, current, users, _state(cluster, item, current)))
    existing += [
        _existing(kind, current, users, _history(cluster, kind, current))
        for (kind, _), current in ours.items()
        if labels(current).get(INSTANCE) in (None, *endpoints) and not (desired and _is_by_hand(kind, current))
    ]
    existing = [replace(item, state={**item.state, **of_two.get((item.kind, item.name), {})}) for item in existing]
    return Observed((*existing, *in_the_way), unseen)


def _of_two(ours: _Ours) -> dict[tuple[str, str], dict[str, bool]]:
    """Of endpoints that are there on one node and on several: of others a plan is not stale when a pod is."""
    found: dict[str, list[tuple[str, Document]]] = {}
    for (kind, name), current in ours.items():
        if kind in ENDPOINTS:
            found.setdefault(name, []).append((kind, current))
    return {
        (kind, name): {READY: has_ready_pods(current), OVERTAKEN: _is_in_service(current) and current is not newest}
        for name, both in found.items()
        if len(both) > 1
        for newest in [max((current for _, current in both), key=changed)]
        for kind, current in both
    }


def _is_in_service(endpoint: Document) -> bool:
    now = settled(endpoint)
    return now is not None and now.status == "InService"


def _in_the_way(ours: _Ours, desired: Sequence[Resource], endpoints: Sequence[str]) -> Iterator[Existing]:
    """Other endpoints' objects that keep groups of pods from their own Services, or have such a Service."""
    wanted = {item.name for item in desired if item.kind == "Service"}
    own = {name for names in wanted_services(desired).values() for name in names}
    for (kind, name), current in ours.items():
        if (user := labels(current).get(INSTANCE)) is None or user in endpoints:
            continue
        if kind == "Service" and name in own:
            yield _existing(kind, current, (), {})
        if kind == "LeaderWorkerSet":
            autoscaler = next((ours[other, name] for other in AUTOSCALERS if (other, name) in ours), None)
            if names := wanted & group_services(current, autoscaler):
                yield _existing(kind, current, (), {GROUP_SERVICES: sorted(names)})


def _state(cluster: Cluster, item: Resource, current: Mapping[str, Any]) -> dict[str, Any]:
    """What the rule of a desired object's kind decides by."""
    if item.kind == "Job":
        job = job_status(cluster, current)
        return {"Status": job.status, "Reason": job.reason}
    return {**compared(cluster, item, current), **_history(cluster, item.kind, current)}


def _history(cluster: Cluster, kind: str, current: Mapping[str, Any]) -> dict[str, Any]:
    return history(cluster, current) if kind in ENDPOINTS and is_ours(current) else {}


def apply(
    cluster: Cluster,
    kind: str,
    manifest: Mapping[str, Any],
    current: Mapping[str, Any] | None,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Server-side apply to what is there, and to no later version of it; what it comes to. Raises ApiException.

    The number of pods goes from hand to hand: one that we have set stays until our autoscaler sets it, and what that
    has set is ours again once the recipe says a number. An autoscaler of somebody else's goes on setting it. One that
    was paused begins with a pod: an autoscaler leaves a Deployment without pods alone.
    """
    name = manifest["metadata"]["name"]
    url_path = path(kind, cluster.namespace, name)
    if current and kind in ENDPOINTS and "replicas" not in manifest["spec"] and _set_by_us(current):
        manifest = {**manifest, "spec": {**manifest["spec"], "replicas": max(1, current["spec"]["replicas"])}}
    if current and not dry_run:
        conditions = {name: current["metadata"][name] for name in ("uid", "resourceVersion")}
        manifest = {**manifest, "metadata": {**manifest["metadata"], **conditions}}
    try:
        return cluster.apply(url_path, manifest, dry_run=dry_run)
    except ApiException as error:
        claims = set(conflicts(error))
        if not claims or claims - _REPLICAS_SET_BY:
            raise
    if _is_scaled_by_others(cluster, name):
        spec = {key: value for key, value in manifest["spec"].items() if key != "replicas"}
        return cluster.apply(url_path, {**manifest, "spec": spec}, dry_run=dry_run)
    return cluster.apply(url_path, manifest, dry_run=dry_run, force=True)


def conflicts(error: ApiException) -> list[tuple[str, str]]:
    """Field managers and the fields that they want otherwise; empty when that is not what is wrong."""
    claims = [(_MANAGER.search(cause.get("message", "")), cause.get("field", "")) for cause in causes_of(error)]
    return [(manager[1], field) for manager, field in claims if manager]


def changes(before: Any, after: Any, field_path: str = "") -> Iterator[str]:
    """Paths of all that differs; items of lists by their name where they have one."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            if (field_path, key) not in _IGNORED:
                yield from changes(before.get(key), after.get(key), f"{field_path}.{key}" if field_path else key)
    elif _are_named(before) and _are_named(after):
        old, new = ({item["name"]: item for item in items} for items in (before, after))
        for name in sorted({*old, *new}):
            yield from changes(old.get(name), new.get(name), f"{field_path}[{name}]")
    elif before != after:
        yield field_path


_IGNORED = {
    *(("", key) for key in ("status", "apiVersion", "kind")),
    *(("metadata", key) for key in _BOOKKEEPING),
    ("metadata.annotations", "deployment.kubernetes.io/revision"),  # counted by a controller, perhaps just now
}


def _are_named(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, Mapping) and "name" in item for item in items)


def _is_by_hand(kind: str, current: Mapping[str, Any]) -> bool:
    """Whether it is a Job, done once and gone by itself, or what a Job needs: deployments leave those alone."""
    return kind == "Job" or any(job.items() <= labels(current).items() for job in (BENCHMARK, TRAINING))


def _set_by_us(deployment: Mapping[str, Any]) -> bool:
    """Whether the number of pods is what we applied last."""
    managed = deployment["metadata"].get("managedFields") or []
    ours = ((item.get("fieldsV1") or {}).get("f:spec") for item in managed if item.get("manager") == FIELD_MANAGER)
    return any("f:replicas" in (spec or {}) for spec in ours)


def _is_scaled_by_others(cluster: Cluster, deployment: str) -> bool:
    """Whether there is an autoscaler that neither we nor, for us, KEDA made, which has our labels."""
    return any(
        item["spec"]["scaleTargetRef"]["name"] == deployment and not is_ours(item)
        for item in cluster.items(path("HorizontalPodAutoscaler", cluster.namespace), {})
    )


def _all_ours(cluster: Cluster, wanted: set[str]) -> tuple[dict[tuple[str, str], dict[str, Any]], tuple[str, ...]]:
    """All that the toolkit made in the namespace, and what of it we may not see.

    For a deployment we made nothing of a kind that we may not see and do not want. A removal must see all but the rare
    kinds, and tells of those. Raises PlatformError for a wanted kind that the cluster does not have.
    """
    ours: dict[tuple[str, str], dict[str, Any]] = {}
    unseen = []
    for kind, rule in KINDS_BY_NAME.items():
        try:
            ours |= {(kind, item["metadata"]["name"]): item for item in _ours(cluster, kind)}
        except ApiException as error:
            # Who may see nothing of a kind is forbidden it also where there is no such kind.
            is_missing = error.status == 404 or (error.status == 403 and not is_served(cluster, kind))
            if is_missing and kind in wanted:
                raise missing_kind(kind) from error
            if is_missing:
                continue
            if error.status != 403 or kind in wanted or not (wanted or rule.is_rare):
                raise
            if not wanted:
                unseen.append(f"a possible {kind} of this endpoint, which could not be read: {message_of(error)}")
    return ours, tuple(unseen)


def _ours(cluster: Cluster, kind: str) -> list[dict[str, Any]]:
    """All of a kind that the toolkit made in the namespace. Of a volume it is its claim that says where it belongs."""
    if kind == "Namespace":  # who works in one namespace may not list them all
        current = cluster.find(path(kind, "", cluster.namespace))
        return [current] if current and is_ours(current) else []
    # Roles without an endpoint are those of the toolkit's users (`render --part rbac`), and no endpoint's.
    wanted = f"{selector(OURS)},{INSTANCE}" if kind == "Role" else selector(OURS)
    listed = cluster.items(path(kind, cluster.namespace), {"labelSelector": wanted})
    # KEDA makes an autoscaler with all labels of our ScaledObject. What has an owner goes with it.
    listed = [item for item in listed if not item["metadata"].get("ownerReferences")]
    if kind == "PersistentVolume":
        return [item for item in listed if (item["spec"].get("claimRef") or {}).get("namespace") == cluster.namespace]
    return listed


def _weights(volume: Mapping[str, Any]) -> Existing:
    state = {"Uri": annotations_of(volume)[WEIGHTS_ANNOTATION]}
    return Existing(WEIGHTS.kind, volume["metadata"]["name"], True, (labels(volume)[INSTANCE],), state)


def _existing(kind: str, current: Mapping[str, Any], users: tuple[str, ...], state: Mapping[str, Any]) -> Existing:
    """What several endpoints share is used by all that are in the namespace."""
    instance = labels(current).get(INSTANCE)
    going = {"Deleting": True} if current["metadata"].get("deletionTimestamp") else {}
    return Existing(
        kind, current["metadata"]["name"], is_ours(current), (instance,) if instance else users, {**state, **going}
    )


def compared(cluster: Cluster, item: Resource, current: Mapping[str, Any]) -> dict[str, Any]:
    """`Changes` are paths that applying it would change, `Conflicts` pairs of field manager and path that forbid it,
    `Immutable` the fields that stand in its way. Empty for what is not ours.
    """
    if not is_ours(current):
        return {}
    try:
        after = apply(cluster, item.kind, item.request, current, dry_run=True)
    except ApiException as error:
        if owners := conflicts(error):
            return {"Conflicts": [[manager, field.lstrip(".")] for manager, field in owners]}
        causes = causes_of(error)
        if error.status == 422 and causes and all(map(_is_immutable, causes)):
            return {"Immutable": sorted({cause["field"] for cause in causes})}
        raise
    return {"Changes": list(changes(current, after))}


def _is_immutable(cause: Cause) -> bool:
    """A policy's words name no field: what it refuses would be refused anew, once the object was deleted for it."""
    return bool(cause.get("field") and _IMMUTABLE.search(cause.get("message", "")))


def job_status(cluster: Cluster, job: Document) -> TrainingJob:
    """The Job now. One whose pod can never start, as without an image, has failed: it would wait for its deadline."""
    name, status = job["metadata"]["name"], job.get("status", {})
    began = seconds(job["metadata"]["creationTimestamp"])
    if (complete := condition(status, "Complete")).get("status") == "True":
        return TrainingJob(name, "Completed", "Completed", "", began, _when(complete, began))
    its_pods: list[Document] = []
    with SuppressStatus(403):  # who may not see them sees what the Job says
        its_pods += pods(cluster, job)
    if (failed := condition(status, "Failed")).get("status") == "True":
        reason = f"{failed.get('reason', '')}: {failed.get('message', '')}"
        return TrainingJob(name, "Failed", "Failed", _last_words(its_pods) or reason, began, _when(failed, began))
    if not its_pods:
        refused = last_refused([event for event in readable_events(cluster, job, "Job") if _is_of(event, job)])
        trouble = refusal(refused) if refused else None
        # Another Job may have the quota, and end.
        ends = trouble and trouble.certain and OUT_OF_QUOTA not in trouble.text
        return TrainingJob(
            name, "Failed" if ends else "InProgress", "Pending", trouble.text if trouble else "", began, began
        )
    entered = seconds(its_pods[-1]["metadata"]["creationTimestamp"])
    trouble = trouble_of(its_pods[-1], readable_events(cluster, its_pods[-1]))
    if trouble and trouble.certain:
        return TrainingJob(name, "Failed", "Failed", trouble.text, began, entered)
    stage = "Training" if its_pods[-1].get("status", {}).get("phase") == "Running" else "Starting"
    return TrainingJob(name, "InProgress", stage, trouble.text if trouble else "", began, entered)


def _is_of(event: Document, job: Document) -> bool:
    """Not of the Job that it replaced, which had the same name."""
    return bool(event.get("involvedObject", {}).get("uid") == job["metadata"]["uid"])


def _last_words(of: list[Document]) -> str:
    """What the container of the newest pod said of its failure; empty where it said nothing."""
    ended = (
        container.get("state", {}).get("terminated") or {} for pod in reversed(of) for container in containers(pod)
    )
    texts = (str(state.get("message", "")) for state in ended)
    lines = (line for text in texts for line in text.splitlines() if line.startswith(_ERROR))
    return next(lines, "").removeprefix(_ERROR)


def _when(condition_now: Document, otherwise: float) -> float:
    return seconds(condition_now["lastTransitionTime"]) if "lastTransitionTime" in condition_now else otherwise
