"""Rules of the API server that the toolkit depends on, each with its source.

They are asked of the stand-in; and with KUBEBUILDER_ASSETS, of a genuine kube-apiserver with its controllers. SSA is
https://kubernetes.io/docs/reference/using-api/server-side-apply.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from kubernetes.client import ApiException
from manifests import NAME, config_map, deployment, namespace

from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.errors import causes_of, message_of, status_of
from toolkit.platforms.kubernetes.platform import KubernetesPlatform

_PATIENCE_SECONDS = 20.0


class Objects:
    """The cluster, with a namespace of this test's own."""

    def __init__(self, platform: KubernetesPlatform) -> None:
        self.cluster: Cluster = platform.cluster
        self.namespace = platform.cluster.namespace
        self.cluster.apply(path("Namespace", "", self.namespace), namespace(self.namespace).request)

    def deployment(self, **settings: Any) -> dict[str, Any]:
        return dict(deployment(namespace=self.namespace, **settings).request)

    @property
    def place(self) -> str:
        return path("Deployment", self.namespace, NAME)

    def apply(self, document: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        return self.cluster.apply(self.place, document, dry_run=dry_run)

    def there(self) -> dict[str, Any]:
        found = self.cluster.find(self.place)
        assert found
        return found

    def update(self, manager: str, **spec: Any) -> dict[str, Any]:
        """As kubectl does: read, change, write. Controllers write in between, so more than once if need be."""
        while True:
            document = self.there()
            document["spec"] |= spec
            try:
                return self.cluster.call("PUT", self.place, document, query={"fieldManager": manager})
            except ApiException as error:
                if error.status != 409:
                    raise


@pytest.fixture
def objects(either: KubernetesPlatform) -> Objects:
    return Objects(either)


def refused(error: pytest.ExceptionInfo[ApiException]) -> tuple[int, str]:
    return error.value.status, str(status_of(error.value).get("reason", ""))


def managers(document: Mapping[str, Any]) -> dict[str, Any]:
    return {item["manager"]: item["fieldsV1"] for item in document["metadata"]["managedFields"]}


def settled(objects: Objects) -> dict[str, Any]:
    """The Deployment once its controller has seen it and leaves it alone."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    before = objects.there()
    while time.monotonic() < deadline:
        now = objects.there()
        seen = now.get("status", {}).get("observedGeneration", 0) >= now["metadata"]["generation"]
        if seen and now["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]:
            return now
        before = now
        time.sleep(0.02)
    raise TimeoutError("the Deployment does not settle")


def test_apply_makes_what_does_not_exist(objects: Objects) -> None:
    """SSA: "If the resource does not exist, it is created"."""
    assert objects.apply(objects.deployment())["metadata"]["generation"] == 1


def test_applying_the_same_again_changes_nothing(objects: Objects) -> None:
    """apimachinery managedfields: no new time and no new version where nothing changes."""
    place, document = path("ConfigMap", objects.namespace, "chat-1"), config_map(namespace=objects.namespace).request
    before = objects.cluster.apply(place, document)
    assert objects.cluster.apply(place, document)["metadata"] == before["metadata"]


def test_a_dry_run_says_what_would_be_and_leaves_what_is(objects: Objects) -> None:
    """API concepts, "Dry-run": all stages but storing."""
    objects.apply(objects.deployment())
    after = objects.apply(objects.deployment(image="vllm:2"), dry_run=True)
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "vllm:2"
    assert objects.there()["spec"]["template"]["spec"]["containers"][0]["image"] == "vllm:1"


def test_a_manager_owns_the_leaves_that_it_applied(objects: Objects) -> None:
    """SSA, "Field management"; FieldsV1 in apimachinery's types.go. Ports go by number and protocol, TCP if unsaid."""
    objects.apply(objects.deployment())
    labels = {"f:app.kubernetes.io/instance": {}, "f:app.kubernetes.io/managed-by": {}}
    port = {".": {}, "f:containerPort": {}, "f:name": {}}
    container = {
        ".": {},
        "f:name": {},
        "f:image": {},
        "f:ports": {'k:{"containerPort":8080,"protocol":"TCP"}': port},
        "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
    }
    assert managers(objects.there())["toolkit"] == {
        "f:metadata": {
            "f:annotations": {"f:toolkit/recipe": {}},
            "f:labels": labels,
        },
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": labels},
                "f:spec": {"f:containers": {'k:{"name":"engine"}': container}},
            },
        },
    }


def test_changing_a_field_of_another_manager_is_a_conflict(objects: Objects) -> None:
    """SSA, "Conflicts": told field by field with the manager."""
    objects.apply(objects.deployment())
    objects.update("kubectl", replicas=3)
    with pytest.raises(ApiException) as error:
        objects.apply(objects.deployment(replicas=2))
    assert refused(error) == (409, "Conflict")
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl" using apps/v1'}
    assert causes_of(error.value) == [{**cause, "field": ".spec.replicas"}]


def test_with_force_the_field_changes_hands(objects: Objects) -> None:
    """SSA, "Conflicts": "Overwrite value, become sole manager"."""
    objects.apply(objects.deployment())
    objects.update("kubectl", replicas=3)
    assert objects.cluster.apply(objects.place, objects.deployment(), force=True)["spec"]["replicas"] == 1
    assert "f:replicas" in managers(objects.there())["toolkit"]["f:spec"]
    assert "f:replicas" not in managers(objects.there()).get("kubectl", {}).get("f:spec", {})


def test_nothing_is_made_in_a_namespace_that_goes(objects: Objects) -> None:
    """Admission plugin NamespaceLifecycle: Forbidden, with a cause of its own."""
    plain, place = config_map(namespace=objects.namespace).request, path("ConfigMap", objects.namespace, "chat-1")
    stays = {**plain, "metadata": {**plain["metadata"], "finalizers": ["example.com/stays"]}}
    objects.cluster.apply(place, stays)
    objects.cluster.call("DELETE", path("Namespace", "", objects.namespace))
    with pytest.raises(ApiException) as error:
        objects.apply(objects.deployment())
    assert refused(error) == (403, "Forbidden")
    assert [cause["reason"] for cause in causes_of(error.value)] == ["NamespaceTerminating"]
    objects.cluster.apply(place, plain)  # what hangs would keep a genuine server's controllers busy


def test_agreeing_with_another_manager_is_no_conflict(objects: Objects) -> None:
    """SSA, "Conflicts": "shared ownership" of one value."""
    objects.apply(objects.deployment())
    objects.update("kubectl", replicas=3)
    assert objects.apply(objects.deployment(replicas=3))["spec"]["replicas"] == 3


def test_a_field_that_is_left_out_stays_with_its_other_manager(objects: Objects) -> None:
    """SSA, "Transferring ownership": as with a HorizontalPodAutoscaler."""
    objects.apply(objects.deployment())
    objects.update("kube-controller-manager", replicas=3)
    assert objects.apply(objects.deployment(replicas=None))["spec"]["replicas"] == 3


def test_a_field_that_its_only_manager_leaves_out_goes(objects: Objects) -> None:
    """SSA, "Field management": removed, or set to its default."""
    objects.apply(objects.deployment(replicas=3))
    assert objects.apply(objects.deployment(replicas=None))["spec"]["replicas"] == 1


def test_items_of_a_list_with_keys_have_managers_of_their_own(objects: Objects) -> None:
    """SSA, "Merge strategy": listType map."""
    objects.apply(objects.deployment())
    template = objects.there()["spec"]["template"]
    template["spec"]["containers"][0]["env"].append({"name": "B", "value": "2"})
    objects.update("kubectl", template=template)
    after = objects.apply(objects.deployment(image="vllm:2"))["spec"]["template"]["spec"]["containers"][0]
    assert [item["name"] for item in after["env"]] == ["A", "B"]


def test_a_field_that_the_schema_does_not_have_is_refused(objects: Objects) -> None:
    """structured-merge-diff: "field not declared in schema"."""
    document = objects.deployment()
    document["spec"] = {**document["spec"], "replica": 1}
    with pytest.raises(ApiException) as error:
        objects.apply(document)
    assert error.value.status in (400, 500)  # 500 in 1.20
    assert "field not declared in schema" in message_of(error.value)


def test_a_selector_cannot_be_changed(objects: Objects) -> None:
    """apps/v1: "LabelSelector is now immutable" (Deployments, "Label selector updates")."""
    objects.apply(objects.deployment())
    with pytest.raises(ApiException) as error:
        objects.apply(objects.deployment(labels={"a": "b"}))
    assert refused(error) == (422, "Invalid")
    (cause,) = causes_of(error.value)
    assert (cause["field"], cause["message"].endswith("field is immutable")) == ("spec.selector", True)


def test_an_immutable_config_map_keeps_its_data(objects: Objects) -> None:
    """ConfigMaps, "Immutable ConfigMaps"."""
    place = path("ConfigMap", objects.namespace, "chat-1")
    objects.cluster.apply(place, config_map(namespace=objects.namespace).request)
    with pytest.raises(ApiException) as error:
        objects.cluster.apply(place, config_map("other", namespace=objects.namespace).request)
    assert refused(error) == (422, "Invalid")
    assert "immutable" in message_of(error.value)


def test_labels_of_pods_must_fit_the_selector(objects: Objects) -> None:
    """Deployments, "Selector"."""
    document = objects.deployment()
    document["spec"] = {**document["spec"], "selector": {"matchLabels": {"other": "one"}}}
    with pytest.raises(ApiException) as error:
        objects.apply(document)
    assert refused(error) == (422, "Invalid")


def test_the_name_in_a_manifest_is_that_of_its_address(objects: Objects) -> None:
    """apiserver's patch handler: "the name of the object … does not match the name on the URL"."""
    with pytest.raises(ApiException) as error:
        objects.cluster.apply(path("Deployment", objects.namespace, "other"), objects.deployment())
    assert refused(error) == (400, "BadRequest")


def test_nothing_is_made_in_a_namespace_that_is_not_there(objects: Objects) -> None:
    """Admission plugin NamespaceLifecycle."""
    document = deployment(namespace="nowhere").request
    with pytest.raises(ApiException) as error:
        objects.cluster.apply(path("Deployment", "nowhere", NAME), document)
    assert refused(error) == (404, "NotFound")


def lease(name: str = "mine", **metadata: str) -> dict[str, Any]:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **metadata}}
    return {**head, "spec": {"holderIdentity": "me"}}


def test_what_exists_is_not_created_again(objects: Objects) -> None:
    """API conventions: AlreadyExists."""
    folder = path("Lease", objects.namespace)
    objects.cluster.call("POST", folder, lease())
    with pytest.raises(ApiException) as error:
        objects.cluster.call("POST", folder, lease())
    assert refused(error) == (409, "AlreadyExists")


def test_a_write_that_names_an_old_version_is_refused(objects: Objects) -> None:
    """API conventions, "Concurrency control and consistency"."""
    folder = path("Lease", objects.namespace)
    old = objects.cluster.call("POST", folder, lease())["metadata"]["resourceVersion"]
    changed = {**lease(resourceVersion=old), "spec": {"holderIdentity": "you"}}
    objects.cluster.call("PUT", f"{folder}/mine", changed)
    with pytest.raises(ApiException) as error:
        objects.cluster.call("PUT", f"{folder}/mine", {**changed, "spec": {"holderIdentity": "third"}})
    assert refused(error) == (409, "Conflict")


def test_an_apply_that_names_an_old_version_is_refused(objects: Objects) -> None:
    """SSA honours resourceVersion as other writes do, and uid too: what names one is never made anew."""
    place = path("ConfigMap", objects.namespace, "chat-1")
    document = {**config_map(namespace=objects.namespace).request, "immutable": False}

    def of(there: Mapping[str, Any]) -> dict[str, Any]:
        conditions = {name: there["metadata"][name] for name in ("uid", "resourceVersion")}
        changed = {"data": {"serve": conditions["resourceVersion"]}}
        return {**document, "metadata": {**document["metadata"], **conditions}, **changed}

    first = objects.cluster.apply(place, document)
    second = objects.cluster.apply(place, of(first))
    with pytest.raises(ApiException) as error:
        objects.cluster.apply(place, of(first))
    assert refused(error) == (409, "Conflict")
    assert not causes_of(error.value)
    third = objects.cluster.apply(place, of(second))
    assert third["data"] == {"serve": second["metadata"]["resourceVersion"]}
    objects.cluster.call("DELETE", place)
    with pytest.raises(ApiException) as error:
        objects.cluster.apply(place, of(third))
    assert refused(error) == (409, "Conflict")


def test_a_deletion_may_name_the_version_that_it_means(objects: Objects) -> None:
    """DeleteOptions.preconditions in apimachinery's types.go."""
    place = path("ConfigMap", objects.namespace, "chat-1")
    document = {**config_map(namespace=objects.namespace).request, "immutable": False}
    first = objects.cluster.apply(place, document)["metadata"]["resourceVersion"]
    objects.cluster.apply(place, {**document, "data": {"serve": "print(2)"}})
    with pytest.raises(ApiException) as error:
        objects.cluster.call("DELETE", place, {"preconditions": {"resourceVersion": first}})
    assert refused(error) == (409, "Conflict")
    assert objects.cluster.find(place)


def test_lists_come_in_pages(objects: Objects) -> None:
    """API concepts, "Retrieving large results sets in chunks"."""
    for number in range(3):
        item = config_map(name=f"many-{number}", namespace=objects.namespace)
        objects.cluster.apply(path("ConfigMap", objects.namespace, item.name), item.request)
    place, query = path("ConfigMap", objects.namespace), {"labelSelector": "app.kubernetes.io/managed-by=toolkit"}
    page = objects.cluster.call("GET", place, query={**query, "limit": "2"})
    more = page["metadata"]["continue"]
    rest = objects.cluster.call("GET", place, query={**query, "limit": "2", "continue": more})
    names = [item["metadata"]["name"] for item in (*page["items"], *rest["items"])]
    assert names == ["many-0", "many-1", "many-2"]
    assert not rest["metadata"].get("continue")


def test_a_deletion_may_name_what_it_means(objects: Objects) -> None:
    """DeleteOptions.preconditions in apimachinery's types.go."""
    objects.apply(objects.deployment())
    with pytest.raises(ApiException) as error:
        objects.cluster.call("DELETE", objects.place, {"preconditions": {"uid": "another"}})
    assert refused(error) == (409, "Conflict")


def test_in_the_foreground_an_owner_goes_after_what_it_owns(objects: Objects) -> None:
    """Garbage collection, "Foreground cascading deletion"."""
    objects.apply(objects.deployment())
    settled(objects)
    objects.cluster.call("DELETE", objects.place, {"propagationPolicy": "Foreground"})
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (there := objects.cluster.find(objects.place)) and time.monotonic() < deadline:
        assert there["metadata"]["deletionTimestamp"]
        time.sleep(0.02)
    assert objects.cluster.items(path("Pod", objects.namespace), {}) == []


def test_lists_are_chosen_by_label(objects: Objects) -> None:
    """Labels and selectors, "LIST and WATCH filtering"."""
    objects.apply(objects.deployment())
    folder = path("Deployment", objects.namespace)

    def found(instance: str) -> int:
        return len(objects.cluster.items(folder, {"labelSelector": f"app.kubernetes.io/instance={instance}"}))

    assert (found(NAME), found("other")) == (1, 0)


def test_the_controller_counts_revisions_and_says_what_it_has_seen(objects: Objects) -> None:
    """Deployments, "Deployment status"; deployment_util.go."""
    objects.apply(objects.deployment())
    first = settled(objects)
    objects.apply(objects.deployment(image="vllm:2"))
    second = settled(objects)
    revisions = [item["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for item in (first, second)]
    assert revisions == ["1", "2"]
    assert second["status"]["observedGeneration"] == second["metadata"]["generation"] == 2
    (progressing,) = [item for item in second["status"]["conditions"] if item["type"] == "Progressing"]
    # The first reason gives way to the second when the controller looks at it again.
    assert progressing["status"] == "True"
    assert progressing["reason"] in ("NewReplicaSetCreated", "ReplicaSetUpdated")


def test_a_kind_that_nobody_defined_is_no_page(objects: Objects) -> None:
    """A custom resource without its definition: the answer is no Status document."""
    with pytest.raises(ApiException) as error:
        objects.cluster.items("/apis/example.com/v1/namespaces/x/widgets", {})
    assert (error.value.status, status_of(error.value)) == (404, {})
