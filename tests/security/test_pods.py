"""Pods get as little as they need of their node, of the cluster and of the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pairs import recipe_with

from toolkit.loading import load, on_platform
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules.devices import on_trainium
from toolkit.platforms.kubernetes.rules.manifests import parts
from toolkit.recipe.known import catalogue
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

Spec = Mapping[str, Any]

# https://kubernetes.io/docs/concepts/security/pod-security-standards: what a volume may be under `restricted`.
_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_HOST = ("hostNetwork", "hostPID", "hostIPC", "hostUsers")


def violations(spec: Spec) -> Iterator[str]:
    """What of a pod the standard `restricted` refuses."""
    pod = spec.get("securityContext", {})
    yield from (name for name in _HOST if spec.get(name))
    yield from (item["name"] for item in spec["volumes"] if not _VOLUMES & item.keys())
    if pod.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        own = container["securityContext"]
        if {**pod, **own}.get("runAsNonRoot") is not True or {**pod, **own}.get("runAsUser") == 0:
            yield "runAsNonRoot"
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            yield "capabilities"
        if own.keys() & {"privileged", "procMount", "seLinuxOptions", "appArmorProfile", "windowsOptions", "sysctls"}:
            yield "privileged"
        if any("hostPort" in port for port in container.get("ports", ())):
            yield "hostPort"


def on_cluster(name: str) -> Recipe:
    """A shipped recipe on a cluster, that compiles into a bucket where it compiles at all."""
    recipe = on_platform(load(name), "kubernetes")
    recipe = replace(recipe, container=None)
    if recipe.image is None:
        recipe = replace(recipe, container=ContainerSection(base="docker.io/vllm/vllm-openai:v0.29.0"))
    return recipe_with(recipe, kubernetes=KubernetesSection(artifacts_bucket="our-artifacts"))


RECIPES = [name for name in catalogue() if not name.startswith("tiny/") and load(name).target.kind == "hub"]


def pods(recipe: Recipe) -> list[Spec]:
    made = [item for part in parts([recipe, recipe.baseline()]).values() for item in part]
    return [item["spec"]["template"]["spec"] for item in made if item["kind"] in ("Deployment", "Job")]


@pytest.mark.parametrize("name", RECIPES)
def test_pods_pass_the_restricted_standard_but_for_root_on_trainium(name: str) -> None:
    recipe = on_cluster(name)
    for spec in pods(recipe):
        is_engine = spec["containers"][0]["name"] == "engine"
        expected = ["runAsNonRoot"] if is_engine and on_trainium(recipe) else []
        assert list(violations(spec)) == expected


@pytest.mark.parametrize("name", RECIPES)
def test_pods_change_no_file_of_their_image_and_know_no_account_of_the_cluster(name: str) -> None:
    for spec in pods(on_cluster(name)):
        (container,) = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["automountServiceAccountToken"] is False
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", ["gpt-oss-20b/p-eagle", "qwen3-32b/draft-model-trn2-eks"])
def test_every_pod_has_a_network_policy_for_both_directions(name: str) -> None:
    made = [item for part in parts([on_cluster(name)]).values() for item in part]
    policies = [item["spec"] for item in made if item["kind"] == "NetworkPolicy"]
    for item in made:
        if item["kind"] in ("Deployment", "Job"):
            labels = item["spec"]["template"]["metadata"]["labels"]
            (policy,) = [found for found in policies if selects(found["podSelector"], labels)]
            assert policy["policyTypes"] == ["Ingress", "Egress"]
            assert all("ports" in rule for rule in (*policy["ingress"], *policy["egress"]))


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    named = selector.get("matchLabels", {}).items() <= labels.items()
    return named and all(labels[item["key"]] in item["values"] for item in selector.get("matchExpressions", ()))


def test_the_engine_answers_on_one_port_and_cannot_ask_for_the_nodes_credentials() -> None:
    made = parts([on_cluster("gpt-oss-20b/p-eagle")])["base"]
    (policy,) = [item["spec"] for item in made if item["kind"] == "NetworkPolicy"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    to_port_80 = [rule for rule in policy["egress"] if {"protocol": "TCP", "port": 80} in rule["ports"]]
    blocks = [[peer["ipBlock"]["cidr"] for peer in rule["to"]] for rule in to_port_80]
    assert blocks == [["169.254.170.23/32", "fd00:ec2::23/128"]], "the agent of EKS Pod Identity, and nobody else"


def test_the_engine_reaches_what_its_settings_name() -> None:
    """A proxy, a mirror of the hub, collectors; but not port 80 of anybody, where the nodes' credentials are."""
    recipe = on_cluster("gpt-oss-20b/p-eagle")
    env = {
        "HTTPS_PROXY": "http://user:word@proxy.example.com:3128",
        "HF_ENDPOINT": "https://mirror.example.com:8443/hub",
        "OTHER": "http://169.254.169.254:80 and http://[::1]:no",
    }
    args = {"otlp-traces-endpoint": "grpc://otel.monitoring:4317", "extra": {"url": "lm://cache:65432", "b": 1}}
    engine = recipe.engine.edit(env=env, args={**recipe.engine.args, **args})
    made = parts([replace(recipe, engine=engine)])["base"]
    (policy,) = [item["spec"] for item in made if item["kind"] == "NetworkPolicy"]
    to_anybody = [{port["port"] for port in rule["ports"]} for rule in policy["egress"] if "to" not in rule]
    assert to_anybody == [{53}, {443, 3128, 4317, 8443, 65432}]
