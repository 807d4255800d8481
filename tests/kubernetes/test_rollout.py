"""Waiting for a Deployment: how far it is, and why it does not come up."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock, Told
from kubernetes.client import ApiException
from limited import limited
from manifests import NAME, deployment, endpoint, namespace, placed
from pod_steps import HEALTHY, Step, container, crashed, probe_killed, ready, scheduled, started, unschedulable, waits
from scripted_node import ScriptedNode
from waiting import until

from toolkit.apply.progress import Silent
from toolkit.apply.stages import PROVISIONING, PULLING
from toolkit.apply.waiter import wait_in_service
from toolkit.errors import EndpointFailed, EndpointNotFound, Unavailable, WaitTimeout
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes import rollout
from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.documents import seconds
from toolkit.platforms.kubernetes.platform import KubernetesPlatform

ARGS = "INFO non-default args: {}"
DOWN = Step({**crashed(1, restarts=5).status, "conditions": []})
CLAIM = 'persistentvolumeclaim "%s" not found'
MASK = "ValueError: mask_hidden not found in weights but model is a P-EAGLE head"


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource]) -> None:
    for item in placed(desired, platform.cluster.namespace):
        platform.cluster.apply(path(item.kind, platform.cluster.namespace, item.name), item.request)


def wait(platform: KubernetesPlatform, config: str = "aaaa", told: Told | None = None, timeout: float = 3600) -> None:
    clock = FakeClock()

    def sleep(_: float) -> None:
        clock.sleep(5)
        platform.sleep(5)

    wait_in_service(platform, {NAME: config}, told or Silent(), timeout, clock, sleep)


def available(platform: KubernetesPlatform) -> int:
    """The number of pods that serve, as the Deployment's controller has counted them."""
    found = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, NAME))
    count: int = found["status"].get("availableReplicas", 0)
    return count


def is_seen(platform: KubernetesPlatform) -> bool:
    """Whether the controller has taken notice of the newest change."""
    found = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, NAME))
    return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])


def failed(
    kubelet: ScriptedNode, platform: KubernetesPlatform, *steps: Step, desired: Sequence[Resource] = ()
) -> EndpointFailed:
    kubelet.script = steps
    deploy(platform, desired or endpoint())
    with pytest.raises(EndpointFailed) as error:
        wait(platform)
    return error.value


def test_what_a_hopeless_endpoint_does_is_told_in_a_clusters_words(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    error = failed(kubelet, platform, scheduled(), started(ARGS, MASK), *[Step()] * 20)
    assert error.cause
    assert error.cause.code == "no-mask-hidden"
    assert error.hint.endswith(
        "It is still Creating, and keeps its accelerators: its containers keep restarting. "
        "`toolkit deploy` of the corrected recipe replaces them, `toolkit destroy chat` removes it."
    )
    assert "SageMaker" not in str(error)


@pytest.mark.parametrize(
    ("first", "meanwhile"),
    [(HEALTHY, "the pods that are ready continue to serve"), ((scheduled(), *[Step()] * 40), "keeps its accelerators")],
)
def test_a_hopeless_update_says_whether_anything_serves(
    kubelet: ScriptedNode, platform: KubernetesPlatform, first: Sequence[Step], meanwhile: str
) -> None:
    kubelet.script = first
    deploy(platform, endpoint())
    if first is HEALTHY:
        wait(platform)
    crash = scheduled(), started(ARGS, MASK), *[Step()] * 20
    error = failed(kubelet, platform, *crash, desired=endpoint("vllm:2", recipe="bbbb"))
    assert f"It is still Updating, and {meanwhile}: its containers keep restarting." in error.hint


def test_it_is_in_service_when_its_pods_are_ready(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    assert platform.status(NAME).status == "Creating"
    wait(platform)
    status = platform.status(NAME)
    assert (status.status, status.config) == ("InService", "aaaa")


def test_an_update_is_done_when_the_old_pods_are_gone(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    wait(platform)
    deploy(platform, endpoint("vllm:2", recipe="bbbb"))
    assert platform.status(NAME).status == "Updating"
    wait(platform, "bbbb")
    stay = [pod for pod in kubelet.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["spec"]["containers"][0]["image"] for pod in stay] == ["vllm:2"]


def test_each_stage_is_told(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    steps = [Step(), Step(), scheduled(), Step(), Step(), started(ARGS), Step(), Step(), ready()]
    kubelet.script = steps
    deploy(platform, endpoint())
    told = Told()
    wait(platform, told=told)
    stages = [re.sub(r" [\d:]+( of about .*)?$", "", update.removeprefix(f"{NAME}: ")) for update in told.updates]
    assert list(dict.fromkeys(stages)) == [
        PROVISIONING,
        PULLING,
        "reading its configuration, starting the engine's core",
    ]
    assert next(said for said in told.said if "took" in said).startswith(f"chat: {PROVISIONING} took")
    assert told.said[-1] == "chat is in service"


def test_why_no_node_takes_it_is_told_while_it_waits(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    message = "0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron."
    kubelet.script = [unschedulable(message), *[Step()] * 3, *HEALTHY]
    deploy(platform, endpoint())
    told = Told()
    wait(platform, told=told)
    assert any(f"(FailedScheduling: {message})" in update for update in told.updates)


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        (
            [scheduled(), waits("ImagePullBackOff", "Back-off", ("Failed", 'Failed to pull image "x": not found'))],
            "image-missing",
            'ImagePullBackOff: Failed to pull image "x": not found',
        ),
        ([scheduled(), waits("ErrImagePull", "pull access denied for x")], "image-access", "pull access denied"),
        ([waits("InvalidImageName", "couldn't parse image")], "image-missing", "InvalidImageName"),
        ([waits("CreateContainerConfigError", 'secret "hub" not found')], "container-config", 'secret "hub" not found'),
        ([waits("CreateContainerConfigError", "couldn't find key token")], "container-config", "couldn't find key"),
        ([scheduled(), started(), probe_killed("statuscode: 503")], "startup-probe", "statuscode: 503"),
        # One that drains ends by itself.
        ([scheduled(), started(), probe_killed("statuscode: 503", code=0)], "startup-probe", "statuscode: 503"),
        (
            [scheduled(), started(), crashed(137, reason="OOMKilled", restarts=1)],
            "memory-limit",
            "container engine used up its memory limit",
        ),
        (
            [unschedulable("request neurons: device class neuron.aws.com does not exist")],
            "device-claim",
            "device class",
        ),
        ([unschedulable(f"0/3 nodes are available: {CLAIM % 'models'}")], "volume", CLAIM % "models"),
        ([scheduled(), started(ARGS, MASK), crashed(1)], "no-mask-hidden", "mask_hidden not found"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_is_certain_ends_the_wait_at_once(
    kubelet: ScriptedNode, platform: KubernetesPlatform, steps: Sequence[Step], code: str, words: str
) -> None:
    error = failed(kubelet, platform, *steps)
    assert error.cause
    assert error.cause.code == code
    assert words in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (unschedulable("0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron."), "neuron-devices"),
        (unschedulable("0/3 nodes are available: 3 cannot allocate all claims."), "device-claim"),
        (unschedulable("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."), "no-node"),
        (unschedulable("pod has unbound immediate PersistentVolumeClaims."), "volume"),
        (unschedulable(CLAIM % "chat-model-0a1b2c3d"), "volume"),
        (Step(events=[("FailedMount", 'MountVolume.SetUp failed for volume "artifacts"')]), "volume"),
        (waits("ErrImagePull", "dial tcp: i/o timeout"), "image-pull"),
        (waits("CreateContainerError", "context deadline exceeded"), "container-config"),
        (Step(), "startup-probe"),
    ],
)
def test_what_may_go_away_ends_the_wait_at_the_deadline(
    kubelet: ScriptedNode, platform: KubernetesPlatform, step: Step, code: str
) -> None:
    hasty = endpoint()
    hasty[-1].request["spec"]["progressDeadlineSeconds"] = 1
    error = failed(kubelet, platform, step, desired=hasty)
    assert error.cause
    assert error.cause.code == code


def test_a_container_that_a_busy_node_cannot_make_is_waited_for(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    late = waits("CreateContainerError", "context deadline exceeded")
    kubelet.script = [scheduled(), late, Step(), *HEALTHY]
    deploy(platform, endpoint())
    wait(platform)


def test_a_crash_that_nobody_knows_ends_the_wait_at_the_third_start(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    crashes = [crashed(3, f"start {number}", "boom", restarts=number) for number in range(3)]
    error = failed(kubelet, platform, scheduled(), started("start"), *crashes)
    assert "container engine ended with exit code 3, started 3 times" in error.message
    assert error.logs[-1] == "boom"


def test_who_may_not_read_logs_may_wait_all_the_same(
    kubelet: ScriptedNode, platform: KubernetesPlatform, kubeconfig: Path
) -> None:
    crashes = [crashed(3, restarts=number) for number in range(3)]
    with limited(platform, kubeconfig, ("get", "pods/log")) as theirs:
        error = failed(kubelet, theirs, scheduled(), started(), *crashes)
    assert "ended with exit code 3" in error.message


def test_a_failed_update_leaves_the_old_pods_serving(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    wait(platform)
    kubelet.script = [waits("InvalidImageName", "couldn't parse image")]
    deploy(platform, endpoint("nothing", recipe="bbbb"))
    with pytest.raises(EndpointFailed):
        wait(platform, "bbbb")
    ready_pods = [pod for pod in kubelet.pods() if "Ready" in str(pod.get("status"))]
    assert [pod["spec"]["containers"][0]["image"] for pod in ready_pods] == ["vllm:1"]


def test_it_stays_in_service_as_long_as_one_of_its_pods_does(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    deploy(platform, [namespace(), deployment(replicas=2)])
    wait(platform)
    first, second = kubelet.pods()
    kubelet.say(first, DOWN)
    until(lambda: available(platform) == 1)
    assert platform.status(NAME).status == "InService"
    kubelet.say(second, DOWN)
    until(lambda: available(platform) == 0)
    status = platform.status(NAME)
    assert (status.status, "ended with exit code 1, started 6 times" in status.failure_reason) == ("Failed", True)


def test_pods_that_crash_are_told_after_a_change_of_nothing_in_them(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    deploy(platform, endpoint())
    wait(platform)
    (pod,) = kubelet.pods()
    kubelet.say(pod, DOWN)
    until(lambda: available(platform) == 0)
    made = seconds(pod["metadata"]["creationTimestamp"])
    until(lambda: time.time() >= made + 1)  # so that the change is a later one: Kubernetes' times have seconds
    deploy(platform, endpoint(recipe="bbbb"))
    until(lambda: is_seen(platform))
    status = platform.status(NAME)
    assert (status.status, status.config) == ("Failed", "bbbb")
    assert "ended with exit code 1, started 6 times" in status.failure_reason


def test_an_update_is_not_judged_by_the_pods_that_crashed_before(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    failed(kubelet, platform, scheduled(), started(), *(crashed(3, restarts=number) for number in range(3)))
    document = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, NAME))
    document["metadata"]["generation"] += 1  # as it is before the deployment controller has seen the update
    assert rollout.status(platform.cluster, document).status == "Updating"


def test_a_first_version_that_is_counted_but_not_observed_yet_is_creating(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    place = path("Deployment", platform.cluster.namespace, NAME)
    until(lambda: rollout.revision(platform.cluster.call("GET", place)) == "1")
    document = platform.cluster.call("GET", place)
    document["status"].pop("observedGeneration", None)  # as the deployment controller leaves it for some milliseconds
    assert rollout.status(platform.cluster, document).status == "Creating"


def test_what_no_controller_has_seen_yet_is_not_in_service_even_without_pods(platform: KubernetesPlatform) -> None:
    document = {**endpoint()[-1].request, "status": {}}
    document["metadata"] = {**document["metadata"], "generation": 1}
    document["spec"] = {**document["spec"], "replicas": 0}
    assert rollout.status(platform.cluster, document).status == "Creating"


def test_back_to_what_it_was_is_done_when_the_pods_of_in_between_are_gone(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    deploy(platform, endpoint())
    wait(platform)
    kubelet.script = [Step()]
    deploy(platform, endpoint("vllm:2", recipe="bbbb"))
    until(lambda: len(kubelet.pods()) == 2)
    deploy(platform, endpoint())
    document = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, NAME))
    # As it is before the deployment controller has scaled the pods of in between down.
    finished = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}
    counts = {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 1}
    seen = {"observedGeneration": document["metadata"]["generation"]}
    document["status"] = {**counts, **seen, "conditions": [finished]}
    assert rollout.status(platform.cluster, document).status == "Updating"
    wait(platform)


def test_what_the_cluster_refused_of_the_version_before_is_not_said_of_the_next(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    document = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, NAME))
    message = 'pods "chat-1" is forbidden: violates PodSecurity "restricted:latest"'
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    document["status"] = {"observedGeneration": document["metadata"]["generation"], "conditions": [refused]}
    assert rollout.status(platform.cluster, document).status == "Failed"
    document["metadata"]["generation"] += 1
    assert rollout.status(platform.cluster, document).status in ("Creating", "Updating")


def test_a_progress_bar_is_its_last_state_and_no_line_is_none(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    bar = "Loading:   0%\rLoading:  50%\rLoading: 100%\r"
    rotated = "failed to watch file: too many open files"
    kubelet.script = [scheduled(), started("one", bar, f"two\n{rotated}"), ready("three")]
    deploy(platform, endpoint())
    wait(platform)
    lines = [line.text for line in platform.logs(NAME) if not line.text.startswith("kubernetes: ")]
    assert lines == ["one", "Loading: 100%", "two", "three"]


def test_a_log_has_no_colours(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    kubelet.script = [scheduled(), started("\x1b[0;36m(EngineCore pid=7)\x1b[0;0m gone"), ready()]
    deploy(platform, endpoint())
    wait(platform)
    assert "(EngineCore pid=7) gone" in [line.text for line in platform.logs(NAME)]


@pytest.mark.parametrize("resource", ["pods", "events", "replicasets"])
def test_who_may_not_look_at_pods_may_look_at_endpoints(
    kubelet: ScriptedNode, platform: KubernetesPlatform, kubeconfig: Path, resource: str
) -> None:
    kubelet.script = [scheduled(), waits("ImagePullBackOff", "back-off")]
    deploy(platform, endpoint())
    with limited(platform, kubeconfig, ("list", resource)) as theirs:
        assert [item.status for item in theirs.endpoints()] == ["Creating"]


@dataclass(frozen=True)
class BusyCluster(Cluster):
    """Refuses each look at a Deployment but the first, as long as `busy` says."""

    busy: list[ApiException] = field(default_factory=list)

    def find(self, path: str) -> dict[str, Any] | None:
        if self.busy:
            raise self.busy.pop()
        return super().find(path)


def busy(platform: KubernetesPlatform, status: int, times: int) -> KubernetesPlatform:
    errors = [ApiException(status=status, reason="etcdserver: leader changed") for _ in range(times)]
    here = platform.cluster
    return replace(platform, cluster=BusyCluster(here.client, here.context, here.namespace, errors))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_server_that_is_busy_for_a_while_does_not_end_the_wait(
    platform: KubernetesPlatform, status: int
) -> None:
    deploy(platform, endpoint())
    told = Told()
    wait(busy(platform, status, 20), told=told)
    waits = [said for said in told.said if "still waiting" in said]
    assert waits == [f"chat: still waiting: looking at chat: etcdserver: leader changed ({status})"]
    assert told.said[-1] == "chat is in service"


def test_one_that_is_busy_for_more_than_five_minutes_does(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    with pytest.raises(Unavailable, match="leader changed"):
        wait(busy(platform, 503, 1000))


def test_a_silence_is_told_in_the_words_of_a_cluster(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    kubelet.script = [Step()] * 200
    deploy(platform, endpoint())
    told = Told()
    with pytest.raises(WaitTimeout):
        wait(platform, told=told, timeout=1000)
    (said,) = [said for said in told.said if "has written a line" in said]
    assert said == (
        "chat: no container has written a line for 15 minutes: `kubectl describe pod` shows why its pods are waiting"
    )


def test_logs_have_each_start_and_each_line_once(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    again = started_again("four")
    kubelet.script = [scheduled(), started("one", "two"), crashed(1, "three"), again, ready("five")]
    deploy(platform, endpoint())
    bookmarks: dict[str, str] = {}
    seen: list[str] = []
    while "five" not in seen:
        platform.sleep(0)
        seen += [line.text for line in platform.logs(NAME, bookmarks=bookmarks)]
    assert [line for line in seen if not line.startswith("kubernetes: ")] == ["one", "two", "three", "four", "five"]
    assert "kubernetes: Scheduled: Successfully assigned pod to node-1" in seen


def test_the_lines_of_a_start_that_ended_are_read_also_where_the_next_one_begins_meanwhile(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    kubelet.script = [scheduled(), started("one"), crashed(1, "two")]
    deploy(platform, endpoint())
    while "two" not in [line.text for line in platform.logs(NAME)]:
        platform.sleep(0)
    lines = platform.logs(NAME)
    assert next(lines).text.startswith("kubernetes: ")  # the pod was listed before
    kubelet.go_on([started_again("three")])
    kubelet.turn()
    assert [line.text for line in lines if not line.text.startswith("kubernetes: ")] == ["one", "two"]


def test_logs_since_some_time_are_of_pods_that_were_made_since(
    kubelet: ScriptedNode, platform: KubernetesPlatform
) -> None:
    kubelet.script = [scheduled(), started("one"), ready()]
    deploy(platform, endpoint())
    wait(platform)
    (pod,) = kubelet.pods()
    made = seconds(pod["metadata"]["creationTimestamp"])
    assert "one" in [line.text for line in platform.logs(NAME, since=made)]
    assert list(platform.logs(NAME, since=made + 1)) == []


def started_again(*lines: str) -> Step:
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    return Step({"containerStatuses": [container({"running": {}}, 1, ended)]}, (), lines)


def test_an_endpoint_that_is_not_there_is_not_found(platform: KubernetesPlatform) -> None:
    with pytest.raises(EndpointNotFound, match=f"no endpoint nobody in namespace {platform.cluster.namespace} of real"):
        platform.status("nobody")
