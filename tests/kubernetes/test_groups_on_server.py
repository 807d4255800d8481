"""A model that several nodes run, on a genuine API server: the test stands for LeaderWorkerSet's controller.

What that writes is in its sources (kubernetes-sigs/lws, pkg/controllers). `crds` beside the server may have its own
definition (test_every_key_on_server.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pairs import recipe_with
from test_every_key_on_server import PROMETHEUS, carry_out, config, deploy, namespace, on_gpu, plan, platform, wanted_of

import toolkit
from toolkit.apply.executor import make
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointNotFound, PlatformError, UsageError
from toolkit.planning.kinds import configs
from toolkit.planning.plan import Plan
from toolkit.planning.record import Record
from toolkit.platforms.kubernetes.cluster import SuppressStatus, path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rollout import events, has_ready_pods, history, pods
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.kinds import ENDPOINTS
from toolkit.platforms.kubernetes.rules.rollback import HISTORY, rollback_plan
from toolkit.platforms.kubernetes.rules.several_nodes import REVISION, SET_NAME
from toolkit.recipe.recipe import Recipe

__all__ = ["config", "namespace", "platform"]

READY = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
IMAGE = {"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}


@pytest.fixture
def recipe(namespace: str) -> Recipe:
    """On two nodes of one GPU each; no other namespace of the server has its name."""
    one = on_gpu(nodes=2)
    return recipe_with(one, name=namespace, engine=one.engine.edit(args={**one.engine.args, "tensor-parallel-size": 2}))


class Controller:
    """LeaderWorkerSet's, as far as it is seen from outside."""

    def __init__(self, platform: KubernetesPlatform, name: str) -> None:
        self.cluster, self.name = platform.cluster, name

    def set(self) -> dict[str, Any]:
        return self.cluster.call("GET", path("LeaderWorkerSet", self.cluster.namespace, self.name))

    def says(self, conditions: Mapping[str, str], **status: int) -> None:
        generation = self.set()["metadata"]["generation"]
        about = {"lastTransitionTime": "2026-11-27T00:00:00Z", "reason": "R", "message": ""}
        of = [{"type": kind, "status": value, **about} for kind, value in conditions.items()]
        self._write_status("LeaderWorkerSet", self.name, {"observedGeneration": generation, "conditions": of, **status})

    def makes_leaders_set(self, revision: str, replicas: int = 0) -> None:
        labels = {SET_NAME: self.name, REVISION: revision}
        owner = {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "name": self.name,
            "uid": self.set()["metadata"]["uid"],
        }
        template = self.set()["spec"]["leaderWorkerTemplate"]
        metadata = {"name": self.name, "namespace": self.cluster.namespace, "labels": labels}
        spec = {
            "replicas": replicas,
            "serviceName": self.name,
            # None of the pods below, which the genuine controller of StatefulSets would delete.
            "selector": {"matchLabels": {"of": "nothing"}},
            "template": {**template["leaderTemplate"], "metadata": {"labels": {"of": "nothing"}}},
        }
        head = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        found = {**head, "metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec}
        self.cluster.apply(path("StatefulSet", self.cluster.namespace, self.name), found)

    def makes_pods(self, revision: str) -> list[str]:
        """The leaders' StatefulSet, and the pods of its first group."""
        self.makes_leaders_set(revision)
        labels, template = {SET_NAME: self.name, REVISION: revision}, self.set()["spec"]["leaderWorkerTemplate"]
        names = {"leaderTemplate": f"{self.name}-0", "workerTemplate": f"{self.name}-0-1"}
        for part, name in names.items():
            about = {"name": name, "labels": {**template[part]["metadata"]["labels"], **labels}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template[part]["spec"]}
            self.cluster.call("POST", path("Pod", self.cluster.namespace), pod)
        return list(names.values())

    def pod_waits(self, pod: str, state: Mapping[str, Any]) -> None:
        waits = {"name": "engine", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        self._write_status("Pod", pod, {"phase": "Pending", "containerStatuses": [waits]})

    def recreates(self, times: int) -> None:
        """Its event of a group of which a container has ended, as often."""
        said = f"Worker pod {self.name}-0 failed, deleted leader pod {self.name}-0 to recreate group 0"
        self.is_said("RecreateGroup", said, lastTimestamp="2037-01-01T00:00:00Z", count=times)

    def is_said(self, reason: str, message: str, **when: Any) -> None:
        """In an event of the set."""
        about = {"kind": "LeaderWorkerSet", "name": self.name, "namespace": self.cluster.namespace}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.name}.", "namespace": self.cluster.namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            **when,
        }
        self.cluster.call("POST", path("Event", self.cluster.namespace), event)

    def is_refused_pods(self) -> None:
        """By a quota: the genuine controller of StatefulSets says so of the leaders'."""
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": 0}},
        }
        place = f"/api/v1/namespaces/{self.cluster.namespace}/resourcequotas"
        self.cluster.call("POST", place, quota)
        eventually(lambda: "hard" in self.cluster.call("GET", f"{place}/none")["status"])
        self.makes_leaders_set("new", replicas=1)
        self._said_of_leaders("FailedCreate")

    def may_make_pods(self) -> None:
        self.cluster.call("DELETE", f"/api/v1/namespaces/{self.cluster.namespace}/resourcequotas/none")
        self._said_of_leaders("SuccessfulCreate")

    def _said_of_leaders(self, reason: str) -> None:
        eventually(lambda: reason in [item["reason"] for item in events(self.cluster, self.name, "StatefulSet")])

    def _write_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None:
        place = f"{path(kind, self.cluster.namespace, name)}/status"
        self.cluster.call("PATCH", place, {"status": status}, content_type="application/merge-patch+json")


@pytest.fixture
def controller(platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path) -> Controller:
    """Of a recipe that is deployed."""
    deploy(platform, recipe, tmp_path)
    return Controller(platform, recipe.name)


def test_it_is_in_service_when_a_group_is(controller: Controller, platform: KubernetesPlatform) -> None:
    assert platform.status(controller.name).status == "Creating"
    controller.says({"Progressing": "True"}, replicas=1, updatedReplicas=1)
    assert platform.status(controller.name).status == "Creating"
    controller.says({"Available": "True", "Progressing": "False"}, **READY)
    assert platform.status(controller.name).status == "InService"


def test_it_is_not_in_service_while_an_update_s_own_group_serves_alone(
    controller: Controller, platform: KubernetesPlatform
) -> None:
    """Group 0 was away when the update began, and so LeaderWorkerSet does not call it one."""
    both = {"replicas": 2, "updatedReplicas": 2}
    controller.says({"Available": "False", "Progressing": "True"}, **both, readyReplicas=1)
    assert platform.status(controller.name).status == "Updating"
    controller.says({"Available": "True", "Progressing": "False"}, **both, readyReplicas=2)
    assert platform.status(controller.name).status == "InService"


def test_an_update_is_not_done_while_an_old_group_is_there(
    controller: Controller, platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path
) -> None:
    controller.says({"Available": "True"}, **READY)
    deploy(platform, recipe_with(recipe, engine=recipe.engine.edit(env={"VERSION": "2"})), tmp_path)
    assert platform.status(recipe.name).status == "Updating"  # the controller has not seen it
    going = {"Available": "False", "Progressing": "True", "UpdateInProgress": "True"}
    controller.says(going, replicas=2, updatedReplicas=1, readyReplicas=1)
    assert platform.status(recipe.name).status == "Updating"
    available = {"Available": "True", "Progressing": "False", "UpdateInProgress": "False"}
    controller.says(available, replicas=2, updatedReplicas=1, readyReplicas=2)
    assert platform.status(recipe.name).status == "Updating"
    controller.says(available, **READY)
    assert platform.status(recipe.name).status == "InService"


@pytest.mark.parametrize("which", [0, 1], ids=["leader", "worker"])
def test_what_keeps_one_of_its_pods_from_starting_ends_the_wait(
    controller: Controller, platform: KubernetesPlatform, which: int
) -> None:
    controller.says({"Progressing": "True"}, replicas=1, updatedReplicas=1)
    pod = controller.makes_pods("new")[which]
    controller.pod_waits(pod, IMAGE)
    found = platform.status(controller.name)
    assert (found.status, found.failure_reason) == ("Failed", "ErrImagePull: manifest unknown")
    (listed,) = platform.endpoints()
    assert (listed.status, listed.failure_reason) == (found.status, found.failure_reason)


def test_pods_of_the_version_before_are_not_its_trouble(controller: Controller, platform: KubernetesPlatform) -> None:
    controller.says({"Progressing": "True"}, replicas=1, updatedReplicas=1)
    controller.pod_waits(controller.makes_pods("old")[0], IMAGE)
    labels = {"metadata": {"labels": {REVISION: "new"}}}
    place = path("StatefulSet", controller.cluster.namespace, controller.name)
    controller.cluster.call("PATCH", place, labels, content_type="application/merge-patch+json")
    assert platform.status(controller.name).status == "Creating"


@pytest.mark.parametrize(("times", "status"), [(2, "Creating"), (3, "Failed")])
def test_a_group_that_is_started_again_and_again_ends_the_wait(
    controller: Controller, platform: KubernetesPlatform, times: int, status: str
) -> None:
    controller.says({"Progressing": "True"}, replicas=1, updatedReplicas=1)
    controller.recreates(times)
    found = platform.status(controller.name)
    assert found.status == status
    (listed,) = platform.endpoints()
    assert (listed.status, listed.failure_reason) == (found.status, found.failure_reason)


def test_pods_that_the_cluster_refuses_end_the_wait(controller: Controller, platform: KubernetesPlatform) -> None:
    controller.says({"Progressing": "True"}, replicas=0, updatedReplicas=0)
    controller.is_refused_pods()
    found = platform.status(controller.name)
    assert found.status == "Failed"
    assert f'pods "{controller.name}-0" is forbidden: exceeded quota: none' in found.failure_reason
    (listed,) = platform.endpoints()
    assert (listed.status, listed.failure_reason) == (found.status, found.failure_reason)


def test_pods_that_the_cluster_took_at_last_are_no_trouble(
    controller: Controller, platform: KubernetesPlatform
) -> None:
    controller.says({"Progressing": "True"}, replicas=0, updatedReplicas=0)
    controller.is_refused_pods()
    next_second()
    controller.may_make_pods()
    assert platform.status(controller.name).status == "Creating"


def test_a_leaders_set_that_the_cluster_refuses_ends_the_wait(
    controller: Controller, platform: KubernetesPlatform
) -> None:
    why = (
        f'Failed to create leader statefulset {controller.name}: statefulsets.apps "{controller.name}" is forbidden: no'
    )
    controller.is_said("FailedCreate", why, lastTimestamp="2037-01-01T00:00:00Z")
    assert platform.status(controller.name).failure_reason == f"FailedCreate: {why}"


def test_what_is_refused_again_and_again_is_told_though_other_groups_were_made_meanwhile(
    controller: Controller, platform: KubernetesPlatform
) -> None:
    """LeaderWorkerSet's recorder keeps one event, with the time of the first and in its series that of the last."""
    recorder = {"reportingComponent": "lws", "reportingInstance": "lws-0", "action": "Create", "type": "Warning"}
    first, meanwhile, last = (f"2037-01-01T00:00:0{second}.000000Z" for second in (1, 2, 3))
    series = {"count": 2, "lastObservedTime": last}
    controller.is_said("FailedCreate", "a is forbidden: no", eventTime=first, series=series, **recorder)
    controller.is_said("GroupsProgressing", "Created", eventTime=meanwhile, **recorder)
    assert platform.status(controller.name).failure_reason == "FailedCreate: a is forbidden: no"


def test_its_logs_are_those_of_all_its_pods(controller: Controller, platform: KubernetesPlatform) -> None:
    pods = controller.makes_pods("new")
    for pod in pods:
        about = {"kind": "Pod", "name": pod, "namespace": controller.cluster.namespace}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "e.", "namespace": controller.cluster.namespace},
            "involvedObject": about,
            "reason": "Scheduled",
            "message": pod,
            "lastTimestamp": "2026-11-27T00:00:00Z",
        }
        controller.cluster.call("POST", path("Event", controller.cluster.namespace), event)
    assert [line.text for line in platform.logs(controller.name)] == [f"kubernetes: Scheduled: {pod}" for pod in pods]


def test_it_is_listed_with_all_its_nodes(controller: Controller, platform: KubernetesPlatform) -> None:
    controller.says({"Available": "True"}, **READY)
    (found,) = platform.endpoints()
    assert (found.name, found.status, found.instances) == (controller.name, "InService", (("g7e.2xlarge", 2),))


def test_it_pauses_and_comes_back(
    controller: Controller, platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path
) -> None:
    toolkit.pause(recipe.name, platform="kubernetes", progress=Silent())
    assert controller.set()["spec"]["replicas"] == 0
    assert platform.status(recipe.name).status == "Paused"
    deploy(platform, recipe, tmp_path)
    assert controller.set()["spec"]["replicas"] == 1


def test_a_rollback_is_refused_with_what_to_do(controller: Controller) -> None:
    with pytest.raises(UsageError, match="keeps no earlier version") as refused:
        toolkit.rollback(controller.name, platform="kubernetes", progress=Silent())
    assert refused.value.hint == "Deploy the older recipe."


def test_the_autoscaler_sets_its_groups(platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path) -> None:
    """KEDA does it through the scale subresource, and what it has set stays."""
    section = recipe.platform.kubernetes.edit(**PROMETHEUS)  # type: ignore[attr-defined]
    scaled = recipe_with(recipe, kubernetes=section, scaling=on_gpu(most=3).scaling)
    deploy(platform, scaled, tmp_path)
    controller = Controller(platform, recipe.name)
    place = f"{path('LeaderWorkerSet', platform.cluster.namespace, recipe.name)}/scale"
    platform.cluster.call(
        "PATCH", place, {"spec": {"replicas": 3}}, content_type="application/merge-patch+json",
        query={"fieldManager": "kube-controller-manager"},
    )  # fmt: skip
    deploy(platform, scaled, tmp_path)
    assert controller.set()["spec"]["replicas"] == 3
    deploy(platform, recipe, tmp_path)
    assert controller.set()["spec"]["replicas"] == 1


def test_a_recipe_that_fits_on_one_node_again_replaces_the_groups(
    controller: Controller, platform: KubernetesPlatform, tmp_path: Path
) -> None:
    deploy(platform, recipe_with(on_gpu(), name=controller.name), tmp_path)
    found = platform.observe((), [controller.name])
    assert found.get("Deployment", controller.name)
    assert found.get("LeaderWorkerSet", controller.name) is None


def made(platform: KubernetesPlatform, recipe: Recipe, folder: Path) -> Plan:
    """As by a `deploy` that waits still: what it removes last is there."""
    wanted = plan(platform, recipe.name, wanted_of(recipe, platform.cluster.namespace))
    make(wanted, RULES.kinds, platform, Record(folder / "record.jsonl", print), Silent())
    return wanted


def serves(platform: KubernetesPlatform, recipe: Recipe) -> None:
    """Its pods become ready."""
    if recipe.nodes > 1:
        Controller(platform, recipe.name).says({"Available": "True"}, **READY)
        return
    cluster, ready = platform.cluster, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    place = path("Deployment", cluster.namespace, recipe.name)

    def is_ready() -> bool:
        deployment = cluster.call("GET", place)
        for pod in pods(cluster, deployment):
            about = f"{path('Pod', cluster.namespace, pod['metadata']['name'])}/status"
            with SuppressStatus(404):  # one of the version before, which is gone
                cluster.call("PATCH", about, ready, content_type="application/merge-patch+json")
        return has_ready_pods(deployment)

    eventually(is_ready)


def kinds_of(platform: KubernetesPlatform, recipe: Recipe) -> list[str]:
    found = platform.observe((), [recipe.name]).existing
    return [item.kind for item in found if item.kind in ENDPOINTS]


@pytest.fixture
def one(recipe: Recipe) -> Recipe:
    """The same endpoint on one node."""
    return recipe_with(on_gpu(), name=recipe.name)


@pytest.mark.parametrize("nodes", [1, 2], ids=["to-several-nodes", "to-one-node"])
def test_while_both_are_there_the_endpoint_is_the_one_that_was_deployed_last(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path, nodes: int
) -> None:
    before, after = (one, recipe) if nodes == 1 else (recipe, one)
    deploy(platform, before, tmp_path)
    serves(platform, before)
    next_second()  # the server's times have no parts of it
    wanted = made(platform, after, tmp_path)
    assert platform.status(recipe.name).config == configs(wanted, RULES.kinds)[recipe.name]
    (listed,) = platform.endpoints()
    assert listed.config == platform.status(recipe.name).config

    # Given up: what serves still is wanted again.
    back = made(platform, before, tmp_path)
    gone = {1: "LeaderWorkerSet", 2: "Deployment"}[nodes]
    assert [str(action) for action in back.changes if action.kind == gone] == [f"delete {gone} {recipe.name}"]
    assert platform.status(recipe.name).config == configs(back, RULES.kinds)[recipe.name]


def test_what_serves_is_not_removed_before_a_correction_of_what_never_did(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path
) -> None:
    made(platform, one, tmp_path)
    next_second()
    made(platform, recipe, tmp_path)
    serves(platform, recipe)
    made(platform, recipe_with(one, engine=one.engine.edit(max_model_len=1024)), tmp_path)
    assert "LeaderWorkerSet" in kinds_of(platform, recipe)


def test_what_serves_is_not_removed_first_after_a_rollback(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path
) -> None:
    deploy(platform, one, tmp_path)
    deploy(platform, recipe_with(one, engine=one.engine.edit(max_model_len=1024)), tmp_path)
    made(platform, recipe, tmp_path)
    next_second()

    deployment = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, recipe.name))
    eventually(lambda: len(history(platform.cluster, deployment)[HISTORY]) > 1)
    observed = platform.observe((), [recipe.name])
    back = rollback_plan("r.yaml", "kubernetes", recipe.name, observed)
    make(back, RULES.kinds, platform, Record(tmp_path / "record.jsonl", print), Silent())
    serves(platform, one)
    made(platform, recipe, tmp_path)
    assert "Deployment" in kinds_of(platform, recipe)


def test_what_serves_is_not_removed_before_what_was_paused_serves_again(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path
) -> None:
    deploy(platform, one, tmp_path)
    toolkit.pause(one.name, platform="kubernetes", progress=Silent())
    next_second()
    made(platform, recipe, tmp_path)
    serves(platform, recipe)
    made(platform, one, tmp_path)
    assert "LeaderWorkerSet" in kinds_of(platform, recipe)


def test_what_serves_is_not_removed_before_what_others_applied_serves(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path
) -> None:
    deploy(platform, one, tmp_path)
    serves(platform, one)
    next_second()
    cluster = platform.cluster
    group = next(item for item in wanted_of(recipe, cluster.namespace) if item.kind == "LeaderWorkerSet")
    cluster.call(
        "PATCH", path(group.kind, cluster.namespace, group.name), group.request, query={"fieldManager": "argocd"},
        content_type="application/apply-patch+yaml",
    )  # fmt: skip
    made(platform, recipe, tmp_path)
    assert "Deployment" in kinds_of(platform, recipe)


def test_of_two_that_serve_none_is_removed_before_what_is_wanted_serves(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path
) -> None:
    deploy(platform, one, tmp_path)
    serves(platform, one)
    made(platform, recipe, tmp_path)
    serves(platform, recipe)
    for wanted in (recipe, recipe_with(one, engine=one.engine.edit(max_model_len=1024))):
        made(platform, wanted, tmp_path)
        assert kinds_of(platform, recipe) == ["Deployment", "LeaderWorkerSet"]


@pytest.mark.parametrize("nodes", [1, 2], ids=["to-several-nodes", "to-one-node"])
def test_what_was_served_before_a_change_that_nobody_waited_for_can_be_deployed_again(
    platform: KubernetesPlatform, recipe: Recipe, one: Recipe, tmp_path: Path, nodes: int
) -> None:
    """Else its wait would look at the newer one, which serves something else: "was rolled back"."""
    before, after = (one, recipe) if nodes == 1 else (recipe, one)
    deploy(platform, before, tmp_path)
    serves(platform, before)
    next_second()
    made(platform, after, tmp_path)
    serves(platform, after)
    back = made(platform, before, tmp_path)
    status = platform.status(recipe.name)
    assert (status.status, status.config) == ("InService", configs(back, RULES.kinds)[recipe.name])
    assert kinds_of(platform, recipe) == [{1: "Deployment", 2: "LeaderWorkerSet"}[nodes]]


@pytest.mark.parametrize("first", [1, 2], ids=["its-name-is-taken", "it-takes-a-name"])
@pytest.mark.parametrize(("number", "most"), [(0, 1), (1, 1), (3, 3)], ids=["first", "of-an-update", "scaled"])
def test_no_endpoint_has_the_name_of_a_group_s_own_service(
    platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path, first: int, number: int, most: int
) -> None:
    """By which its nodes would find each other: LeaderWorkerSet makes none where there is one."""
    section = recipe.platform.kubernetes.edit(**PROMETHEUS)  # type: ignore[attr-defined]
    several = recipe_with(recipe, kubernetes=section, scaling=on_gpu(most=most).scaling)
    recipes = [recipe_with(on_gpu(), name=f"{recipe.name}-{number}"), several]
    before, after = recipes if first == 1 else reversed(recipes)
    deploy(platform, before, tmp_path)
    with pytest.raises(PlatformError, match=f"find each other by a Service {recipe.name}-{number} of its own"):
        plan(platform, after.name, wanted_of(after, platform.cluster.namespace))


def test_other_numbers_than_those_of_groups_are_free(
    platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path
) -> None:
    names = ["one", "2", "00", "2024"]  # the second group is there while an update is
    of = [recipe_with(on_gpu(), name=f"{recipe.name}-{name}") for name in names]
    for each in (*of[:2], recipe, *of[2:]):
        deploy(platform, each, tmp_path)


def next_second() -> None:
    now = int(time.time())
    eventually(lambda: int(time.time()) > now)


def eventually(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_removed_with_all_that_was_made(
    controller: Controller, platform: KubernetesPlatform, tmp_path: Path
) -> None:
    carry_out(platform, plan(platform, controller.name, ()), tmp_path)
    assert [item.kind for item in platform.observe((), [controller.name]).existing if item.kind != "Namespace"] == []
    with pytest.raises(EndpointNotFound):
        platform.status(controller.name)
