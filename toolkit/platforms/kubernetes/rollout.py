"""The status of a rollout, of a Deployment or a LeaderWorkerSet, its history, and the logs and events of its pods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kubernetes.client import ApiException

from toolkit import documents
from toolkit.apply.diagnose import diagnose
from toolkit.apply.waiter import EndpointStatus, LogLine
from toolkit.endpoint.platform import PAUSED
from toolkit.planning.names import RECIPE_ANNOTATION
from toolkit.platforms.kubernetes.cluster import (
    FIELD_MANAGER,
    Cluster,
    SuppressStatus,
    annotations_of,
    labels,
    path,
    selector,
)
from toolkit.platforms.kubernetes.documents import seconds
from toolkit.platforms.kubernetes.pods import (
    OUT_OF_QUOTA,
    Document,
    Trouble,
    condition,
    containers,
    instances,
    last_refused,
    refusal,
    worst,
)
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME
from toolkit.platforms.kubernetes.rules.pausing import PAUSED_ANNOTATION
from toolkit.platforms.kubernetes.rules.rollback import HISTORY, version
from toolkit.platforms.kubernetes.rules.several_nodes import REVISION, SET_NAME
from toolkit.text import without_colours

# Said of each pod before its container writes; other events are in `kubectl describe`.
_SHOWN_EVENTS = ("FailedScheduling", "Scheduled", "Pulling", "Pulled", "Started", "FailedMount", "Killing")
# The kubelet begins a new file at 10 MiB, unless it is set otherwise.
_LOG_LIMITS = documents.Limits(size=256 * 1024**2, seconds=600.0)
_FINISHED = "NewReplicaSetAvailable"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_D = TypeVar("_D", bound=Document)
_COUNT = "deployment.kubernetes.io/revision"
# Of LeaderWorkerSet's events: a group was started anew because one of its containers had ended.
_RECREATED, _MOST_RECREATED = "RecreateGroup", 3
_OF_CONTROLLERS = ("replicas",)  # an autoscaler may set it


@dataclass(frozen=True)
class Around:
    """What is around endpoints: their ReplicaSets or StatefulSets, and pods; `events` of an object of a kind; `log` of
    pods that crash, where it is read."""

    sets: Sequence[Document]
    pods: Sequence[Document]
    events: Callable[[Document, str], Sequence[Document]]
    log: Callable[[Sequence[Document]], list[str]]

    def newest_pods(self, deployment: Document) -> list[Document]:
        """Pods of the version that the endpoint is now, oldest first; none where we may not see them.

        None either before the controller has seen it: until then its revision is the old one.
        """
        if not _is_observed(deployment):
            return []
        if is_group(deployment):
            return _by_age(self._of_version(deployment, self.pods))
        uid, now = deployment["metadata"]["uid"], revision(deployment)
        newest = {item["metadata"]["uid"] for item in self.sets if uid in _owners(item) and revision(item) == now}
        return _by_age(pod for pod in self.pods if newest & _owners(pod))

    def makers(self, group: Document) -> list[tuple[Document, str]]:
        """What makes the pods of the version that a LeaderWorkerSet is now, with kinds: itself and StatefulSets."""
        sets = self._of_version(group, self.sets)
        return [(group, "LeaderWorkerSet"), *((item, "StatefulSet") for item in sets)]

    def _of_version(self, group: Document, of: Sequence[Document]) -> list[Document]:
        """Those of a LeaderWorkerSet that have the version of its leaders' StatefulSet."""
        uid, name = group["metadata"]["uid"], group["metadata"]["name"]
        versions = {labels(item).get(REVISION) for item in self.sets if uid in _owners(item)} - {None}
        ours = (item for item in of if labels(item).get(SET_NAME) == name)
        return [item for item in ours if labels(item).get(REVISION) in versions]


def status(cluster: Cluster, deployment: Document) -> EndpointStatus:
    """Creating, Updating, InService, Paused, Failed or Deleting, and the digest of the recipe that it shall run.

    A rollout has failed when its deadline is over, or when no pod of it can come up whatever is tried.
    """
    return settled(deployment) or judged(deployment, _around(cluster, deployment))


def settled(deployment: Document) -> EndpointStatus | None:
    """What the Deployment alone tells: in service, paused, or going. None where its pods have to be looked at."""
    name, running = deployment["metadata"]["name"], config(deployment)
    if deployment["metadata"].get("deletionTimestamp"):
        return EndpointStatus(name, "Deleting", running)
    if PAUSED_ANNOTATION in annotations_of(deployment) and not deployment["spec"]["replicas"]:
        return EndpointStatus(name, PAUSED, running)
    return EndpointStatus(name, "InService", running) if _is_complete(deployment) else None


def judged(deployment: Document, around: Around) -> EndpointStatus:
    """The status of one that is not settled."""
    name, running = deployment["metadata"]["name"], config(deployment)
    ours = around.newest_pods(deployment)
    began = min((_creation_time(pod) for pod in ours), default=applied(deployment))
    trouble = _trouble(deployment, ours, around)
    progressing = condition(deployment.get("status", {}), "Progressing")
    # Of a LeaderWorkerSet it is False once it is available: it has no deadline.
    if _is_observed(deployment) and progressing.get("status") == "False" and not is_group(deployment):
        late = f"{progressing.get('reason', '')}: {progressing.get('message', '')}"
        return EndpointStatus(name, "Failed", running, trouble.text if trouble else late)
    if trouble and trouble.certain:
        return EndpointStatus(name, "Failed", running, trouble.text)
    stage = "Creating" if _is_first(deployment) else "Updating"
    reason = trouble.text if trouble else "`kubectl describe pod` shows why its pods are waiting"
    hopeless = _hopeless(name, stage, serves=has_ready_pods(deployment))
    return EndpointStatus(name, stage, running, began=began, no_log_reason=reason, hopeless=hopeless)


def _around(cluster: Cluster, deployment: Document) -> Around:
    def log(of: Sequence[Document]) -> list[str]:
        return log_of(cluster, of)

    with SuppressStatus(403):  # who may deploy need not be one who may look at pods
        sets, its_pods = _sets(cluster, deployment), pods(cluster, deployment)
        return Around(sets, its_pods, lambda item, kind: readable_events(cluster, item, kind), log)
    return Around((), (), lambda *_: (), log)


def log_of(cluster: Cluster, of: Sequence[Document]) -> list[str]:
    """The lines of pods; none where we may not read them."""
    with suppress(ApiException):  # who may deploy need not be one who may read logs
        return [line.text for line in _logs(cluster, of, {})]
    return []


def has_ready_pods(endpoint: Document) -> bool:
    """Whether it has pods that are ready, or groups."""
    return bool(endpoint.get("status", {}).get("readyReplicas"))


def is_group(endpoint: Document) -> bool:
    """Whether it is a LeaderWorkerSet."""
    return "leaderWorkerTemplate" in endpoint.get("spec", {})


def controller(endpoint: Document) -> str:
    """The kind of what makes an endpoint's pods."""
    return "StatefulSet" if is_group(endpoint) else "ReplicaSet"


def _is_first(endpoint: Document) -> bool:
    """Whether it has never served; LeaderWorkerSet counts no versions, but says once that one was available.

    An update that the controller has not seen yet is counted as the version before. The first version is counted a
    moment before any is observed.
    """
    status = endpoint.get("status", {})
    if is_group(endpoint):
        return not condition(status, "Available")
    if revision(endpoint) == "1":
        return "observedGeneration" not in status or _is_observed(endpoint)
    return revision(endpoint) == ""


def _hopeless(name: str, stage: str, *, serves: bool) -> str:
    meanwhile = ", and the pods that are ready continue to serve" if serves else ", and keeps its accelerators"
    return (
        f"It is still {stage}{meanwhile}: its containers keep restarting. `toolkit deploy` of the "
        f"corrected recipe replaces them, `toolkit destroy {name}` removes it."
    )


def config(deployment: Document) -> str:
    return annotations_of(deployment).get(RECIPE_ANNOTATION, "")


def revision(deployment: Document) -> str:
    """Counted by the deployment controller; empty before it has seen the Deployment or ReplicaSet."""
    return annotations_of(deployment).get(_COUNT, "")


def applied(deployment: Document) -> float:
    """When the toolkit last changed it, in seconds since 1970; applying what changes nothing does not count."""
    times = [
        seconds(item["time"])
        for item in deployment["metadata"].get("managedFields") or []
        if item.get("manager") == FIELD_MANAGER and "time" in item
    ]
    return max(times, default=0.0)


def changed(endpoint: Document) -> tuple[float, float]:
    """By which the newer of two is the greater. Others than the toolkit, such as Argo CD, apply what it rendered."""
    return applied(endpoint), _creation_time(endpoint)


def pods(cluster: Cluster, deployment: Document, since: float = 0.0) -> list[dict[str, Any]]:
    """The endpoint's pods, or a Job's, those that were created at `since` or later, oldest first."""
    wanted = _selector(deployment)
    listed = cluster.items(path("Pod", cluster.namespace), {"labelSelector": wanted})
    return [item for item in _by_age(listed) if _creation_time(item) >= int(since)]


def _selector(owner: Document) -> str:
    if is_group(owner):
        return selector({SET_NAME: owner["metadata"]["name"]})
    return selector(owner["spec"]["selector"]["matchLabels"])


def _by_age(of: Iterable[_D]) -> list[_D]:
    return sorted(of, key=lambda item: (_creation_time(item), item["metadata"]["name"]))


def events(cluster: Cluster, name: str, kind: str = "Pod") -> list[dict[str, Any]]:
    """What is said of a pod, or another object, oldest first; Kubernetes forgets after an hour."""
    query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
    return sorted(cluster.items(path("Event", cluster.namespace), query), key=event_time)


def read_logs(
    cluster: Cluster, deployment: Document, since: float, bookmarks: MutableMapping[str, str]
) -> Iterator[LogLine]:
    """Lines of the Deployment's pods, each after what Kubernetes says of it. A stream is `pod/container/start`.

    A pod's own stream is Kubernetes' word: `kubernetes: Scheduled: …`.
    """
    yield from _logs(cluster, pods(cluster, deployment, since), bookmarks)


def _logs(cluster: Cluster, of: Sequence[Document], bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
    for pod in of:
        pod_name = pod["metadata"]["name"]
        yield from _new(pod_name, bookmarks, _event_lines(events(cluster, pod_name)))
        log = f"{path('Pod', cluster.namespace, pod_name)}/log"
        for container in containers(pod):
            for number, previous in instances(container):
                stream = f"{pod_name}/{container['name']}/{number}"
                query = {"container": container["name"], "previous": str(previous).lower(), "timestamps": "true"}
                if stream in bookmarks:  # in whole seconds, which is all that the API takes
                    query["sinceTime"] = f"{bookmarks[stream][:19]}Z"
                yield from _new(stream, bookmarks, _lines(cluster, log, query))


def _new(stream: str, bookmarks: MutableMapping[str, str], lines: Sequence[tuple[str, str]]) -> Iterator[LogLine]:
    """What was written behind the stream's bookmark: a time, and how many lines of that time were read."""
    time, _, count = bookmarks.get(stream, " 0").partition(" ")
    seen = int(count)
    for at, text in lines:
        if time and seconds(at) < seconds(time):
            continue
        if at == time and seen:
            seen -= 1
            continue
        last, _, count = bookmarks.get(stream, "").partition(" ")
        bookmarks[stream] = f"{at} {int(count) + 1 if at == last else 1}"
        yield LogLine(stream, seconds(at), without_colours(text))


def _lines(cluster: Cluster, path: str, query: Mapping[str, str]) -> list[tuple[str, str]]:
    """Lines of a container's log with their times; of a progress bar, which goes over its line, the last state."""
    content = b""
    with SuppressStatus(400, 404):  # the container has not started, its log was rotated, or the pod is gone
        content = cluster.read("GET", path, query=query, limits=_LOG_LIMITS)
    pairs = (line.rstrip("\r").partition(" ") for line in content.decode(errors="replace").split("\n"))
    # What has no time is the kubelet's own word, such as that the log was rotated.
    return [(time, text.rpartition("\r")[2]) for time, _, text in pairs if _TIME.fullmatch(time)]


def _event_lines(events: Sequence[Document]) -> list[tuple[str, str]]:
    return [
        (event_time(event), f"kubernetes: {event['reason']}: {event.get('message', '')}")
        for event in events
        if event.get("reason") in _SHOWN_EVENTS
    ]


def event_time(event: Document) -> str:
    """When it happened last. Events of newer components have `eventTime`, and a series, with microseconds."""
    last = event.get("lastTimestamp") or (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    return str(last or event["metadata"]["creationTimestamp"])


def _creation_time(item: Document) -> float:
    return seconds(item["metadata"]["creationTimestamp"])


def _owners(item: Document) -> set[str]:
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}


def _sets(cluster: Cluster, endpoint: Document) -> list[dict[str, Any]]:
    wanted = {"labelSelector": _selector(endpoint)}
    return cluster.items(path(controller(endpoint), cluster.namespace), wanted)


def _trouble(deployment: Document, of: Sequence[Document], around: Around) -> Trouble | None:
    if refused := _refused(deployment, around):
        told = refusal(refused)
        # The pods that it ends first have the quota until they are gone, and it tries again ever less often.
        is_freed = OUT_OF_QUOTA in told.text and _ends_old_first(deployment) and not _is_first(deployment)
        return replace(told, certain=told.certain and not is_freed)
    if is_group(deployment) and (trouble := _recreated(deployment, around)):
        return trouble
    trouble = worst((pod, around.events(pod, "Pod")) for pod in of)
    if trouble and trouble.is_crash and not trouble.certain:
        cause = diagnose(around.log(of), platform="kubernetes")
        return Trouble(trouble.text, cause is not None and cause.fatal)
    return trouble


def _refused(endpoint: Document, around: Around) -> Document | None:
    """What says that the cluster refuses pods; LeaderWorkerSets and StatefulSets have no condition for it.

    Before the controller has seen the Deployment, its condition is that of the version before.
    """
    if not is_group(endpoint):
        found = condition(endpoint.get("status", {}), "ReplicaFailure")
        return found if found.get("status") == "True" and _is_observed(endpoint) else None
    for maker, kind in around.makers(endpoint):
        if refused := last_refused(_since_applied(endpoint, around.events(maker, kind))):
            return refused
    return None


def _ends_old_first(endpoint: Document) -> bool:
    """Whether an update makes no pod, or group, beside those that are there."""
    if is_group(endpoint):
        update = endpoint["spec"].get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {})
    else:
        update = endpoint["spec"].get("strategy", {}).get("rollingUpdate", {})
    return bool(update.get("maxSurge") == 0)


def _recreated(endpoint: Document, around: Around) -> Trouble | None:
    """The trouble of a group that is started again and again: its pods are new each time, and count no restarts."""
    of_now = _since_applied(endpoint, around.events(endpoint, "LeaderWorkerSet"))
    again = [event for event in of_now if event.get("reason") == _RECREATED]
    times = sum((event.get("series") or {}).get("count") or event.get("count") or 1 for event in again)
    if times < _MOST_RECREATED:
        return None
    return Trouble(f"{_RECREATED}: {again[-1].get('message', '')} ({times} times)", certain=True)


def _since_applied(endpoint: Document, events: Sequence[Document]) -> list[Document]:
    return [event for event in events if seconds(event_time(event)) >= applied(endpoint)]


def readable_events(cluster: Cluster, item: Document, kind: str = "Pod") -> list[dict[str, Any]]:
    """The events of an object of a kind; none where we may not see them."""
    with SuppressStatus(403):
        return events(cluster, item["metadata"]["name"], kind)
    return []


def _is_observed(deployment: Document) -> bool:
    observed: int = deployment.get("status", {}).get("observedGeneration", 0)
    generation: int = deployment["metadata"].get("generation", 1)
    return observed >= generation


def _is_complete(deployment: Document) -> bool:
    """As `kubectl rollout status` has it; a finished rollout is in service as long as one pod is."""
    now, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    if not _is_observed(deployment):
        return False
    if is_group(deployment):
        groups, is_available = now.get("replicas", 0), condition(now, "Available").get("status") == "True"
        going = condition(now, "UpdateInProgress").get("status") == "True" or groups > wanted
        # Until it is available, what is ready may be an update's own group, which is there for a while only.
        return (
            (is_available or not going) and groups == now.get("updatedReplicas", 0) and bool(now.get("readyReplicas"))
        )
    updated, available = now.get("updatedReplicas", 0), now.get("availableReplicas", 0)
    if now.get("replicas", 0) != updated:  # pods of another version are there
        return False
    if condition(now, "Progressing").get("reason") == _FINISHED and available:
        return True
    return bool(wanted <= updated <= available)


def history(cluster: Cluster, deployment: Mapping[str, Any]) -> dict[str, Any]:
    """`History`, the newest version first; `Manifest`, the Deployment as it would be applied again but for
    `Annotations`, which are the toolkit's.
    """
    metadata, spec = deployment["metadata"], deployment["spec"]
    kind = "LeaderWorkerSet" if is_group(deployment) else "Deployment"
    head = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    applied = {key: value for key, value in spec.items() if key not in _OF_CONTROLLERS}
    about = {"apiVersion": KINDS_BY_NAME[kind].api.version, "kind": kind}
    manifest = {**about, "metadata": head, "spec": applied}
    ours = {key: text for key, text in annotations_of(deployment).items() if key.startswith("toolkit/")}
    versions = [] if is_group(deployment) else _versions(cluster, deployment)
    return {HISTORY: versions, "Manifest": manifest, "Annotations": ours}


def _versions(cluster: Cluster, deployment: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    uid = deployment["metadata"]["uid"]
    with SuppressStatus(403):  # who may deploy need not be one who may list them
        mine = [item for item in _sets(cluster, deployment) if uid in _owners(item)]
        return [version(item) for item in sorted(mine, key=_number, reverse=True)]
    return None


def _number(replica_set: Document) -> int:
    text = revision(replica_set)
    return int(text) if text.isdecimal() else 0
