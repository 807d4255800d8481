"""What routes a Gateway's requests, on a genuine API server: made, listed, changed and removed with its endpoint.

`crds` beside the server may have the projects' own definitions (test_every_key_on_server.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException
from pairs import recipe_with
from test_every_key_on_server import (
    as_guest,
    carry_out,
    config,
    deploy,
    namespace,
    on_gpu,
    plan,
    platform,
    quickly,
    restrict,
    wanted_of,
)

from toolkit.planning.kinds import configs
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.roles import roles
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection

__all__ = ["config", "namespace", "platform"]

ROUTING: Mapping[str, Any] = {"routing": {"gateway": "public", "namespace": "gateways", "hostname": "chat.example.com"}}
TWO = ScalingSection(min_instances=2, max_instances=2)


@pytest.fixture
def recipe(namespace: str) -> Recipe:
    """Two pods behind a Gateway."""
    return recipe_with(on_gpu(**ROUTING), name=namespace, scaling=TWO)


def there(platform: KubernetesPlatform, name: str) -> set[str]:
    """What the endpoint has, but for its namespace, as kind and name."""
    found = platform.observe((), [name]).existing
    return {f"{item.kind}/{item.name}" for item in found if item.kind != "Namespace"}


@pytest.mark.parametrize("nodes", [1, 2])
def test_it_is_made_and_the_next_plan_has_nothing_to_do(
    platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path, nodes: int
) -> None:
    if nodes > 1:
        engine = recipe.engine.edit(args={**recipe.engine.args, "tensor-parallel-size": 2})
        recipe = recipe_with(on_gpu(nodes=nodes, **ROUTING), name=recipe.name, scaling=TWO, engine=engine)
    deploy(platform, recipe, tmp_path)
    made = {f"{kind}/{recipe.name}-epp" for kind in ("Deployment", "Service", "ServiceAccount", "Role", "RoleBinding")}
    assert there(platform, recipe.name) >= {*made, f"InferencePool/{recipe.name}", f"HTTPRoute/{recipe.name}"}


def test_its_pods_fit_a_restricted_namespace(platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path) -> None:
    wanted = deploy(platform, recipe, tmp_path)
    restrict(platform)
    templates = {item.name: item.request["spec"]["template"] for item in wanted if item.kind == "Deployment"}
    assert templates.keys() == {recipe.name, f"{recipe.name}-epp"}
    for template in templates.values():
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "one", **template["metadata"]}}
        platform.cluster.call("POST", path("Pod", platform.cluster.namespace), pod, query={"dryRun": "All"})


def test_the_picker_is_no_endpoint(platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path) -> None:
    wanted = wanted_of(recipe, platform.cluster.namespace)
    waited_for = configs(plan(platform, recipe.name, wanted), RULES.kinds)
    deploy(platform, recipe, tmp_path)
    assert waited_for.keys() == {recipe.name}
    assert [found.name for found in platform.endpoints()] == [recipe.name]


def test_the_picker_s_own_account_may_do_what_it_asks_of_the_server(
    platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path
) -> None:
    deploy(platform, recipe, tmp_path)
    place = platform.cluster.namespace
    asked = [
        ("", "pods", "watch"), ("inference.networking.k8s.io", "inferencepools", "watch"), ("", "secrets", "get"),
        ("", "pods", "delete"),
    ]  # fmt: skip
    allowed = []
    for group, kind, verb in asked:
        about = {"namespace": place, "group": group, "resource": kind, "verb": verb}
        user = f"system:serviceaccount:{place}:{recipe.name}-epp"
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": about},
        }
        answer = platform.cluster.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        allowed.append(answer["status"]["allowed"])
    assert allowed == [True, True, False, False]


def test_a_recipe_without_it_removes_all_of_it(platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path) -> None:
    plain = recipe_with(on_gpu(), name=recipe.name, scaling=TWO)
    deploy(platform, plain, tmp_path)
    before = there(platform, recipe.name)
    deploy(platform, recipe, tmp_path)
    deploy(platform, plain, tmp_path)
    assert there(platform, recipe.name) == before


def test_a_removal_takes_it_and_leaves_the_roles_of_users(
    platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path
) -> None:
    deploy(platform, recipe, tmp_path)
    place = platform.cluster.namespace
    of_users = next(item for item in roles(recipe) if item.name == "toolkit-read")
    metadata = {**of_users.request["metadata"], "namespace": place}
    platform.cluster.apply(path("Role", place, of_users.name), {**of_users.request, "metadata": metadata})
    carry_out(platform, plan(platform, recipe.name, ()), tmp_path)
    assert there(platform, recipe.name) == set()
    assert platform.cluster.find(path("Role", place, of_users.name))


def test_the_role_that_deploys_makes_it_and_gives_no_other_rights_away(
    config: dict[str, Any], platform: KubernetesPlatform, recipe: Recipe, tmp_path: Path, namespace: str
) -> None:
    wanted = wanted_of(recipe, namespace)
    platform.cluster.apply(path("Namespace", "", namespace), wanted[0].request)
    as_guest(config, platform, tmp_path, "Role/toolkit-deploy", f"ClusterRole/toolkit-deploy-{namespace}")
    guest = quickly(SESSION.open(f"/{namespace}"))
    deploy(guest, recipe, tmp_path)
    role = next(item.request for item in wanted if item.kind == "Role")
    more = [*role["rules"], {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    with pytest.raises(ApiException, match="attempting to grant RBAC permissions not currently held"):
        guest.cluster.apply(path("Role", namespace, f"{recipe.name}-epp"), {**role, "rules": more})
    carry_out(guest, plan(guest, recipe.name, ()), tmp_path)
    assert there(guest, recipe.name) == set()
