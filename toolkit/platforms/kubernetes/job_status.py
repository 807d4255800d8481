"""How far a Job is that trains a head, in the words of all platforms, and why it failed."""

from __future__ import annotations

from kubernetes.client import ApiException

from toolkit.apply.training import TrainingJob
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.documents import seconds
from toolkit.platforms.kubernetes.pods import Document, condition, containers, trouble_of
from toolkit.platforms.kubernetes.rollout import pods, readable_events

_ERROR = "error: "


def job_status(cluster: Cluster, namespace: str, job: Document) -> TrainingJob:
    """The Job now. One whose pod can never start, as without an image, has failed: it would wait for its deadline."""
    name, status = job["metadata"]["name"], job.get("status", {})
    began = seconds(job["metadata"]["creationTimestamp"])
    if (complete := condition(status, "Complete")).get("status") == "True":
        return TrainingJob(name, "Completed", "Completed", "", began, _when(complete, began))
    found = _pods(cluster, namespace, job)
    if (failed := condition(status, "Failed")).get("status") == "True":
        reason = f"{failed.get('reason', '')}: {failed.get('message', '')}"
        return TrainingJob(name, "Failed", "Failed", _last_words(found) or reason, began, _when(failed, began))
    if not found:
        return TrainingJob(name, "InProgress", "Pending", "", began, began)
    entered = seconds(found[-1]["metadata"]["creationTimestamp"])
    trouble = trouble_of(found[-1], readable_events(cluster, namespace, found[-1]))
    if trouble and trouble.certain:
        return TrainingJob(name, "Failed", "Failed", trouble.text, began, entered)
    stage = "Training" if found[-1].get("status", {}).get("phase") == "Running" else "Starting"
    return TrainingJob(name, "InProgress", stage, trouble.text if trouble else "", began, entered)


def _pods(cluster: Cluster, namespace: str, job: Document) -> list[Document]:
    """The Job's pods, oldest first; none where we may not see them."""
    try:
        return [*pods(cluster, namespace, job)]
    except ApiException as error:
        if error.status == 403:
            return []
        raise


def _last_words(of: list[Document]) -> str:
    """What the container of the newest pod said of its failure; empty where it said nothing."""
    ended = (
        container.get("state", {}).get("terminated") or {} for pod in reversed(of) for container in containers(pod)
    )
    texts = (str(state.get("message", "")) for state in ended)
    lines = (line for text in texts for line in text.splitlines() if line.startswith(_ERROR))
    return next(lines, "").removeprefix(_ERROR)


def _when(found: Document, otherwise: float) -> float:
    return seconds(found["lastTransitionTime"]) if "lastTransitionTime" in found else otherwise
