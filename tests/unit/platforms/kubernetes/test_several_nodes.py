"""Models that are too large for a node: their manifests, what is checked of them, and what they need of each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pairs import recipe_with
from test_kubernetes_checks import findings
from test_kubernetes_manifests import comparable, one

from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules import RULES, wait_seconds
from toolkit.platforms.kubernetes.rules.chart import chart
from toolkit.platforms.kubernetes.rules.manifests import parts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection
from toolkit.registry import price_text

TWO_NODES = """\
name: deepseek-v3
description: DeepSeek-V3 with its MTP layer on two nodes of eight GPUs
target: {model: deepseek-ai/DeepSeek-V3}
speculation: {method: mtp, num_speculative_tokens: 1}
engine:
  version: 0.32.0
  max_model_len: 16384
  max_num_seqs: 64
  args: {tensor-parallel-size: 8, pipeline-parallel-size: 2}
platform: {name: kubernetes, instance_types: [p5.48xlarge], kubernetes: {nodes: 2}}
"""
GROUPED = "instance_types: [g6.12xlarge], kubernetes: {nodes: 2}"


@pytest.fixture
def large(tmp_path: Path) -> Recipe:
    (tmp_path / "recipe.yaml").write_text(TWO_NODES)
    return load(tmp_path / "recipe.yaml")


def group(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = one(recipe, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    return found


def env(template: Mapping[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in template["spec"]["containers"][0]["env"]}


def args(text: str) -> tuple[str, str]:
    return ("  max_model_len", f"  args: {{{text}}}\n  max_model_len")


def test_its_manifests(large: Recipe, golden: Callable[[str, object], None]) -> None:
    golden("kubernetes/two-nodes", comparable(parts([large])))


def test_pods_differ_in_who_answers(large: Recipe) -> None:
    leader, worker = env(group(large)["leaderTemplate"]), env(group(large)["workerTemplate"])
    assert worker.items() - leader.items() == {("SM_VLLM_HEADLESS", "true")}
    assert leader.keys() - worker.keys() == {"TOOLKIT_DRAIN_SECONDS"}
    assert leader["SM_VLLM_MASTER_ADDR"] == "$(LWS_LEADER_ADDRESS)"


def test_the_service_asks_leaders_alone(large: Recipe) -> None:
    wanted = one(large, "Service")["spec"]["selector"].items()
    labels = {name: group(large)[f"{name}Template"]["metadata"]["labels"].items() for name in ("leader", "worker")}
    assert (wanted <= labels["leader"], wanted <= labels["worker"]) == (True, False)


def test_only_pods_of_the_model_reach_the_ports_of_its_ranks(large: Recipe) -> None:
    spec = one(large, "NetworkPolicy")["spec"]
    ours = [{"podSelector": {"matchLabels": {"app.kubernetes.io/instance": "deepseek-v3"}}}]
    assert [rule for rule in spec["ingress"] if "ports" not in rule] == [{"from": ours}]
    assert [rule for rule in spec["egress"] if "ports" not in rule] == [{"to": ours}]


def test_the_autoscaler_counts_groups(large: Recipe) -> None:
    scaled = recipe_with(large, scaling=ScalingSection(min_instances=1, max_instances=3))
    target = one(scaled, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["apiVersion"]) == ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")
    assert "replicas" not in one(scaled, "LeaderWorkerSet")["spec"]


def test_a_drain_of_nodes_spares_all_pods_of_the_groups_that_must_stay(large: Recipe) -> None:
    section = KubernetesSection.model_validate({"nodes": 2, "pod": {"min_available": 2}})
    spec = one(recipe_with(large, kubernetes=section, scaling=ScalingSection(min_instances=3, max_instances=3)),
               "PodDisruptionBudget")["spec"]  # fmt: skip
    assert spec["maxUnavailable"] == 1
    assert spec["selector"]["matchExpressions"][0]["values"] == ["server", "worker"]


def test_there_is_no_chart_of_it(large: Recipe) -> None:
    with pytest.raises(UsageError, match="runs on 2 nodes at once"):
        dict(chart(large, parts([large])))


def test_waiting_lasts_as_long_as_an_update_s_own_group_and_then_the_endpoint_s_may_take(large: Recipe) -> None:
    request = one(recipe_with(large, health_check_timeout=36000), "LeaderWorkerSet")
    action = Action("LeaderWorkerSet", large.name, "update", "its image changes", request)
    assert wait_seconds(Plan("r.yaml", "kubernetes", (large.name,), (action,), None, "")) > 2 * 36000


def test_its_price_is_that_of_all_nodes(large: Recipe) -> None:
    assert "a p5.48xlarge is 55.04, and 2 of them, for one copy of the model, 110.08" in price_text(large)


@pytest.mark.parametrize(("update", "oldest"), [("new-first", "0.9"), ("old-first", "0.6")])
def test_the_notes_say_which_leaderworkerset_updates_it(large: Recipe, update: str, oldest: str) -> None:
    section = KubernetesSection.model_validate({"nodes": 2, "pod": {"update": update}})
    told = "\n".join(RULES.notes(recipe_with(large, kubernetes=section), Account("", "")))
    assert f"the cluster needs LeaderWorkerSet, version {oldest} or newer" in told


def test_the_notes_say_what_an_update_needs(large: Recipe) -> None:
    told = "\n".join(RULES.notes(large, Account("", "")))
    assert "An update starts a new group beside the old one: it needs 2 more nodes" in told


@pytest.mark.parametrize(
    ("platform", "flags", "code", "path", "words"),
    [
        ("instance_types: [g6.12xlarge]", "tensor-parallel-size: 8", "kubernetes.nodes", "platform.instance_types.0",
         "the engine takes 8 GPUs, but a g6.12xlarge has 4"),
        (GROUPED, "tensor-parallel-size: 4, pipeline-parallel-size: 4", "kubernetes.nodes",
         "platform.instance_types.0", "the engine takes 16 GPUs, but each of 2 g6.12xlarge has 4"),
        (GROUPED, "tensor-parallel-size: 1", "kubernetes.nodes", "platform.kubernetes.nodes",
         "the engine's GPUs, 1, cannot be divided evenly among 2 nodes"),
        ("instance_types: [g6.12xlarge, g6e.12xlarge], kubernetes: {nodes: 2}",
         "tensor-parallel-size: 1, pipeline-parallel-size: 2", "kubernetes.nodes", "platform.instance_types.1",
         "nodes that run a model together have to be alike"),
        (GROUPED, "data-parallel-size: 2", "kubernetes.nodes", "engine.args.data-parallel-size",
         "copies of a model that several nodes run are groups of pods"),
        (GROUPED, "pipeline-parallel-size: 2, distributed-executor-backend: ray", "kubernetes.nodes",
         "engine.args.distributed-executor-backend", "without Ray"),
        (GROUPED, "tensor-parallel-size: 2", "kubernetes.link", "engine.args.tensor-parallel-size",
         "tensor parallelism over 2 GPUs, 1 on a node"),
        (GROUPED, "tensor-parallel-size: '2'", "kubernetes.link", "engine.args.tensor-parallel-size",
         "tensor parallelism over 2 GPUs, 1 on a node"),
        (GROUPED, "pipeline-parallel-size: 2, data-parallel-backend: ray", "kubernetes.nodes",
         "engine.args.data-parallel-backend", "without Ray"),
        (GROUPED, "pipeline-parallel-size: 2, api-server-count: 1", "kubernetes.nodes",
         "engine.args.api-server-count", "does not start on the others"),
        (GROUPED, "tensor-parallel-size: 4, prefill-context-parallel-size: 4", "kubernetes.nodes",
         "platform.instance_types.0", "the engine takes 16 GPUs, but each of 2 g6.12xlarge has 4"),
    ],
)  # fmt: skip
def test_a_division_among_nodes_that_does_not_work(
    tmp_path: Path, platform: str, flags: str, code: str, path: str, words: str
) -> None:
    found = [item for item in findings(tmp_path, platform, "", args(flags)) if item.code.startswith("kubernetes.")]
    assert [(item.code, item.path) for item in found] == [(code, path)]
    assert words in found[0].message


def test_one_copy_written_as_text_is_no_other_than_one(tmp_path: Path) -> None:
    written = args("pipeline-parallel-size: 2, data-parallel-size: '1'")
    assert "kubernetes.nodes" not in [item.code for item in findings(tmp_path, GROUPED, "", written)]


def test_stages_on_several_nodes_are_no_fault_of_the_cluster(tmp_path: Path) -> None:
    found = findings(tmp_path, GROUPED, "", args("pipeline-parallel-size: 2"))
    assert [item.code for item in found] == ["engine.pipeline"]


def test_an_engine_for_one_node_is_refused(tmp_path: Path) -> None:
    platform = "instance_types: [trn2.48xlarge], kubernetes: {nodes: 2}"
    found = findings(tmp_path, platform, "", ("  version: 0.32.0", "  name: neuron"))
    assert ("kubernetes.nodes", "platform.kubernetes.nodes") in [(item.code, item.path) for item in found]
