"""What the toolkit asks an API server for, and what it reads in the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes.client import ApiException
from manifests import NAME, config_map, deployment, namespace, placed

from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.errors import causes_of, message_of, status_of
from toolkit.platforms.kubernetes.platform import KubernetesPlatform


@pytest.fixture
def cluster(platform: KubernetesPlatform) -> Cluster:
    """With a Deployment."""
    for item in placed([namespace(), deployment()], platform.cluster.namespace):
        platform.cluster.apply(path(item.kind, platform.cluster.namespace, item.name), item.request)
    return platform.cluster


def place(cluster: Cluster) -> str:
    return path("Deployment", cluster.namespace, NAME)


def wanted(cluster: Cluster, **settings: Any) -> dict[str, Any]:
    return dict(deployment(namespace=cluster.namespace, **settings).request)


def image(document: Mapping[str, Any]) -> str:
    return str(document["spec"]["template"]["spec"]["containers"][0]["image"])


def scale(cluster: Cluster, replicas: int) -> None:
    """As `kubectl scale` does, which owns the number from then on."""
    patch, query = {"spec": {"replicas": replicas}}, {"fieldManager": "kubectl"}
    cluster.call("PATCH", place(cluster), patch, query=query, content_type="application/merge-patch+json")


def test_a_dry_run_says_what_would_be_and_leaves_what_is(cluster: Cluster) -> None:
    after = cluster.apply(place(cluster), wanted(cluster, image="vllm:2"), dry_run=True)
    assert (image(after), image(cluster.call("GET", place(cluster)))) == ("vllm:2", "vllm:1")


def test_a_field_of_another_manager_is_a_conflict_that_names_both(cluster: Cluster) -> None:
    scale(cluster, 3)
    with pytest.raises(ApiException) as error:
        cluster.apply(place(cluster), wanted(cluster, replicas=2))
    assert error.value.status == 409
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl" using apps/v1'}
    assert causes_of(error.value) == [{**cause, "field": ".spec.replicas"}]


def test_with_force_the_field_changes_hands(cluster: Cluster) -> None:
    scale(cluster, 3)
    assert cluster.apply(place(cluster), wanted(cluster), force=True)["spec"]["replicas"] == 1
    owners = {
        item["manager"]: item["fieldsV1"] for item in cluster.call("GET", place(cluster))["metadata"]["managedFields"]
    }
    assert "f:replicas" in owners["toolkit"]["f:spec"]
    assert "f:replicas" not in owners.get("kubectl", {}).get("f:spec", {})


def test_a_field_that_the_schema_does_not_have_is_refused(cluster: Cluster) -> None:
    document = wanted(cluster)
    document["spec"] = {**document["spec"], "replica": 1}
    with pytest.raises(ApiException) as error:
        cluster.apply(place(cluster), document)
    assert error.value.status in (400, 500)  # 500 in 1.20
    assert "field not declared in schema" in message_of(error.value)


@dataclass(frozen=True)
class ShortPages(Cluster):
    """Asks for two objects at a time."""

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        options["query"] = {**options["query"], "limit": "2"}
        return super().call(method, path, body, **options)


def test_a_list_is_read_to_its_last_page(cluster: Cluster) -> None:
    for number in range(5):
        item = config_map(name=f"many-{number}", namespace=cluster.namespace)
        cluster.apply(path("ConfigMap", cluster.namespace, item.name), item.request)
    short = ShortPages(cluster.client, cluster.context, cluster.namespace)
    listed = short.items(
        path("ConfigMap", cluster.namespace), {"labelSelector": "app.kubernetes.io/managed-by=toolkit"}
    )
    assert [item["metadata"]["name"] for item in listed] == [f"many-{number}" for number in range(5)]


def test_a_kind_that_nobody_defined_is_no_page(cluster: Cluster) -> None:
    """The answer is no Status document."""
    with pytest.raises(ApiException) as error:
        cluster.items("/apis/example.com/v1/namespaces/x/widgets", {})
    assert (error.value.status, status_of(error.value)) == (404, {})
