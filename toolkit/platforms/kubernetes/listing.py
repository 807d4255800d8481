"""The endpoints of a cluster, by few requests: what is around them is listed for a namespace, not for each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from kubernetes.client import ApiException

from toolkit.apply.waiter import EndpointStatus
from toolkit.endpoint.platform import Deployed
from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, path, selector
from toolkit.platforms.kubernetes.documents import seconds
from toolkit.platforms.kubernetes.pods import Document, is_ready
from toolkit.platforms.kubernetes.rollout import (
    Around,
    changed,
    controller,
    event_time,
    is_group,
    judged,
    log_of,
    settled,
)
from toolkit.platforms.kubernetes.rules.kinds import ENDPOINTS, is_beside, nodes_of, pods_of
from toolkit.platforms.kubernetes.rules.metadata import OURS
from toolkit.platforms.kubernetes.rules.several_nodes import SET_NAME

_TYPE = "node.kubernetes.io/instance-type"
_ANY = "pods"
# Of more endpoints in a namespace that are not in service no logs are read: each takes requests of its own.
_MOST_WITH_LOGS = 10
_OF_OURS = {"labelSelector": selector(OURS)}
_KEPT_OF_EVENTS = ("reason", "message", "lastTimestamp", "eventTime", "count", "series")
_KEPT_OF_METADATA = ("name", "uid", "ownerReferences", "creationTimestamp", "annotations", "labels")


def read_deployed(
    cluster: Cluster, is_wanted: Callable[[str], bool], *, reads_all_logs: bool, everywhere: bool
) -> list[Deployed]:
    """All that we made in the namespace, by name; `everywhere` in all where we may look into all. Raises ApiException.

    A first crash is a failure where the log says so: that is read of few, or with `reads_all_logs` of all.
    """
    found: list[Deployed] = []
    waiting: defaultdict[str, list[Document]] = defaultdict(list)
    newest: dict[tuple[str, str], dict[str, Any]] = {}  # two are there while one goes from a node to several, or back
    for item in chain.from_iterable(_endpoints(cluster, kind, everywhere) for kind in ENDPOINTS):
        named = item["metadata"]["namespace"], item["metadata"]["name"]
        if is_wanted(named[1]):
            newest[named] = max(newest.get(named, item), item, key=changed)
    for item in newest.values():
        if now := settled(item):
            found.append(_deployed(cluster, item, now))
        else:
            waiting[item["metadata"]["namespace"]].append(item)
    for namespace, some in waiting.items():
        reads_logs = reads_all_logs or len(some) <= _MOST_WITH_LOGS
        around = _around(replace(cluster, namespace=namespace), some, reads_logs=reads_logs)
        found += [_deployed(cluster, item, judged(item, around)) for item in some]
    return sorted(found, key=lambda item: (item.name, item.region))


def _endpoints(cluster: Cluster, kind: str, everywhere: bool) -> Iterator[dict[str, Any]]:
    """All of a kind of endpoints."""
    if everywhere:
        try:
            yield from _seen(cluster, kind, "", 404)
            return
        except ApiException as error:
            if error.status != 403:
                raise
    yield from _seen(cluster, kind, cluster.namespace, 403, 404)


def _seen(cluster: Cluster, kind: str, namespace: str, *unseen: int) -> Iterator[dict[str, Any]]:
    """A cluster may lack LeaderWorkerSets, and who may not see them has none: these statuses are no error for them."""
    with SuppressStatus(*(unseen if kind == "LeaderWorkerSet" else ())):
        yield from (item for item in cluster.each(path(kind, namespace), _OF_OURS) if not is_beside(item))


def _around(cluster: Cluster, deployments: Sequence[Document], *, reads_logs: bool) -> Around:
    """What is around the endpoints of a namespace, by a list of each kind; of each object what is needed is kept."""

    def log(of: Sequence[Document]) -> list[str]:
        return log_of(cluster, of) if reads_logs else []

    sets: list[Document] = []
    pods: list[Document] = []
    events: defaultdict[tuple[str, str], list[Document]] = defaultdict(list)
    around = Around(sets, pods, lambda item, kind: sorted(events[kind, item["metadata"]["name"]], key=event_time), log)
    with SuppressStatus(403):  # who may deploy need not be one who may look at pods
        for kind in sorted({controller(item) for item in deployments}):
            query = _OF_OURS if kind == "ReplicaSet" else {"labelSelector": SET_NAME}
            sets += [_cut(item) for item in cluster.each(path(kind, cluster.namespace), query)]
        pods += [_cut(item) for item in cluster.each(path("Pod", cluster.namespace), _OF_OURS)]
        newest = (pod for deployment in deployments for pod in around.newest_pods(deployment))
        told_of = {("Pod", pod["metadata"]["name"]) for pod in newest if not is_ready(pod)}
        makers = (maker for item in deployments if is_group(item) for maker in around.makers(item))
        told_of |= {(kind, maker["metadata"]["name"]) for maker, kind in makers}
        for kind in sorted({kind for kind, _ in told_of}):
            for event in cluster.each(
                path("Event", cluster.namespace), {"fieldSelector": f"involvedObject.kind={kind}"}
            ):
                if (about := (kind, event["involvedObject"].get("name", ""))) in told_of:
                    events[about].append(_cut_event(event))
    return around


def _cut(item: Mapping[str, Any]) -> Document:
    metadata = {key: value for key, value in item["metadata"].items() if key in _KEPT_OF_METADATA}
    return {"metadata": metadata, "status": item.get("status", {})}


def _cut_event(event: Mapping[str, Any]) -> Document:
    said = {key: value for key, value in event.items() if key in _KEPT_OF_EVENTS}
    return {"metadata": {"creationTimestamp": event["metadata"].get("creationTimestamp")}, **said}


def _deployed(cluster: Cluster, deployment: Mapping[str, Any], now: EndpointStatus) -> Deployed:
    metadata = deployment["metadata"]
    nodes = pods_of(deployment)["spec"].get("nodeSelector") or {}
    copies = deployment["spec"].get("replicas", 1)
    return Deployed(
        name=metadata["name"],
        platform="kubernetes",
        region=f"{cluster.context}/{metadata['namespace']}",
        status=now.status,
        config=now.config,
        created=seconds(metadata["creationTimestamp"]),
        instances=((nodes.get(_TYPE, _ANY), copies * nodes_of(deployment)),),
        price_per_hour=None,  # nodes are shared, and bill whether pods are on them or not
        failure_reason=now.failure_reason,
    )
