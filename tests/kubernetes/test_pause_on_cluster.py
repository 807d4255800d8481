"""`toolkit pause` on a cluster: no pods until the next deployment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from manifests import deployment, endpoint, manifest
from rendering import recipe_file

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointNotFound
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES


@pytest.fixture
def name() -> str:
    """One that no other namespace of the session's server has."""
    return f"chat-{os.urandom(4).hex()}"


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource], name: str) -> None:
    for action in make_plan("recipe.yaml", RULES, [name], desired, platform.observe(desired, [name])).changes:
        platform.execute(action, Silent())


def replicas(platform: KubernetesPlatform, name: str) -> int:
    count: int = platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, name))["spec"]["replicas"]
    return count


def statuses(name: str) -> list[str]:
    return [item.status for item in toolkit.status(name, platform="kubernetes")]


def test_a_fixed_number_of_pods_goes_and_comes_back(platform: KubernetesPlatform, name: str) -> None:
    wanted = endpoint(name=name, namespace_=platform.cluster.namespace)
    deploy(platform, wanted, name)
    toolkit.pause(name, platform="kubernetes", progress=Silent())
    assert (replicas(platform, name), statuses(name)) == (0, ["Paused"])
    assert toolkit.pause(name, platform="kubernetes", progress=Silent()).actions == ()

    changed = {
        action.kind: action.verb
        for action in make_plan("", RULES, [name], wanted, platform.observe(wanted, [name])).changes
    }
    assert changed == {"Deployment": "update"}
    deploy(platform, wanted, name)
    assert replicas(platform, name) == 1
    assert statuses(name) != ["Paused"]


def test_a_recipe_s_namespace_alone_is_listed_and_paused(
    platform: KubernetesPlatform, name: str, tmp_path: Path
) -> None:
    """Not an endpoint of the same name elsewhere, by one who may look into all namespaces."""
    deploy(platform, endpoint(name=name, namespace_=platform.cluster.namespace), name)
    recipe = str(recipe_file(tmp_path, name, f"not-{platform.cluster.namespace}"))
    assert list(toolkit.status(recipe)) == []
    with pytest.raises(EndpointNotFound, match=f"there is no endpoint {name}") as error:
        toolkit.pause(recipe, progress=Silent())
    place = f"{platform.cluster.context}/{platform.cluster.namespace}"
    assert error.value.hint == f"There is one of that name in {place}."
    assert statuses(name) not in ([], ["Paused"])


def test_an_autoscaler_does_not_start_pods_meanwhile(platform: KubernetesPlatform, name: str) -> None:
    space = platform.cluster.namespace
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3}
    scaler = manifest("HorizontalPodAutoscaler", name, space, instance=name, spec=spec)
    scaled = [
        *endpoint(name=name, namespace_=space)[:-1],
        deployment(name=name, namespace=space, replicas=None),
        scaler,
    ]
    deploy(platform, scaled, name)
    toolkit.pause(name, platform="kubernetes", progress=Silent())
    assert platform.cluster.find(path("HorizontalPodAutoscaler", space, name)) is None
    assert replicas(platform, name) == 0

    deploy(platform, scaled, name)
    assert platform.cluster.find(path("HorizontalPodAutoscaler", space, name))
    assert replicas(platform, name) == 1
