"""What a plan says of a cluster: made, changed, replaced, kept, refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import CUSTOM, define, undefine
from kubernetes.client import ApiException
from limited import limited
from manifests import NAME, config_map, deployment, endpoint, manifest, namespace, placed, service
from recorded import recorded
from scripted_node import ScriptedNode
from waiting import until

from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME


def plan(platform: KubernetesPlatform, desired: Sequence[Resource], name: str = NAME) -> Plan:
    wanted = placed(desired, platform.cluster.namespace)
    return make_plan("recipe.yaml", RULES, [name], wanted, platform.observe(wanted, [name]))


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource], name: str = NAME) -> None:
    for action in plan(platform, desired, name).changes:
        platform.execute(action, Silent())


def verbs(made: Plan) -> dict[str, str]:
    return {action.kind: f"{action.verb}: {action.reason}" for action in made.actions}


def write(platform: KubernetesPlatform, kind: Any, name: str, manager: str, **spec: Any) -> None:
    """As somebody else: read, change, write; again where a controller has written in between."""
    place, status = path(kind, platform.cluster.namespace, name), 409
    while status == 409:
        document = platform.cluster.call("GET", place)
        changed = {**document, "spec": document["spec"] | spec}
        try:
            platform.cluster.call("PUT", place, changed, query={"fieldManager": manager})
            return
        except ApiException as error:
            status = error.status
            if status != 409:
                raise


def test_where_there_is_nothing_all_is_made(platform: KubernetesPlatform) -> None:
    made = plan(platform, endpoint())
    assert {action.verb for action in made.actions} == {"create"}


def test_what_is_as_it_shall_be_is_left_alone(platform: KubernetesPlatform) -> None:
    wanted = endpoint()
    deploy(platform, wanted)
    assert plan(platform, wanted).changes == []


def test_an_update_names_the_fields_that_change(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    made = plan(platform, endpoint("vllm:2", recipe="bbbb"))
    assert verbs(made)["Deployment"] == (
        "update: changes metadata.annotations.toolkit/recipe, spec.template.spec.containers[engine].image"
    )


def test_what_cannot_be_changed_is_replaced(platform: KubernetesPlatform) -> None:
    wanted = endpoint()
    deploy(platform, wanted)
    other = [*wanted[:-1], deployment(namespace=platform.cluster.namespace, labels={"tier": "gpu"})]
    assert verbs(plan(platform, other))["Deployment"] == "replace: spec.selector cannot be changed"
    deploy(platform, other)
    assert plan(platform, other).changes == []


@pytest.mark.parametrize(("name", "option"), [(NAME, ""), (f"{NAME}-baseline", " --baseline")])
def test_a_field_that_kubectl_set_is_refused_with_its_name(
    platform: KubernetesPlatform, name: str, option: str
) -> None:
    """And with the whole command that takes it over."""
    wanted = endpoint(name=name)
    deploy(platform, wanted)
    write(platform, "Service", name, "kubectl-edit", selector={"app.kubernetes.io/instance": "mine"})
    with pytest.raises(PlatformError, match=rf"Service {name}: spec\.selector\S* is set by kubectl-edit") as error:
        plan(platform, wanted)
    command = f"toolkit render recipe.yaml{option} | kubectl apply --server-side --force-conflicts"
    assert f"{command} --field-manager=toolkit" in error.value.hint


def scaled(platform: KubernetesPlatform, kind: str = "HorizontalPodAutoscaler") -> list[Resource]:
    """The endpoint with an autoscaler, which sets the number of pods."""
    target = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}, "maxReplicas": 4}
    spec = target if kind == "HorizontalPodAutoscaler" else {"scaleTargetRef": {"name": NAME}}
    place = platform.cluster.namespace
    base = endpoint(namespace_=place)[:-1]
    return [*base, deployment(namespace=place, replicas=None), manifest(kind, namespace=place, spec=spec)]


def replicas(platform: KubernetesPlatform) -> int:
    found: int = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, NAME))["spec"]["replicas"]
    return found


def autoscale(platform: KubernetesPlatform, number: int) -> None:
    write(platform, "Deployment", NAME, "kube-controller-manager", replicas=number)


def test_replicas_that_somebody_else_s_autoscaler_set_are_left_to_it(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    theirs = scaled(platform)[-1].request
    unlabelled = {**theirs, "metadata": {"name": "mine"}}
    platform.cluster.call("POST", path("HorizontalPodAutoscaler", platform.cluster.namespace), unlabelled)
    autoscale(platform, 4)
    assert plan(platform, endpoint()).changes == []
    deploy(platform, endpoint("vllm:2"))
    assert replicas(platform) == 4


def test_the_autoscaler_that_keda_makes_of_ours_is_left_alone(platform: KubernetesPlatform) -> None:
    """It has all labels of the ScaledObject (kedacore/keda, controllers/keda/hpa.go)."""
    define(platform.cluster, "ScaledObject")
    wanted = scaled(platform, "ScaledObject")
    deploy(platform, wanted)
    owner = platform.cluster.call("GET", path("ScaledObject", platform.cluster.namespace, NAME))
    about = {key: owner["metadata"][key] for key in ("name", "uid")}
    theirs = scaled(platform)[-1].request
    metadata = {
        "name": f"keda-hpa-{NAME}",
        "labels": owner["metadata"]["labels"],
        "ownerReferences": [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **about}],
    }
    body = {**theirs, "metadata": metadata}
    platform.cluster.call("POST", path("HorizontalPodAutoscaler", platform.cluster.namespace), body)
    assert plan(platform, wanted).changes == []


def test_turning_autoscaling_on_keeps_the_pods_that_serve(platform: KubernetesPlatform) -> None:
    deploy(
        platform,
        [
            *endpoint()[:-1],
            deployment(namespace=platform.cluster.namespace, replicas=3),
        ],
    )
    without_a_number = scaled(platform)[:-1]  # the autoscaler itself is newer than some genuine servers
    deploy(platform, without_a_number)
    assert replicas(platform) == 3
    autoscale(platform, 2)
    assert plan(platform, without_a_number).changes == []
    deploy(platform, without_a_number)
    assert replicas(platform) == 2


@pytest.mark.parametrize("program", ["kube-controller-manager", "keda"])
def test_turning_autoscaling_off_brings_the_number_of_the_recipe(platform: KubernetesPlatform, program: str) -> None:
    deploy(platform, scaled(platform))
    write(platform, "Deployment", NAME, program, replicas=4)
    off = [*endpoint()[:-1], deployment(replicas=2)]
    assert verbs(plan(platform, off))["Deployment"] == "update: changes spec.replicas"
    deploy(platform, off)
    assert replicas(platform) == 2
    assert plan(platform, off).changes == []


def test_an_autoscaler_goes_before_it_could_undo_the_number_of_pods(platform: KubernetesPlatform) -> None:
    deploy(platform, scaled(platform))
    autoscale(platform, 4)
    off = [*endpoint()[:-1], deployment(replicas=2)]
    (action,) = [item for item in plan(platform, off).changes if item.kind == "Deployment"]
    recording, cluster = recorded(platform)
    recording.execute(action, Silent())
    first, *others = [(sent.method, sent.path.split("/")[-2]) for sent in cluster.sent]
    assert first == ("DELETE", "horizontalpodautoscalers")
    assert set(others) == {("PATCH", "deployments")}  # refused at first, and whenever a controller has changed it


@pytest.mark.parametrize(
    ("before", "after"),
    [("HorizontalPodAutoscaler", "ScaledObject"), ("ScaledObject", "HorizontalPodAutoscaler")],
)
def test_one_autoscaler_goes_before_another_comes(platform: KubernetesPlatform, before: str, after: str) -> None:
    define(platform.cluster, "ScaledObject")
    deploy(platform, scaled(platform, before))
    (made,) = [action for action in plan(platform, scaled(platform, after)).changes if action.verb == "create"]
    platform.execute(made, Silent())
    place = platform.cluster.namespace
    assert platform.cluster.find(path(before, place, NAME)) is None
    assert platform.cluster.find(path(after, place, NAME))


def test_who_may_not_see_autoscalers_may_change_a_deployment(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    define(platform.cluster, "ScaledObject")
    deploy(platform, endpoint())
    unseen = ((verb, "scaledobjects") for verb in ("get", "list", "delete"))
    with limited(platform, kubeconfig, *unseen) as theirs:
        deploy(theirs, endpoint("vllm:2"))
        assert plan(theirs, endpoint("vllm:2")).changes == []


def test_what_others_made_is_never_changed(platform: KubernetesPlatform) -> None:
    deploy(platform, [namespace(platform.cluster.namespace)])
    theirs = service(namespace=platform.cluster.namespace).request
    unlabelled = {**theirs, "metadata": {"name": NAME, "namespace": platform.cluster.namespace}}
    platform.cluster.call("POST", path("Service", platform.cluster.namespace), unlabelled)
    with pytest.raises(PlatformError, match="Service chat exists and was not created by the toolkit"):
        plan(platform, endpoint())


def test_what_others_made_since_the_plan_is_not_changed_either(platform: KubernetesPlatform) -> None:
    deploy(platform, [namespace()])
    made = plan(platform, endpoint())
    unlabelled = {**service().request, "metadata": {"name": NAME}}
    platform.cluster.call("POST", path("Service", platform.cluster.namespace), unlabelled)
    (action,) = [action for action in made.actions if action.kind == "Service"]
    with pytest.raises(PlatformError, match="Service chat was created by somebody else since the plan"):
        platform.execute(action, Silent())


def test_a_namespace_of_others_is_lived_in_as_it_is(platform: KubernetesPlatform) -> None:
    theirs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": platform.cluster.namespace}}
    platform.cluster.call("POST", "/api/v1/namespaces", theirs)
    made = plan(platform, endpoint())
    assert verbs(made)["Namespace"] == "reuse: exists and belongs to somebody else; is used as it is"


def test_what_an_endpoint_no_longer_wants_is_removed(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    newer = [item for item in endpoint() if item.kind != "ConfigMap"]
    newer.append(config_map("print(2)", "chat-2", platform.cluster.namespace))
    assert [str(action) for action in plan(platform, newer).changes] == [
        "create ConfigMap chat-2",
        "delete ConfigMap chat-1",
    ]


def test_a_removal_takes_all_but_the_namespace_and_what_others_have(platform: KubernetesPlatform) -> None:
    place = platform.cluster.namespace
    deploy(platform, endpoint(namespace_=place))
    deploy(platform, endpoint(name="other", namespace_=place), "other")
    removal = plan(platform, ())
    assert [str(action) for action in removal.actions] == [
        "delete Deployment chat", "delete Service chat", "delete ConfigMap chat-1", "delete ServiceAccount chat",
    ]  # fmt: skip
    deploy(platform, ())
    assert [endpoint.name for endpoint in platform.endpoints() if endpoint.region.endswith(place)] == ["other"]


def test_the_last_removal_tells_of_the_namespace(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    (told,) = plan(platform, ()).not_removed
    assert told.startswith(f"namespace {platform.cluster.namespace}, which may contain other objects")
    assert told.endswith(f"kubectl delete namespace {platform.cluster.namespace}")


def volume(claim: str, namespace: str) -> list[Resource]:
    csi = {"driver": "s3.csi.aws.com", "volumeHandle": claim}
    common: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    reference = {"namespace": namespace, "name": claim}
    size = {"storage": "1Gi"}
    name = f"toolkit-{namespace}"
    bound = {"volumeName": name, "resources": {"requests": size}}
    return [
        manifest(
            "PersistentVolume",
            name,
            instance=None,
            spec={**common, "capacity": size, "claimRef": reference, "csi": csi},
        ),
        manifest("PersistentVolumeClaim", claim, namespace, instance=None, spec={**common, **bound}),
    ]


def test_a_shared_volume_goes_with_the_last_endpoint(platform: KubernetesPlatform) -> None:
    place = platform.cluster.namespace
    deploy(platform, [*endpoint(namespace_=place), *volume("artifacts", place)])
    deploy(platform, [*endpoint(name="other", namespace_=place), *volume("artifacts", place)], "other")
    assert {action.kind for action in plan(platform, ()).actions}.isdisjoint(
        {"PersistentVolume", "PersistentVolumeClaim"}
    )
    deploy(platform, ())
    last = {action.kind for action in plan(platform, (), "other").actions}
    assert {"PersistentVolume", "PersistentVolumeClaim"} <= last


def test_a_job_that_runs_by_hand_is_not_taken_for_a_leftover(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    pod = {"containers": [{"name": "compile", "image": "neuron:1"}], "restartPolicy": "Never"}
    job = manifest("Job", "compile-1", platform.cluster.namespace, spec={"template": {"spec": pod}})
    platform.cluster.apply(path("Job", platform.cluster.namespace, "compile-1"), job.request)
    assert plan(platform, endpoint()).changes == []
    assert "delete Job compile-1" in [str(action) for action in plan(platform, ()).actions]


def _on_node(kubelet: ScriptedNode) -> bool:
    kubelet.turn()
    return any("nodeName" in pod["spec"] for pod in kubelet.pods())


def hang(kubelet: ScriptedNode) -> None:
    """Its pods are on a node, and do not drain."""
    kubelet.endless = True
    until(lambda: _on_node(kubelet))


def test_what_is_being_deleted_is_made_anew(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    hang(kubelet)
    place = path("Deployment", platform.cluster.namespace, NAME)
    platform.cluster.call("DELETE", place, {"propagationPolicy": "Foreground"})
    assert verbs(plan(platform, endpoint()))["Deployment"] == "replace: is being deleted"


def test_a_benchmark_keeps_its_program(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    program = config_map(name="chat-benchmark-1", namespace=platform.cluster.namespace).request
    labels = {**program["metadata"]["labels"], "app.kubernetes.io/component": "benchmark"}
    labelled = {**program, "metadata": {**program["metadata"], "labels": labels}}
    platform.cluster.apply(path("ConfigMap", platform.cluster.namespace, "chat-benchmark-1"), labelled)
    assert plan(platform, endpoint()).changes == []
    assert "delete ConfigMap chat-benchmark-1" in [str(action) for action in plan(platform, ()).actions]


def going(platform: KubernetesPlatform) -> str:
    """Somebody deletes the namespace, which stays until it is `let_go`. Its uid."""
    place = path("Namespace", "", platform.cluster.namespace)
    held(platform, "example.com/hold")
    found = platform.cluster.call("DELETE", place)
    until(lambda: not platform.cluster.call("GET", place)["spec"].get("finalizers"))  # it is empty
    return str(found["metadata"]["uid"])


def held(platform: KubernetesPlatform, *finalizers: str) -> None:
    place, patch = path("Namespace", "", platform.cluster.namespace), {"metadata": {"finalizers": finalizers}}
    platform.cluster.call("PATCH", place, patch, content_type="application/merge-patch+json")


def uid(platform: KubernetesPlatform, kind: str, name: str) -> str:
    found = platform.cluster.call("GET", path(kind, platform.cluster.namespace, name))
    return str(found["metadata"]["uid"])


def test_a_namespace_that_goes_is_waited_for_and_never_deleted(platform: KubernetesPlatform) -> None:
    deploy(platform, [namespace()])
    before = going(platform)
    (action,) = plan(platform, [namespace()]).changes
    assert str(action) == f"replace Namespace {platform.cluster.namespace}"
    recording, cluster = recorded(replace(platform, sleep=lambda _: held(platform)))
    recording.execute(action, Silent())
    assert "DELETE" not in [sent.method for sent in cluster.sent]
    assert uid(platform, "Namespace", platform.cluster.namespace) != before


def test_a_namespace_that_somebody_made_anew_since_the_plan_stays(platform: KubernetesPlatform) -> None:
    deploy(platform, [namespace()])
    going(platform)
    (action,) = plan(platform, [namespace()]).changes
    held(platform)
    deploy(platform, [namespace()])
    anew = uid(platform, "Namespace", platform.cluster.namespace)
    platform.execute(action, Silent())
    assert uid(platform, "Namespace", platform.cluster.namespace) == anew


def test_what_somebody_replaced_since_the_plan_is_not_replaced_again(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    other = [*endpoint()[:-1], deployment(labels={"tier": "gpu"})]
    (action,) = plan(platform, other).changes
    platform.execute(action, Silent())
    made = uid(platform, "Deployment", NAME)
    platform.execute(action, Silent())
    assert uid(platform, "Deployment", NAME) == made


@pytest.mark.parametrize(("grace", "seconds"), [(None, 930), (600, 1500)])
def test_a_deletion_that_hangs_says_what_holds_it(
    kubelet: ScriptedNode, platform: KubernetesPlatform, grace: int | None, seconds: int
) -> None:
    """Without a word pods get 30 s to end."""
    wanted = endpoint()
    if grace:
        wanted[-1].request["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    deploy(platform, wanted)
    hang(kubelet)
    ticks = count(0, 100)
    with pytest.raises(PlatformError, match=rf"deleted after {seconds} s: what it owns, such as pods, is still there"):
        Objects(platform.cluster, lambda: next(ticks), lambda _: None).delete("Deployment", NAME)


def test_a_deletion_is_over_when_another_object_has_the_name(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    gone = {"metadata": {"name": NAME, "uid": "of-an-earlier-one"}}
    Objects(platform.cluster, sleep=lambda _: pytest.fail("nothing is left to wait for")).wait_gone("Deployment", gone)


def test_a_kind_that_the_cluster_does_not_have_is_nobody_s(platform: KubernetesPlatform) -> None:
    undefine(platform.cluster, "ScaledObject")
    deploy(platform, endpoint())
    assert plan(platform, endpoint()).changes == []


def test_who_may_see_one_namespace_only_may_deploy_into_it(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    with limited(platform, kubeconfig, ("list", "persistentvolumes"), ("list", "namespaces")) as theirs:
        deploy(theirs, endpoint())
        assert plan(theirs, endpoint()).changes == []


@pytest.mark.parametrize("kind", sorted(KINDS_BY_NAME.keys() - {item.kind for item in endpoint()}))
def test_what_is_not_wanted_need_not_be_seen(platform: KubernetesPlatform, kubeconfig: Path, kind: str) -> None:
    with limited(platform, kubeconfig, ("list", KINDS_BY_NAME[kind].api.plural)) as theirs:
        deploy(theirs, endpoint())
        assert plan(theirs, endpoint()).changes == []


def test_a_removal_that_may_not_look_is_refused(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    deploy(platform, endpoint())
    with (
        limited(platform, kubeconfig, ("list", "deployments")) as theirs,
        pytest.raises(PlatformError, match='cannot list resource "deployments"'),
    ):
        plan(theirs, ())


@pytest.mark.parametrize("kind", ["PersistentVolume", "ScaledObject"])
def test_a_removal_tells_which_rare_kinds_it_may_not_see(
    platform: KubernetesPlatform, kubeconfig: Path, kind: str
) -> None:
    if kind in CUSTOM:
        define(platform.cluster, kind)
    deploy(platform, endpoint())
    with limited(platform, kubeconfig, ("list", f"{kind.lower()}s")) as theirs:
        *_, told = plan(theirs, ()).not_removed
    assert told.startswith(f"a possible {kind} of this endpoint, which could not be read")


def test_of_a_kind_that_is_not_there_nobody_needs_a_right(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    """A cluster forbids it all the same, and whoever manages it could not give that right."""
    undefine(platform.cluster, "ScaledObject")
    deploy(platform, endpoint())
    with limited(platform, kubeconfig, ("list", "scaledobjects")) as theirs:
        assert not any("ScaledObject" in told for told in plan(theirs, ()).not_removed)
        with pytest.raises(PlatformError, match="does not know the kind ScaledObject") as error:
            plan(theirs, scaled(platform, "ScaledObject"))
    assert "This cluster has no KEDA" in error.value.hint


def test_a_right_that_is_missing_is_told_with_its_rule(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    with (
        limited(platform, kubeconfig, ("patch", "deployments")) as theirs,
        pytest.raises(PlatformError, match='cannot patch resource "deployments"') as error,
    ):
        deploy(theirs, endpoint())
    rule = '{apiGroups: ["apps"], resources: ["deployments"], verbs: ["patch"]}'
    asks = f"Ask for this rule in a Role of namespace {platform.cluster.namespace}: {rule}. "
    assert error.value.hint.startswith(asks)


def test_events_of_a_deployment_are_no_part_of_a_plan(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    wanted = placed(endpoint(), platform.cluster.namespace)
    before = platform.observe(wanted, [NAME]).fingerprint()
    until(lambda: _on_node(kubelet))
    assert platform.cluster.items(path("Event", platform.cluster.namespace), {})
    assert platform.observe(wanted, [NAME]).fingerprint() == before
