"""Back to an earlier version on a cluster: by `toolkit rollback`, and by `kubectl rollout undo`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from limited import limited
from manifests import NAME, config_map, deployment, namespace, placed, service
from rendering import Kubectl, shipped_at
from scripted_node import ScriptedNode
from waiting import until

from toolkit.apply.executor import make, remove
from toolkit.apply.progress import Silent
from toolkit.apply.waiter import wait_in_service
from toolkit.cli.main import run
from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.planning.kinds import configs
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.record import Record
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import path, selector
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.metadata import OURS
from toolkit.platforms.kubernetes.rules.rollback import rollback_plan
from toolkit.registry import rules_of


def version(number: int) -> list[Resource]:
    """An endpoint whose programs are in a ConfigMap of that version."""
    programs = f"{NAME}-{number}"
    pods = deployment(f"vllm:{number}", recipe=f"recipe-{number}")
    volumes = [{"name": "programs", "configMap": {"name": programs}}]
    pods.request["spec"]["template"]["spec"]["volumes"] = volumes
    pods.request["spec"]["revisionHistoryLimit"] = 3
    return [namespace(), config_map(str(number), name=programs), service(), pods]


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource]) -> None:
    wanted = placed(desired, platform.cluster.namespace)
    apply(platform, make_plan("chat.yaml", RULES, [NAME], wanted, platform.observe(wanted, [NAME])))


def apply(platform: KubernetesPlatform, plan: Plan) -> None:
    """What `toolkit deploy` and `toolkit rollback` do, without their pauses."""
    with TemporaryDirectory() as folder:
        record = Record(Path(folder, "record.jsonl"), print)
        make(plan, rules_of(plan.platform).kinds, platform, record, Silent())
        if configs(plan, rules_of(plan.platform).kinds):
            wait_in_service(platform, configs(plan, rules_of(plan.platform).kinds), Silent(), 60, sleep=platform.sleep)
        remove(plan, platform, record, Silent())


def there(platform: KubernetesPlatform, name: str = NAME) -> dict[str, Any]:
    return platform.cluster.call("GET", path("Deployment", platform.cluster.namespace, name))


def running(platform: KubernetesPlatform) -> tuple[str, str]:
    """The image and the recipe's digest."""
    found = there(platform)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return container["image"], found["metadata"]["annotations"]["toolkit/recipe"]


def programs(platform: KubernetesPlatform) -> list[str]:
    found = platform.cluster.items(path("ConfigMap", platform.cluster.namespace), {"labelSelector": selector(OURS)})
    return sorted(item["metadata"]["name"] for item in found)


def versions(platform: KubernetesPlatform) -> int:
    """How many the controller keeps."""
    return len(platform.cluster.items(path("ReplicaSet", platform.cluster.namespace), {}))


def roll_back(platform: KubernetesPlatform) -> None:
    apply(platform, rollback_plan("chat.yaml", "kubernetes", NAME, platform.observe((), [NAME])))


def test_a_rollback_brings_the_version_before_and_a_second_one_goes_forward_again(platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    roll_back(platform)
    assert running(platform) == ("vllm:1", "recipe-1")
    roll_back(platform)
    assert running(platform) == ("vllm:2", "recipe-2")


def test_the_cluster_s_own_undo_finds_what_the_version_before_needs(
    platform: KubernetesPlatform, kubectl: Kubectl
) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    kubectl("rollout", "undo", f"deployment/{NAME}", "-n", platform.cluster.namespace)
    wait_in_service(platform, {NAME: "recipe-1"}, Silent(), 60, sleep=platform.sleep)
    assert running(platform) == ("vllm:1", "recipe-1")


def test_what_no_version_of_the_history_needs_is_removed(platform: KubernetesPlatform) -> None:
    for number in range(1, 7):
        deploy(platform, version(number))
    kept = programs(platform)
    assert kept[-4:] == ["chat-3", "chat-4", "chat-5", "chat-6"]
    until(lambda: versions(platform) == 4)
    deploy(platform, version(7))
    assert "chat-2" not in programs(platform)
    deploy(platform, [])
    assert programs(platform) == []


def test_a_deployment_as_before_changes_nothing_although_older_objects_are_kept(platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    wanted = placed(version(2), platform.cluster.namespace)
    again = make_plan("chat.yaml", RULES, [NAME], wanted, platform.observe(wanted, [NAME]))
    assert again.changes == []


def test_after_a_rollback_the_newer_recipe_can_be_deployed_again(platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    roll_back(platform)
    deploy(platform, version(2))
    assert running(platform) == ("vllm:2", "recipe-2")


def test_an_endpoint_that_was_never_updated_has_nothing_to_go_back_to(platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    with pytest.raises(UsageError, match="cannot be rolled back: it was never updated"):
        roll_back(platform)


def test_a_restart_is_no_version_to_go_back_to(platform: KubernetesPlatform, kubectl: Kubectl) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    kubectl("rollout", "restart", f"deployment/{NAME}", "-n", platform.cluster.namespace)
    until(lambda: versions(platform) == 3)

    roll_back(platform)

    assert running(platform) == ("vllm:1", "recipe-1")


def test_an_unknown_history_keeps_everything(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    with limited(platform, kubeconfig, ("list", "replicasets")) as theirs:
        deploy(theirs, version(1))
        deploy(theirs, version(2))
        assert programs(theirs) == ["chat-1", "chat-2"]
        with pytest.raises(UsageError, match="you may not list the ReplicaSets of chat"):
            roll_back(theirs)


def test_a_scaled_endpoint_keeps_its_number_of_pods(platform: KubernetesPlatform) -> None:
    for number in (1, 2):
        made = version(number)
        made[-1].request["spec"]["replicas"] = 2
        deploy(platform, made)
    roll_back(platform)
    assert there(platform)["spec"]["replicas"] == 2


def test_a_recipe_s_rollback_claims_the_chips_of_before(
    kubelet: ScriptedNode, platform: KubernetesPlatform, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, claims = str(shipped_at(tmp_path, platform.cluster.namespace)), []
    recipe = load(file)
    for size in (32, 64):
        sized = replace(recipe, engine=recipe.engine.edit(args={"tensor-parallel-size": size}))
        desired = RULES.desired([sized], platform.account())
        apply(platform, make_plan(file, RULES, [recipe.name], desired, platform.observe(desired, [recipe.name])))
        claims.append(claimed(platform, recipe.name))

    with kubelet.at_work():
        assert run(["rollback", file, "--yes", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["name"] == recipe.name
    assert claims[0] != claims[1]
    assert claimed(platform, recipe.name) == claims[0]


def claimed(platform: KubernetesPlatform, name: str) -> str:
    """The claim template of the pods that the Deployment wants, which exists."""
    (claim,) = there(platform, name)["spec"]["template"]["spec"]["resourceClaims"]
    template = str(claim["resourceClaimTemplateName"])
    assert platform.cluster.find(path("ResourceClaimTemplate", platform.cluster.namespace, template))
    return template
