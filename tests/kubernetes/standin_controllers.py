"""Deployment → ReplicaSet → Pod, Job → Pod, the garbage collector and the scripted kubelet, one turn at a time."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from standin_kubelet import HEALTHY, Step, exited, scheduled
from standin_store import Document, Key, Store, now

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
CONTROLLER = "kube-controller-manager"


@dataclass
class Script:
    """What pods of the next ReplicaSets do, step by step; a pod stays at the last one.

    `refused` is why the API server takes no pods, `deadline` says that a rollout's time is up when all steps are done.
    """

    steps: Sequence[Step] = HEALTHY
    refused: str = ""
    deadline: bool = False


@dataclass
class _Pod:
    script: Script
    done: int = 0
    # Lines with their times, by start.
    logs: dict[int, list[tuple[str, str]]] = field(default_factory=dict)


class Controllers:
    """`script` is for pods that are made from now on. `endless` keeps deleted pods: they do not drain.

    A pod that nobody owns becomes ready if it has a readiness probe, and else ends with exit code 0.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.script = Script()
        self.endless = False
        self.pods: dict[Key, _Pod] = {}
        self._scripts: dict[str, Script] = {}

    def turn(self, *, kubelet: bool) -> None:
        """Whatever there is to do; with `kubelet` each pod goes one step further."""
        self.pods = {key: pod for key, pod in self.pods.items() if key in self.store.objects}
        for key in [key for key in self.store.objects if key.plural == "deployments"]:
            self._deployment(key)
        for key in [key for key in self.store.objects if key.plural == "jobs"]:
            self._job(key)
        for key in [key for key in self.store.objects if key.plural == "pods"]:
            self._kubelet(key, go_on=kubelet)
        for key in [key for key in self.store.objects if key.plural == "deployments"]:
            self._report(key)
            self._forget(key)
        self._collect()

    def undo(self, key: Key) -> None:
        """As `kubectl rollout undo` does: the pods of the version before, with its annotations."""
        deployment = json.loads(json.dumps(self.store.objects[key]))
        previous = self.store.objects[sorted(self._sets(key), key=self._revision)[-2]]
        template = json.loads(json.dumps(previous["spec"]["template"]))
        template["metadata"]["labels"].pop(HASH)
        deployment["spec"]["template"] = template
        deployment["metadata"]["annotations"] = {**previous["metadata"]["annotations"]}
        self.store.write(key, deployment, "kubectl-rollout", must="update")

    def _forget(self, key: Key) -> None:
        """Of versions without pods only the newest are kept: revisionHistoryLimit."""
        old = sorted((item for item in self._sets(key) if not self._pods(item)), key=self._revision)
        newest = max(self._sets(key), key=self._revision, default=None)
        old = [item for item in old if item != newest]
        for item in old[: max(0, len(old) - self.store.objects[key]["spec"]["revisionHistoryLimit"])]:
            self.store.remove(item)

    def _deployment(self, key: Key) -> None:
        deployment = self.store.objects[key]
        if "deletionTimestamp" in deployment["metadata"]:
            return
        template, wanted = deployment["spec"]["template"], deployment["spec"]["replicas"]
        digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
        new = Key("replicasets", key.namespace, f"{key.name}-{digest}")
        if new not in self.store.objects:
            revision = max((self._revision(item) for item in self._sets(key)), default=0) + 1
            metadata = {"labels": template["metadata"]["labels"], "annotations": {REVISION: str(revision)}}
            self._make(new, deployment, {"metadata": metadata, "spec": {"template": _hashed(template, digest)}})
            self._scripts[new.name] = self.script
        newest = max(self._revision(item) for item in self._sets(key))
        if self._revision(new) < newest:  # the version of before is the newest again: deployment/sync.go
            self.store.annotate(new, REVISION, str(newest + 1))
        self.store.annotate(key, REVISION, str(self._revision(new)))
        for name, value in deployment["metadata"]["annotations"].items():  # deployment/util: the newest gets them
            self.store.annotate(new, name, value)
        self._scale(key, new, wanted, template)

    def _job(self, key: Key) -> None:
        """One pod at a time, until one ends well, or badly in a way that podFailurePolicy forbids, or too often.

        The API server gives it a selector of its uid (pkg/registry/batch/job/strategy.go).
        """
        job = self.store.objects[key]
        owner = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
        job["spec"]["selector"] = {"matchLabels": owner}
        conditions = job.get("status", {}).get("conditions")
        if "deletionTimestamp" in job["metadata"] or conditions:
            return
        pods = self._owned(job)
        ended = [self.store.objects[pod]["status"] for pod in pods if self._has_ended(pod)]
        if any(status["phase"] == "Succeeded" for status in ended):
            self.store.set_status(key, {"conditions": [{"type": "Complete", "status": "True"}]})
            return
        codes = {status["containerStatuses"][0]["state"]["terminated"]["exitCode"] for status in ended}
        rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
        reason = "BackoffLimitExceeded" if len(ended) > job["spec"].get("backoffLimit", 6) else ""
        if any(codes & {*rule["onExitCodes"]["values"]} for rule in rules):
            reason = "PodFailurePolicy"
        if reason:
            failed = {"type": "Failed", "status": "True", "reason": reason, "message": "Job has failed"}
            self.store.set_status(key, {"conditions": [failed]})
        elif len(ended) == len(pods):
            template = json.loads(json.dumps(job["spec"]["template"]))
            template.setdefault("metadata", {}).setdefault("labels", {}).update(owner)
            name = Key("pods", key.namespace, f"{key.name}-{uuid.uuid4().hex[:5]}")
            self._make(name, job, template)
            self.pods[name] = _Pod(self.script)

    def _has_ended(self, pod: Key) -> bool:
        return self.store.objects[pod].get("status", {}).get("phase") in ("Succeeded", "Failed")

    def _scale(self, key: Key, new: Key, wanted: int, template: Document) -> None:
        """As many pods of the newest as are wanted; the others go once it serves."""
        mine = self._pods(new)
        if not self._scripts[new.name].refused:
            for _ in range(wanted - len(mine)):
                name = Key("pods", key.namespace, f"{new.name}-{uuid.uuid4().hex[:5]}")
                self._make(name, self.store.objects[new], json.loads(json.dumps(template)))
                self.pods[name] = _Pod(self._scripts[new.name])
        for surplus in mine[wanted:]:
            self.drop(surplus)
        ready = [pod for pod in mine[:wanted] if self._is_ready(pod)]
        if len(ready) >= wanted:  # maxUnavailable 0: the old pods serve until the new ones do
            for old in self._sets(key):
                for pod in self._pods(old) if old != new else []:
                    self.drop(pod)

    def _kubelet(self, key: Key, *, go_on: bool) -> None:
        pod = self.pods.setdefault(key, _Pod(_script_of(self.store.objects[key])))
        if "deletionTimestamp" in self.store.objects[key]["metadata"]:
            if not self.endless:
                self.drop(key)
            return
        if not go_on or pod.done == len(pod.script.steps):
            return
        if missing := self._missing(key):
            self.say(key, Step({"phase": "Pending"}, events=[("FailedMount", f"{missing} not found")]))
            return
        step = pod.script.steps[pod.done]
        pod.done += 1
        self.say(key, step)

    def _missing(self, pod: Key) -> str:
        """The first object that the pod cannot start without, and that does not exist."""
        spec = self.store.objects[pod]["spec"]
        volumes = spec.get("volumes", [])
        names = [
            *(("configmaps", item["configMap"]["name"]) for item in volumes if "configMap" in item),
            *(
                ("persistentvolumeclaims", item["persistentVolumeClaim"]["claimName"])
                for item in volumes
                if "persistentVolumeClaim" in item
            ),
            *(("resourceclaimtemplates", item["resourceClaimTemplateName"]) for item in spec.get("resourceClaims", [])),
        ]
        needed = (Key(plural, pod.namespace, name) for plural, name in names)
        return next((f"{key.plural}/{key.name}" for key in needed if key not in self.store.objects), "")

    def say(self, key: Key, step: Step) -> None:
        """As the kubelet says it of a pod."""
        before = self.store.objects[key].get("status", {})
        self.store.set_status(key, {**before, **step.status})
        for reason, message in step.events:
            name = f"{key.name}.{uuid.uuid4().hex[:8]}"
            about = {"kind": "Pod", "name": key.name, "namespace": key.namespace}
            event = {"metadata": {}, "involvedObject": about, "reason": reason, "message": message}
            self.store.write(
                Key("events", key.namespace, name), {**event, "lastTimestamp": now()}, "kubelet", must="create"
            )
        statuses = {**before, **step.status}.get("containerStatuses", [{}])
        number = statuses[-1].get("restartCount", 0)
        self.pods[key].logs.setdefault(number, []).extend((now(), line) for line in step.lines)

    def _report(self, key: Key) -> None:
        """The Deployment's status, as the deployment controller writes it."""
        deployment = self.store.objects[key]
        generation, wanted = deployment["metadata"]["generation"], deployment["spec"]["replicas"]
        sets = self._sets(key)
        if not sets:
            return
        new = max(sets, key=self._revision)
        pods = [pod for item in sets for pod in self._pods(item)]
        ready, updated = [pod for pod in pods if self._is_ready(pod)], self._pods(new)
        is_done = len(updated) == len(pods) == wanted and all(self._is_ready(pod) for pod in updated)
        script = self._scripts[new.name]
        is_late = script.deadline and all(self.pods[pod].done == len(script.steps) for pod in updated)
        before = [item["reason"] for item in deployment.get("status", {}).get("conditions", [])]
        # A rollout that was complete stays so, whatever becomes of its pods: deployment/progress.go.
        is_done |= "NewReplicaSetAvailable" in before and len(updated) == len(pods)
        reason = "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated"
        progressing = {"type": "Progressing", "status": "True", "reason": reason, "message": ""}
        if is_late and not is_done:
            message = f'ReplicaSet "{new.name}" has timed out progressing.'
            progressing |= {"status": "False", "reason": "ProgressDeadlineExceeded", "message": message}
        conditions = [progressing]
        if script.refused:
            message = script.refused
            conditions.append(
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
            )
        counts = {"replicas": len(pods), "updatedReplicas": len(updated), "readyReplicas": len(ready)}
        found = {**counts, "availableReplicas": len(ready)}
        status: dict[str, Any] = {name: count for name, count in found.items() if count}
        self.store.set_status(key, {"observedGeneration": generation, **status, "conditions": conditions})

    def _collect(self) -> None:
        """What owns nothing any more goes; what owned it goes after it, where it waits for that."""
        for key, item in list(self.store.objects.items()):
            owners = {owner["uid"] for owner in item["metadata"].get("ownerReferences", ())}
            going = {
                other["metadata"]["uid"]
                for other in self.store.objects.values()
                if "deletionTimestamp" in other["metadata"]
            }
            there = {other["metadata"]["uid"] for other in self.store.objects.values()}
            if owners and (owners & going or not owners & there) and "deletionTimestamp" not in item["metadata"]:
                self.store.mark_deleted(key, ["foregroundDeletion"])
        for key, item in list(self.store.objects.items()):
            finalizers = item["metadata"].get("finalizers", [])
            if "deletionTimestamp" not in item["metadata"] or finalizers != ["foregroundDeletion"]:
                continue
            if key.plural != "pods" and not self._owned(item):
                self.store.remove(key)

    def _owned(self, owner: Document) -> list[Key]:
        uid = owner["metadata"]["uid"]
        return [
            key
            for key, item in self.store.objects.items()
            if uid in [reference["uid"] for reference in item["metadata"].get("ownerReferences", ())]
        ]

    def _sets(self, deployment: Key) -> list[Key]:
        return self._owned(self.store.objects[deployment])

    def _pods(self, replica_set: Key) -> list[Key]:
        return self._owned(self.store.objects[replica_set])

    def _revision(self, replica_set: Key) -> int:
        return int(self.store.objects[replica_set]["metadata"]["annotations"][REVISION])

    def _is_ready(self, pod: Key) -> bool:
        conditions = self.store.objects[pod].get("status", {}).get("conditions", [])
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def _make(self, key: Key, owner: Document, document: Document) -> None:
        metadata = {**document.get("metadata", {})}
        metadata["ownerReferences"] = [{"uid": owner["metadata"]["uid"], "name": owner["metadata"]["name"]}]
        self.store.write(key, {**document, "metadata": metadata}, CONTROLLER, must="create")

    def drop(self, pod: Key) -> None:
        """It has ended, and is no more."""
        self.store.remove(pod)
        self.pods.pop(pod, None)


def _script_of(pod: Document) -> Script:
    """What a pod does that nobody owns."""
    (container,) = pod["spec"]["containers"]
    if "readinessProbe" in container:
        return Script()
    return Script((scheduled(), exited(0, name=container["name"])))


def _hashed(template: Document, digest: str) -> Document:
    """The controller tells the pods of its ReplicaSets apart by a label."""
    metadata = template["metadata"]
    return {**template, "metadata": {**metadata, "labels": {**metadata["labels"], HASH: digest}}}
