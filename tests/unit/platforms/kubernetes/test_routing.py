"""What a Gateway needs to choose among an endpoint's pods: a pool of those that answer, its picker, and a route."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
from pairs import recipe_with
from test_kubernetes_manifests import VERSIONS, comparable, gpu, one
from test_several_nodes import large

from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.manifests import parts, resources
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection

__all__ = ["gpu", "large"]

KINDS = {"InferencePool", "HTTPRoute", "Role", "RoleBinding"}


def routed(recipe: Recipe, **settings: Any) -> Recipe:
    section = KubernetesSection.model_validate({"nodes": recipe.nodes, "routing": {"gateway": "public", **settings}})
    return recipe_with(recipe, kubernetes=section, scaling=ScalingSection(min_instances=2, max_instances=2))


def made(recipe: Recipe, kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in resources(recipe) if (item.kind, item.name) == (kind, name)]
    return dict(found.request)


def picker(recipe: Recipe) -> dict[str, Any]:
    """The Deployment that the pool names by its Service."""
    name = one(recipe, "InferencePool")["spec"]["endpointPickerRef"]["name"]
    return made(recipe, "Deployment", name)


def plugins(recipe: Recipe) -> dict[str, Any]:
    args: list[str] = picker(recipe)["spec"]["template"]["spec"]["containers"][0]["args"]
    (text,) = [item.partition("=")[2] for item in args if item.startswith("--config-text=")]
    found: dict[str, Any] = json.loads(text)
    return found


def matches(selector: Mapping[str, str], template: Mapping[str, Any]) -> bool:
    return selector.items() <= template["metadata"]["labels"].items()


def test_its_manifests(gpu: Recipe, golden: Callable[[str, object], None]) -> None:
    made = [item.request for item in resources(routed(gpu)) if item.kind in KINDS or item.name.endswith("-epp")]
    golden("kubernetes/gpu-routing", comparable({"routing": made}))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_schemas_know_what_is_of_its_own_kinds(gpu: Recipe, version: str) -> None:
    for item in resources(routed(gpu)):
        if item.kind not in ("InferencePool", "HTTPRoute"):
            kubernetes_validate.validate(item.request, version, strict=True)


def test_where_all_traffic_is_forbidden_gateways_reach_the_picker_and_it_the_pods_and_the_api_server(
    gpu: Recipe,
) -> None:
    recipe = routed(gpu)
    policy = made(recipe, "NetworkPolicy", f"{recipe.name}-epp")["spec"]
    pods = made(recipe, "Deployment", recipe.name)["spec"]["template"]
    assert matches(policy["podSelector"]["matchLabels"], picker(recipe)["spec"]["template"])
    assert not matches(policy["podSelector"]["matchLabels"], pods)
    (asked,) = policy["ingress"]
    port = one(recipe, "InferencePool")["spec"]["endpointPickerRef"]["port"]["number"]
    assert port in [item["port"] for item in asked["ports"]]
    assert "from" not in asked, "Gateways are in other namespaces"
    _, server, engines = policy["egress"]
    assert [item["port"] for item in server["ports"]] == [443, 6443]
    assert matches(engines["to"][0]["podSelector"]["matchLabels"], pods)
    assert [item["port"] for item in engines["ports"]] == [8080]


def test_the_pool_has_the_port_of_the_pods_that_answer_and_not_the_picker(gpu: Recipe) -> None:
    recipe = routed(gpu)
    pool, pods = one(recipe, "InferencePool")["spec"], made(recipe, "Deployment", recipe.name)["spec"]["template"]
    assert matches(pool["selector"]["matchLabels"], pods)
    ports = [port["containerPort"] for port in pods["spec"]["containers"][0]["ports"]]
    assert [port["number"] for port in pool["targetPorts"]] == ports
    template = picker(recipe)["spec"]["template"]
    selectors = [item.request["spec"]["selector"] for item in resources(recipe) if item.kind == "Service"]
    assert [matches(selector, template) for selector in (pool["selector"]["matchLabels"], *selectors)] == [
        False,
        False,
        True,
    ]


def test_of_a_model_on_several_nodes_the_pool_has_the_leaders(large: Recipe) -> None:
    wanted = one(routed(large), "InferencePool")["spec"]["selector"]["matchLabels"]
    group = one(routed(large), "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    assert [matches(wanted, group[f"{role}Template"]) for role in ("leader", "worker")] == [True, False]


def test_the_picker_reads_the_metrics_of_these_pods(gpu: Recipe) -> None:
    """Their names are built into it: factories.go of its core-metrics-extractor (v1.5.0)."""
    metrics = gpu.engine_rules.metrics
    assert metrics
    read = (metrics.names.waiting_requests, metrics.names.running_requests, metrics.names.kv_cache_usage)
    assert read == ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc")
    annotations = made(routed(gpu), "Deployment", gpu.name)["spec"]["template"]["metadata"]["annotations"]
    (source,) = [item for item in plugins(routed(gpu))["plugins"] if item["type"] == "metrics-data-source"]
    assert source["parameters"]["path"] == annotations["prometheus.io/path"]


def test_it_chooses_by_plugins_that_it_loads(gpu: Recipe) -> None:
    config = plugins(routed(gpu))
    loaded = {item["type"] for item in config["plugins"]}
    (profile,) = config["schedulingProfiles"]
    assert {item["pluginRef"] for item in profile["plugins"]} <= loaded


def test_the_picker_may_look_and_no_more(gpu: Recipe) -> None:
    rules = one(routed(gpu), "Role")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert not any(rule["apiGroups"] == [""] and rule["resources"] != ["pods"] for rule in rules)


def test_the_picker_does_not_end_before_the_answers_that_it_has_sent_on(gpu: Recipe) -> None:
    recipe = routed(gpu)
    both = (picker(recipe), made(recipe, "Deployment", recipe.name))
    picks, answers = (item["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for item in both)
    assert picks >= answers


def test_the_route_is_the_gateway_s_of_any_namespace_and_host(gpu: Recipe) -> None:
    near, far = routed(gpu), routed(gpu, namespace="gateways", hostname="chat.example.com")
    parents = [one(recipe, "HTTPRoute")["spec"]["parentRefs"][0] for recipe in (near, far)]
    assert [(item["name"], item.get("namespace")) for item in parents] == [("public", None), ("public", "gateways")]
    hosts = [one(recipe, "HTTPRoute")["spec"].get("hostnames") for recipe in (near, far)]
    assert hosts == [None, ["chat.example.com"]]


def test_a_baseline_has_no_route_that_would_take_requests_away(gpu: Recipe) -> None:
    kinds = {item.kind for item in resources(routed(gpu).baseline())}
    assert not kinds & KINDS


def test_without_the_key_there_is_none(gpu: Recipe) -> None:
    kinds = {item.kind for item in resources(replace(gpu, scaling=ScalingSection(max_instances=4)))}
    assert not kinds & KINDS


def test_the_notes_say_what_the_cluster_needs(gpu: Recipe) -> None:
    (told,) = [note for note in RULES.notes(routed(gpu, namespace="gateways"), Account("", "")) if "Gateway" in note]
    assert "the Gateway public of namespace gateways, which lets in routes of toolkit" in told
    image = picker(routed(gpu))["spec"]["template"]["spec"]["containers"][0]["image"]
    assert told.endswith(f"named by its tag, not by a digest: {image}")


def test_all_of_it_is_in_the_part_that_serves_but_the_account(gpu: Recipe) -> None:
    by_part = {part: {item["kind"] for item in made} for part, made in parts([routed(gpu)]).items()}
    assert by_part["serve"] >= KINDS
