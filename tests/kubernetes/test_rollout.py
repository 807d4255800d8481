"""Waiting for a Deployment: how far it is, and why it does not come up."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from fakes import FakeClock, Told
from manifests import NAME, deployment, endpoint, namespace
from standin_cluster import StandInCluster
from standin_controllers import Script
from standin_kubelet import HEALTHY, Step, crashed, probe_killed, ready, scheduled, started, unschedulable, waits

from toolkit.apply.progress import Silent
from toolkit.apply.stages import PROVISIONING, PULLING, STARTING
from toolkit.apply.waiter import wait_in_service
from toolkit.errors import EndpointFailed, EndpointNotFound
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.kinds import path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform

ARGS = "INFO non-default args: {}"
MASK = "ValueError: mask_hidden not found in weights but model is a P-EAGLE head"


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource]) -> None:
    for item in desired:
        platform.cluster.apply(path(item.kind, platform.namespace, item.name), item.request)


def wait(platform: KubernetesPlatform, config: str = "aaaa", told: Told | None = None) -> None:
    clock = FakeClock()

    def sleep(_: float) -> None:
        clock.sleep(5)

    wait_in_service(platform, {NAME: config}, told or Silent(), 3600, clock, sleep)


def failed(
    standin: StandInCluster, platform: KubernetesPlatform, *steps: Step, deadline: bool = False
) -> EndpointFailed:
    standin.controllers.script = Script(steps, deadline=deadline)
    deploy(platform, endpoint())
    with pytest.raises(EndpointFailed) as error:
        wait(platform)
    return error.value


def test_it_is_in_service_when_its_pods_are_ready(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    assert platform.status(NAME).status == "Creating"
    wait(platform)
    status = platform.status(NAME)
    assert (status.status, status.config) == ("InService", "aaaa")


def test_an_update_is_done_when_the_old_pods_are_gone(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    wait(platform)
    deploy(platform, endpoint("vllm:2", recipe="bbbb"))
    assert platform.status(NAME).status == "Updating"
    wait(platform, "bbbb")
    (pod,) = standin.store.select("pods")
    assert pod["spec"]["containers"][0]["image"] == "vllm:2"


def test_each_stage_is_told(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    steps = [Step(), Step(), scheduled(), Step(), Step(), started(ARGS), Step(), Step(), ready()]
    standin.controllers.script = Script(steps)
    deploy(platform, endpoint())
    told = Told()
    wait(platform, told=told)
    stages = [re.sub(r" [\d:]+$", "", update.removeprefix(f"{NAME}: ")) for update in told.updates]
    assert list(dict.fromkeys(stages)) == [PROVISIONING, PULLING, STARTING]
    assert next(said for said in told.said if "took" in said).startswith(f"chat: {PROVISIONING} took")
    assert told.said[-1] == "chat is in service"


def test_why_no_node_takes_it_is_told_while_it_waits(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    message = "0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron."
    standin.controllers.script = Script([unschedulable(message), *[Step()] * 3, *HEALTHY])
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
        ([scheduled(), started(), probe_killed("statuscode: 503")], "startup-probe", "statuscode: 503"),
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
        ([scheduled(), started(ARGS, MASK), crashed(1)], "no-mask-hidden", "mask_hidden not found"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_is_certain_ends_the_wait_at_once(
    standin: StandInCluster, platform: KubernetesPlatform, steps: Sequence[Step], code: str, words: str
) -> None:
    error = failed(standin, platform, *steps)
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
        (Step(events=[("FailedMount", 'MountVolume.SetUp failed for volume "artifacts"')]), "volume"),
        (waits("ErrImagePull", "dial tcp: i/o timeout"), "image-pull"),
        (Step(), "startup-probe"),
    ],
)
def test_what_may_go_away_ends_the_wait_at_the_deadline(
    standin: StandInCluster, platform: KubernetesPlatform, step: Step, code: str
) -> None:
    error = failed(standin, platform, step, Step(), Step(), deadline=True)
    assert error.cause
    assert error.cause.code == code


def test_a_pod_that_is_refused_ends_the_wait_at_once(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    refused = 'pods "chat-1" is forbidden: exceeded quota: small, requested: requests.memory=64Gi'
    standin.controllers.script = Script(refused=refused)
    deploy(platform, endpoint())
    with pytest.raises(EndpointFailed, match="exceeded quota") as error:
        wait(platform)
    assert error.value.cause
    assert error.value.cause.code == "namespace-quota"


def test_a_crash_that_nobody_knows_ends_the_wait_at_the_third_start(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    crashes = [crashed(3, f"start {number}", "boom", restarts=number) for number in range(3)]
    error = failed(standin, platform, scheduled(), started("start"), *crashes)
    assert "container engine ended with exit code 3, started 3 times" in error.message
    assert error.logs[-1] == "boom"


def test_who_may_not_read_logs_may_wait_all_the_same(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    standin.forbidden.add(("get", "pods/log"))
    crashes = [crashed(3, restarts=number) for number in range(3)]
    error = failed(standin, platform, scheduled(), started(), *crashes)
    assert "ended with exit code 3" in error.message


def test_a_failed_update_leaves_the_old_pods_serving(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    wait(platform)
    standin.controllers.script = Script([waits("InvalidImageName", "couldn't parse image")])
    deploy(platform, endpoint("nothing", recipe="bbbb"))
    with pytest.raises(EndpointFailed):
        wait(platform, "bbbb")
    ready_pods = [pod for pod in standin.store.select("pods") if "Ready" in str(pod.get("status"))]
    assert [pod["spec"]["containers"][0]["image"] for pod in ready_pods] == ["vllm:1"]


def test_it_stays_in_service_as_long_as_one_of_its_pods_does(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, [namespace(), deployment(replicas=2)])
    wait(platform)
    first, second = (key for key in standin.store.objects if key.plural == "pods")
    down = {**crashed(1, restarts=5).status, "conditions": []}
    standin.store.set_status(first, down)
    assert platform.status(NAME).status == "InService"
    standin.store.set_status(second, down)
    status = platform.status(NAME)
    assert (status.status, "ended with exit code 1, started 6 times" in status.failure_reason) == ("Failed", True)


def test_logs_have_each_start_and_each_line_once(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    standin.controllers.script = Script(
        [scheduled(), started("one", "two"), crashed(1, "three", restarts=0), started_again("four"), ready("five")]
    )
    deploy(platform, endpoint())
    bookmarks: dict[str, str] = {}
    seen: list[str] = []
    for _ in range(8):
        seen += [line.text for line in platform.logs(NAME, bookmarks=bookmarks)]
    assert [line for line in seen if not line.startswith("kubernetes: ")] == ["one", "two", "three", "four", "five"]
    assert "kubernetes: Scheduled: Successfully assigned pod to node-1" in seen


def started_again(*lines: str) -> Step:
    from standin_kubelet import container

    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    return Step({"containerStatuses": [container({"running": {}}, 1, ended)]}, (), lines)


def test_an_endpoint_that_is_not_there_is_not_found(platform: KubernetesPlatform) -> None:
    with pytest.raises(EndpointNotFound, match="no endpoint nobody in namespace ml of stand-in"):
        platform.status("nobody")
