"""Every combination of what `kubernetes:` may say, through the toolkit's own session on a genuine API server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import CUSTOM, define
from kubernetes.client import ApiException
from pairs import recipe_with
from real_server import write_kubeconfig

from toolkit.apply.executor import make, remove
from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.loading import load, on_platform
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.record import Record
from toolkit.planning.resources import NO_ACCOUNT, Account, Resource
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.roles import roles
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection, ScalingSection

ROLE = "arn:aws:iam::123456789012:role/pods"
PROMETHEUS = {"prometheus": "http://prometheus.monitoring:9090"}
WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "hub": {},
    "node": {"weights_cache": "node"},
    "claim": {"weights_claim": "models"},
    "irsa": {"weights_bucket": "our-models", "service_account_role": ROLE},
    "identity": {"weights_bucket": "our-models", "service_account_role": ROLE, "pod_identity": True},
}
SCALING = (({}, 1), ({}, 4), (PROMETHEUS, 4))
MONITORS: Sequence[Mapping[str, Any]] = ({}, {"monitors": {"release": "prometheus"}})
PODS: Sequence[Mapping[str, Any]] = (
    {},
    {
        "pod": {
            "tolerations": [{"key": "dedicated", "value": "llm", "effect": "NoSchedule"}, {"key": "spot"}],
            "node_selector": {"team": "search"},
            "annotations": {"sidecar.istio.io/inject": "false"},
            "image_pull_secrets": ["registry"],
            "security_context": {"run_as_user": 1000, "run_as_group": 1000, "fs_group": 2000},
            "volumes": [{"name": "ca", "mount_path": "/etc/ssl/ours", "config_map": "ca"}],
            "min_available": 1,
            "update": "old-first",
            "drain_seconds": 120,
        }
    },
)
TRAINIUM: Sequence[Mapping[str, Any]] = (
    {},
    {"neuron_devices": "device-plugin"},
    {"artifacts_bucket": "our-artifacts", "service_account_role": ROLE},
)


@cache
def shipped(name: str) -> Recipe:
    recipe = on_platform(load(name), "kubernetes")
    return pinned(recipe, read_lock(lock_path(recipe)))


def on_gpu(weights: str = "hub", most: int = 1, **settings: Any) -> Recipe:
    """P-EAGLE on a GPU."""
    source = {"hub": "hub", "node": "hub", "claim": "claim"}.get(weights, "s3")
    return recipe_with(
        shipped("gpt-oss-20b/p-eagle"),
        container=ContainerSection(base="docker.io/vllm/vllm-openai:v0.30.0"),
        instance_types=("g7e.2xlarge",),
        scaling=ScalingSection(max_instances=most),
        weights=source,
        kubernetes=KubernetesSection.model_validate(settings),
    )


def on_trainium(**settings: Any) -> Recipe:
    """A draft model on Trainium: it compiles ahead where there is a bucket for what it compiles."""
    recipe = shipped("qwen3-32b/draft-model-trn2-eks")
    engine = recipe.engine.edit(compile="ahead" if "artifacts_bucket" in settings else "at-start")
    return recipe_with(recipe, engine=engine, kubernetes=KubernetesSection.model_validate(settings))


@pytest.fixture
def config(_real: dict[str, Any]) -> dict[str, Any]:
    """The kubeconfig of a genuine server's administrator."""
    return _real


@pytest.fixture
def namespace() -> str:
    return f"keys-{os.urandom(4).hex()}"


@pytest.fixture
def platform(
    config: dict[str, Any], namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KubernetesPlatform:
    """It, with the kinds that operators define."""
    write_kubeconfig(config, tmp_path, monkeypatch)
    platform = quickly(SESSION.open(f"/{namespace}"))
    for kind in CUSTOM:
        define(platform.cluster, kind)
    return platform


def quickly(platform: KubernetesPlatform) -> KubernetesPlatform:
    return replace(platform, sleep=lambda _: time.sleep(0.02))


def wanted_of(recipe: Recipe, namespace: str) -> list[Resource]:
    """All that it makes on the cluster; the models are in their bucket."""
    section = recipe.platform.kubernetes.edit(namespace=namespace)  # type: ignore[attr-defined]
    made = RULES.desired((recipe_with(recipe, kubernetes=section),), Account(NO_ACCOUNT, ""))
    return [item for item in made if item.kind != "Weights"]


def plan(platform: KubernetesPlatform, name: str, wanted: Sequence[Resource]) -> Plan:
    return make_plan("recipe.yaml", RULES, [name], wanted, platform.observe(wanted, [name]))


def carry_out(platform: KubernetesPlatform, made: Plan, folder: Path) -> None:
    """As `deploy` and `destroy` do it, but that no pod is waited for: nothing runs one."""
    record = Record(folder / "record.jsonl", print)
    make(made, RULES.kinds, platform, record, Silent())
    remove(made, platform, record, Silent())


def deploy(platform: KubernetesPlatform, recipe: Recipe, folder: Path) -> list[Resource]:
    """The server takes all of it, and does not change what it was given: a second plan has nothing to do."""
    wanted = wanted_of(recipe, platform.cluster.namespace)
    carry_out(platform, plan(platform, recipe.name, wanted), folder)
    assert [str(action) for action in plan(platform, recipe.name, wanted).changes] == []
    return wanted


def admitted(platform: KubernetesPlatform, wanted: Sequence[Resource]) -> None:
    """Its pods fit the namespace's Pod Security Standard. Raises ApiException."""
    (template,) = (item.request["spec"]["template"] for item in wanted if item.kind == "Deployment")
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "one", **template["metadata"]}}
    platform.cluster.call("POST", path("Pod", platform.cluster.namespace), pod, query={"dryRun": "All"})


def restrict(platform: KubernetesPlatform) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    platform.cluster.call(
        "PATCH",
        path("Namespace", "", platform.cluster.namespace),
        {"metadata": {"labels": labels}},
        content_type="application/merge-patch+json",
    )


@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_combination_on_gpus(platform: KubernetesPlatform, tmp_path: Path, weights: str) -> None:
    for (how, most), watched, pod in product(SCALING, MONITORS, PODS):
        wanted = deploy(platform, on_gpu(weights, most, **WEIGHTS[weights], **how, **watched, **pod), tmp_path)
        restrict(platform)
        if weights == "node":  # the folder of a node is against it, as a note says
            with pytest.raises(ApiException, match="hostPath"):
                admitted(platform, wanted)
        else:
            admitted(platform, wanted)


@pytest.mark.parametrize("devices", range(len(TRAINIUM)))
def test_every_combination_on_trainium(platform: KubernetesPlatform, tmp_path: Path, devices: int) -> None:
    for watched in MONITORS:
        deploy(platform, on_trainium(**TRAINIUM[devices], **watched), tmp_path)


def as_guest(config: Mapping[str, Any], platform: KubernetesPlatform, folder: Path, *allowed: str) -> None:
    """Makes KUBECONFIG that of a user who has these roles and no other."""
    wanted = roles(recipe_with(on_gpu(), kubernetes=KubernetesSection(namespace=platform.cluster.namespace)))
    root, namespace = "/apis/rbac.authorization.k8s.io/v1", platform.cluster.namespace
    for item in (item for item in wanted if f"{item.kind}/{item.name}" in allowed):
        plural = f"{item.kind.lower()}s"
        within = f"/namespaces/{namespace}" if item.kind == "Role" else ""
        platform.cluster.apply(f"{root}{within}/{plural}/{item.name}", item.request)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": item.kind, "name": item.name}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": f"{item.kind}Binding",
            "metadata": {"name": f"guest-{namespace}"},
            "roleRef": reference,
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "guest"}],
        }
        platform.cluster.call("POST", f"{root}{within}/{item.kind.lower()}bindings", binding)
    users = [{"name": "admin", "user": {"token": "guest-token"}}]
    (folder / "kubeconfig").write_text(json.dumps({**config, "users": users}))


def test_the_role_that_deploys_does_all_of_it(
    config: dict[str, Any], platform: KubernetesPlatform, tmp_path: Path, namespace: str
) -> None:
    recipe = on_gpu("irsa", 4, **WEIGHTS["irsa"], **PROMETHEUS, **MONITORS[1], **PODS[1])
    wanted = wanted_of(recipe, namespace)
    platform.cluster.apply(path("Namespace", "", namespace), wanted[0].request)
    as_guest(config, platform, tmp_path, "Role/toolkit-deploy", f"ClusterRole/toolkit-deploy-{namespace}")
    guest = quickly(SESSION.open(f"/{namespace}"))
    guest.cluster.apply(path("Namespace", "", namespace), wanted[0].request)
    with pytest.raises(ApiException, match="forbidden"):
        guest.cluster.apply(path("Namespace", "", "default"), wanted[0].request)
    with guest.lease(recipe.name):
        deploy(guest, recipe, tmp_path)
    assert guest.status(recipe.name).status
    assert [found.name for found in guest.endpoints()] == [recipe.name]
    going = plan(guest, recipe.name, ())
    carry_out(guest, going, tmp_path)
    assert guest.observe((), [recipe.name]).get("Deployment", recipe.name) is None


@pytest.mark.parametrize("role", ["toolkit-read", "toolkit-watch"])
def test_the_roles_that_look_change_nothing(
    config: dict[str, Any], platform: KubernetesPlatform, tmp_path: Path, namespace: str, role: str
) -> None:
    recipe = on_gpu()
    wanted = deploy(platform, recipe, tmp_path)
    as_guest(config, platform, tmp_path, f"Role/{role}")
    guest = quickly(SESSION.open(f"/{namespace}"))
    assert guest.status(recipe.name).status
    list(guest.logs(recipe.name))
    assert [found.name for found in guest.endpoints()] == [recipe.name]
    with pytest.raises(PlatformError, match="forbidden"):
        plan(guest, recipe.name, wanted)
    asks = f"{path('Service', namespace, recipe.name)}:http/proxy/metrics"
    with pytest.raises(ApiException) as error:
        guest.cluster.call("GET", asks)
    assert error.value.status == (403 if role == "toolkit-read" else 503)  # allowed, and no pod there
    with pytest.raises(ApiException, match="forbidden"):
        guest.cluster.call("POST", f"{path('Pod', namespace, 'any')}/proxy/")
