"""What a plan says of a cluster: made, changed, replaced, kept, refused. A genuine server is asked as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from manifests import NAME, config_map, deployment, endpoint, manifest, namespace, service
from standin_cluster import StandInCluster
from standin_store import Key

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
    return make_plan("recipe.yaml", RULES, [name], desired, platform.observe(desired, [name]))


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource], name: str = NAME) -> None:
    for action in plan(platform, desired, name).changes:
        platform.execute(action, Silent())


def verbs(made: Plan) -> dict[str, str]:
    return {action.kind: f"{action.verb}: {action.reason}" for action in made.actions}


def write(platform: KubernetesPlatform, kind: Any, name: str, manager: str, **spec: Any) -> None:
    """As somebody else: read, change, write."""
    place = path(kind, platform.cluster.namespace, name)
    document = platform.cluster.call("GET", place)
    platform.cluster.call("PUT", place, {**document, "spec": document["spec"] | spec}, query={"fieldManager": manager})


def test_where_there_is_nothing_all_is_made(either: KubernetesPlatform) -> None:
    made = plan(either, endpoint(namespace_=either.cluster.namespace))
    assert {action.verb for action in made.actions} == {"create"}


def test_what_is_as_it_shall_be_is_left_alone(either: KubernetesPlatform) -> None:
    wanted = endpoint(namespace_=either.cluster.namespace)
    deploy(either, wanted)
    assert plan(either, wanted).changes == []


def test_an_update_names_the_fields_that_change(either: KubernetesPlatform) -> None:
    deploy(either, endpoint(namespace_=either.cluster.namespace))
    made = plan(either, endpoint("vllm:2", namespace_=either.cluster.namespace, recipe="bbbb"))
    assert verbs(made)["Deployment"] == (
        "update: changes metadata.annotations.toolkit/recipe, spec.template.spec.containers[engine].image"
    )


def test_what_cannot_be_changed_is_replaced(either: KubernetesPlatform) -> None:
    wanted = endpoint(namespace_=either.cluster.namespace)
    deploy(either, wanted)
    other = [*wanted[:-1], deployment(namespace=either.cluster.namespace, labels={"tier": "gpu"})]
    assert verbs(plan(either, other))["Deployment"] == "replace: spec.selector cannot be changed"
    deploy(either, other)
    assert plan(either, other).changes == []


@pytest.mark.parametrize(("name", "option"), [(NAME, ""), (f"{NAME}-baseline", " --baseline")])
def test_a_field_that_kubectl_set_is_refused_with_its_name(either: KubernetesPlatform, name: str, option: str) -> None:
    """And with the whole command that takes it over."""
    wanted = endpoint(name=name, namespace_=either.cluster.namespace)
    deploy(either, wanted)
    write(either, "Service", name, "kubectl-edit", selector={"app.kubernetes.io/instance": "mine"})
    with pytest.raises(PlatformError, match=rf"Service {name}: spec\.selector\S* is set by kubectl-edit") as error:
        plan(either, wanted)
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
    unlabelled = {**theirs, "metadata": {"name": "mine", "namespace": "ml"}}
    platform.cluster.call("POST", path("HorizontalPodAutoscaler", "ml"), unlabelled)
    autoscale(platform, 4)
    assert plan(platform, endpoint()).changes == []
    deploy(platform, endpoint("vllm:2"))
    assert replicas(platform) == 4


def test_turning_autoscaling_on_keeps_the_pods_that_serve(either: KubernetesPlatform) -> None:
    deploy(
        either,
        [
            *endpoint(namespace_=either.cluster.namespace)[:-1],
            deployment(namespace=either.cluster.namespace, replicas=3),
        ],
    )
    without_a_number = scaled(either)[:-1]  # the autoscaler itself is newer than some genuine servers
    deploy(either, without_a_number)
    assert replicas(either) == 3
    autoscale(either, 2)
    assert plan(either, without_a_number).changes == []
    deploy(either, without_a_number)
    assert replicas(either) == 2


def test_turning_autoscaling_off_brings_the_number_of_the_recipe(platform: KubernetesPlatform) -> None:
    deploy(platform, scaled(platform))
    autoscale(platform, 4)
    off = [*endpoint()[:-1], deployment(replicas=2)]
    assert verbs(plan(platform, off))["Deployment"] == "update: changes spec.replicas"
    deploy(platform, off)
    assert replicas(platform) == 2
    assert plan(platform, off).changes == []


def test_an_autoscaler_goes_before_it_could_undo_the_number_of_pods(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, scaled(platform))
    autoscale(platform, 4)
    standin.asked.clear()
    deploy(platform, [*endpoint()[:-1], deployment(replicas=2)])
    changes = [asked for asked in standin.asked if asked[0] in ("delete", "patch")]
    deleted = changes.index(("delete", "horizontalpodautoscalers"))
    assert changes[deleted + 1 :] == [("patch", "deployments"), ("patch", "deployments")]  # refused, and taken over


@pytest.mark.parametrize(
    ("before", "after"),
    [("HorizontalPodAutoscaler", "ScaledObject"), ("ScaledObject", "HorizontalPodAutoscaler")],
)
def test_one_autoscaler_goes_before_another_comes(
    standin: StandInCluster, platform: KubernetesPlatform, before: str, after: str
) -> None:
    deploy(platform, scaled(platform, before))
    (made,) = [action for action in plan(platform, scaled(platform, after)).changes if action.verb == "create"]
    platform.execute(made, Silent())
    assert not standin.store.select(f"{before.lower()}s")
    assert standin.store.select(f"{after.lower()}s")


def test_who_may_not_see_autoscalers_may_change_a_deployment(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, endpoint())
    standin.forbidden |= {(verb, "scaledobjects") for verb in ("get", "list", "delete")}
    deploy(platform, endpoint("vllm:2"))
    assert plan(platform, endpoint("vllm:2")).changes == []


def test_what_others_made_is_never_changed(either: KubernetesPlatform) -> None:
    deploy(either, [namespace(either.cluster.namespace)])
    theirs = service(namespace=either.cluster.namespace).request
    unlabelled = {**theirs, "metadata": {"name": NAME, "namespace": either.cluster.namespace}}
    either.cluster.call("POST", path("Service", either.cluster.namespace), unlabelled)
    with pytest.raises(PlatformError, match="Service chat exists and was not created by the toolkit"):
        plan(either, endpoint(namespace_=either.cluster.namespace))


def test_what_others_made_since_the_plan_is_not_changed_either(platform: KubernetesPlatform) -> None:
    deploy(platform, [namespace()])
    made = plan(platform, endpoint())
    unlabelled = {**service().request, "metadata": {"name": NAME, "namespace": "ml"}}
    platform.cluster.call("POST", path("Service", "ml"), unlabelled)
    (action,) = [action for action in made.actions if action.kind == "Service"]
    with pytest.raises(PlatformError, match="Service chat was created by somebody else since the plan"):
        platform.execute(action, Silent())


def test_a_namespace_of_others_is_lived_in_as_it_is(either: KubernetesPlatform) -> None:
    theirs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": either.cluster.namespace}}
    either.cluster.call("POST", "/api/v1/namespaces", theirs)
    made = plan(either, endpoint(namespace_=either.cluster.namespace))
    assert verbs(made)["Namespace"] == "reuse: exists and belongs to somebody else; is used as it is"


def test_what_an_endpoint_no_longer_wants_is_removed(either: KubernetesPlatform) -> None:
    deploy(either, endpoint(namespace_=either.cluster.namespace))
    newer = [item for item in endpoint(namespace_=either.cluster.namespace) if item.kind != "ConfigMap"]
    newer.append(config_map("print(2)", "chat-2", either.cluster.namespace))
    assert [str(action) for action in plan(either, newer).changes] == [
        "create ConfigMap chat-2",
        "delete ConfigMap chat-1",
    ]


def test_a_removal_takes_all_but_the_namespace_and_what_others_have(either: KubernetesPlatform) -> None:
    place = either.cluster.namespace
    deploy(either, endpoint(namespace_=place))
    deploy(either, endpoint(name="other", namespace_=place), "other")
    removal = plan(either, ())
    assert [str(action) for action in removal.actions] == [
        "delete Deployment chat", "delete Service chat", "delete ConfigMap chat-1", "delete ServiceAccount chat",
    ]  # fmt: skip
    deploy(either, ())
    assert [endpoint.name for endpoint in either.endpoints() if endpoint.region.endswith(place)] == ["other"]


def test_the_last_removal_tells_of_the_namespace(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    (told,) = plan(platform, ()).not_removed
    assert told.startswith("namespace ml, which may contain other objects")
    assert told.endswith("kubectl delete namespace ml")


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


def test_a_shared_volume_goes_with_the_last_endpoint(either: KubernetesPlatform) -> None:
    place = either.cluster.namespace
    deploy(either, [*endpoint(namespace_=place), *volume("artifacts", place)])
    deploy(either, [*endpoint(name="other", namespace_=place), *volume("artifacts", place)], "other")
    assert {action.kind for action in plan(either, ()).actions}.isdisjoint(
        {"PersistentVolume", "PersistentVolumeClaim"}
    )
    deploy(either, ())
    last = {action.kind for action in plan(either, (), "other").actions}
    assert {"PersistentVolume", "PersistentVolumeClaim"} <= last


def test_a_job_that_runs_by_hand_is_not_taken_for_a_leftover(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    pod = {"containers": [{"name": "compile", "image": "neuron:1"}], "restartPolicy": "Never"}
    job = manifest("Job", "compile-1", spec={"template": {"spec": pod}})
    platform.cluster.apply(path("Job", "ml", "compile-1"), job.request)
    assert plan(platform, endpoint()).changes == []
    assert "delete Job compile-1" in [str(action) for action in plan(platform, ()).actions]


def test_what_is_being_deleted_is_made_anew(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    standin.controllers.endless = True
    platform.status(NAME)  # which lets the controllers make its pods
    platform.cluster.call("DELETE", path("Deployment", "ml", NAME), {"propagationPolicy": "Foreground"})
    assert verbs(plan(platform, endpoint()))["Deployment"] == "replace: is being deleted"


def test_a_benchmark_keeps_its_program(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    program = config_map(name="chat-benchmark-1").request
    labels = {**program["metadata"]["labels"], "app.kubernetes.io/component": "benchmark"}
    labelled = {**program, "metadata": {**program["metadata"], "labels": labels}}
    platform.cluster.apply(path("ConfigMap", "ml", "chat-benchmark-1"), labelled)
    assert plan(platform, endpoint()).changes == []
    assert "delete ConfigMap chat-benchmark-1" in [str(action) for action in plan(platform, ()).actions]


def going(standin: StandInCluster, name: str = "ml") -> dict[str, Any]:
    """The namespace, which somebody is deleting."""
    there = standin.store.objects[Key("namespaces", "", name)]
    standin.store.mark_deleted(Key("namespaces", "", name), ["kubernetes"])
    return there


def test_a_namespace_that_goes_is_waited_for_and_never_deleted(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, [namespace()])
    there = going(standin)
    (action,) = plan(platform, [namespace()]).changes
    assert str(action) == "replace Namespace ml"
    waiting = replace(platform, sleep=lambda _: standin.store.remove(Key("namespaces", "", "ml")))
    waiting.execute(action, Silent())
    assert ("delete", "namespaces") not in standin.asked
    assert standin.store.objects[Key("namespaces", "", "ml")]["metadata"]["uid"] != there["metadata"]["uid"]


def test_a_namespace_that_somebody_made_anew_since_the_plan_stays(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, [namespace()])
    going(standin)
    (action,) = plan(platform, [namespace()]).changes
    standin.store.remove(Key("namespaces", "", "ml"))
    deploy(platform, [namespace()])
    anew = standin.store.objects[Key("namespaces", "", "ml")]["metadata"]["uid"]
    platform.execute(action, Silent())
    assert standin.store.objects[Key("namespaces", "", "ml")]["metadata"]["uid"] == anew


def test_what_somebody_replaced_since_the_plan_is_not_replaced_again(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, endpoint())
    other = [*endpoint()[:-1], deployment(labels={"tier": "gpu"})]
    (action,) = plan(platform, other).changes
    platform.execute(action, Silent())
    made = standin.store.objects[Key("deployments", "ml", NAME)]["metadata"]["uid"]
    platform.execute(action, Silent())
    assert standin.store.objects[Key("deployments", "ml", NAME)]["metadata"]["uid"] == made


@pytest.mark.parametrize(("grace", "seconds"), [(None, 900), (600, 1500)])
def test_a_deletion_that_hangs_says_what_holds_it(
    standin: StandInCluster, platform: KubernetesPlatform, grace: int | None, seconds: int
) -> None:
    wanted = endpoint()
    if grace:
        wanted[-1].request["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    deploy(platform, wanted)
    standin.controllers.endless = True
    platform.status(NAME)
    ticks = iter(range(0, 10_000, 100))
    with pytest.raises(PlatformError, match=rf"deleted after {seconds} s: what it owns, such as pods, is still there"):
        Objects(platform.cluster, lambda: next(ticks), lambda _: None).delete("Deployment", NAME)


def test_a_deletion_is_over_when_another_object_has_the_name(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    gone = {"metadata": {"name": NAME, "uid": "of-an-earlier-one"}}
    Objects(platform.cluster, sleep=lambda _: pytest.fail("nothing is left to wait for")).wait_gone("Deployment", gone)


@pytest.mark.parametrize("kind", ["resourceclaimtemplates", "scaledobjects"])
def test_a_kind_that_the_cluster_does_not_have_is_nobody_s(
    standin: StandInCluster, platform: KubernetesPlatform, kind: str
) -> None:
    standin.missing.add(kind)
    deploy(platform, endpoint())
    assert plan(platform, endpoint()).changes == []


def test_a_kind_that_the_cluster_lacks_is_told_with_what_brings_it(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    standin.missing.add("scaledobjects")
    scaled = manifest("ScaledObject", spec={"scaleTargetRef": {"name": NAME}})
    with pytest.raises(PlatformError, match="does not know the kind ScaledObject") as error:
        deploy(platform, [*endpoint(), scaled])
    assert "KEDA" in error.value.hint
    assert standin.store.objects == {}


def test_who_may_see_one_namespace_only_may_deploy_into_it(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    standin.forbidden |= {("list", "persistentvolumes"), ("list", "namespaces")}
    deploy(platform, endpoint())
    assert plan(platform, endpoint()).changes == []


@pytest.mark.parametrize("kind", sorted(KINDS_BY_NAME.keys() - {item.kind for item in endpoint()}))
def test_what_is_not_wanted_need_not_be_seen(standin: StandInCluster, platform: KubernetesPlatform, kind: str) -> None:
    standin.forbidden.add(("list", KINDS_BY_NAME[kind].api.plural))
    deploy(platform, endpoint())
    assert plan(platform, endpoint()).changes == []


def test_a_removal_that_may_not_look_is_refused(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    standin.forbidden.add(("list", "deployments"))
    with pytest.raises(PlatformError, match='cannot list resource "deployments"'):
        plan(platform, ())


@pytest.mark.parametrize("kind", ["PersistentVolume", "ScaledObject"])
def test_a_removal_tells_which_rare_kinds_it_may_not_see(
    standin: StandInCluster, platform: KubernetesPlatform, kind: str
) -> None:
    deploy(platform, endpoint())
    standin.forbidden.add(("list", f"{kind.lower()}s"))
    *_, told = plan(platform, ()).not_removed
    assert told.startswith(f"a possible {kind} of this endpoint, which could not be read")


def test_a_right_that_is_missing_is_told_with_its_rule(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    standin.forbidden.add(("patch", "deployments"))
    with pytest.raises(PlatformError, match='cannot patch resource "deployments"') as error:
        deploy(platform, endpoint())
    rule = '{apiGroups: ["apps"], resources: ["deployments"], verbs: ["patch"]}'
    assert error.value.hint.startswith(f"Ask for this rule in a Role of namespace ml: {rule}. ")


def test_events_of_a_deployment_are_no_part_of_a_plan(platform: KubernetesPlatform) -> None:
    deploy(platform, endpoint())
    before = platform.observe(endpoint(), [NAME]).fingerprint()
    for _ in range(4):
        platform.status(NAME)
    assert platform.cluster.items(path("Event", "ml"), {})
    assert platform.observe(endpoint(), [NAME]).fingerprint() == before
