"""Back to an earlier version on a cluster: by `toolkit rollback`, and by `kubectl rollout undo`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from manifests import NAME, config_map, deployment, namespace, service
from standin_cluster import StandInCluster
from standin_store import Key

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
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.rollback import rollback_plan
from toolkit.registry import rules_of

RECIPE = "qwen3-32b/draft-model-trn2-eks"
DEPLOYMENT = Key("deployments", "ml", NAME)


def version(number: int) -> list[Resource]:
    """An endpoint whose programs are in a ConfigMap of that version."""
    programs = f"{NAME}-{number}"
    pods = deployment(f"vllm:{number}", recipe=f"recipe-{number}")
    volumes = [{"name": "programs", "configMap": {"name": programs}}]
    pods.request["spec"]["template"]["spec"]["volumes"] = volumes
    pods.request["spec"]["revisionHistoryLimit"] = 3
    return [namespace(), config_map(str(number), name=programs), service(), pods]


def deploy(platform: KubernetesPlatform, desired: Sequence[Resource]) -> None:
    apply(platform, make_plan("chat.yaml", RULES, [NAME], desired, platform.observe(desired, [NAME])))


def apply(platform: KubernetesPlatform, plan: Plan) -> None:
    """What `toolkit deploy` and `toolkit rollback` do, without their pauses."""
    with TemporaryDirectory() as folder:
        record = Record(Path(folder, "record.jsonl"), print)
        make(plan, rules_of(plan.platform).kinds, platform, record, Silent())
        if configs(plan, rules_of(plan.platform).kinds):
            wait_in_service(platform, configs(plan, rules_of(plan.platform).kinds), Silent(), 60, sleep=lambda _: None)
        remove(plan, platform, record, Silent())


def running(standin: StandInCluster) -> tuple[str, str]:
    """The image and the recipe's digest."""
    found = standin.store.objects[DEPLOYMENT]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return container["image"], found["metadata"]["annotations"]["toolkit/recipe"]


def programs(standin: StandInCluster) -> list[str]:
    return sorted(key.name for key in standin.store.objects if key.plural == "configmaps")


def roll_back(platform: KubernetesPlatform) -> None:
    apply(platform, rollback_plan("chat.yaml", "kubernetes", NAME, platform.observe((), [NAME])))


def test_a_rollback_brings_the_version_before_and_a_second_one_goes_forward_again(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    roll_back(platform)
    assert running(standin) == ("vllm:1", "recipe-1")
    roll_back(platform)
    assert running(standin) == ("vllm:2", "recipe-2")


def test_the_cluster_s_own_undo_finds_what_the_version_before_needs(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    standin.controllers.undo(DEPLOYMENT)
    for _ in range(6):
        standin.controllers.turn(kubelet=True)
    assert running(standin) == ("vllm:1", "recipe-1")
    assert platform.status(NAME).status == "InService"


def test_what_no_version_of_the_history_needs_is_removed(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    for number in range(1, 7):
        deploy(platform, version(number))
    kept = programs(standin)
    assert kept[-4:] == ["chat-3", "chat-4", "chat-5", "chat-6"]
    deploy(platform, version(7))
    assert "chat-2" not in programs(standin)
    deploy(platform, [])
    assert programs(standin) == []


def test_a_deployment_as_before_changes_nothing_although_older_objects_are_kept(platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    again = make_plan("chat.yaml", RULES, [NAME], version(2), platform.observe(version(2), [NAME]))
    assert again.changes == []


def test_after_a_rollback_the_newer_recipe_can_be_deployed_again(
    standin: StandInCluster, platform: KubernetesPlatform
) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    roll_back(platform)
    deploy(platform, version(2))
    assert running(standin) == ("vllm:2", "recipe-2")


def test_an_endpoint_that_was_never_updated_has_nothing_to_go_back_to(platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    with pytest.raises(UsageError, match="cannot be rolled back: it was never updated"):
        roll_back(platform)


def test_a_restart_is_no_version_to_go_back_to(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    deploy(platform, version(1))
    deploy(platform, version(2))
    restarted = standin.store.get(DEPLOYMENT)
    notes = {"kubectl.kubernetes.io/restartedAt": "2026-11-20T10:00:00Z"}
    restarted["spec"]["template"]["metadata"]["annotations"] = notes
    standin.store.write(DEPLOYMENT, restarted, "kubectl-rollout", must="update")
    standin.controllers.turn(kubelet=True)

    roll_back(platform)

    assert running(standin) == ("vllm:1", "recipe-1")


def test_an_unknown_history_keeps_everything(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    standin.forbidden.add(("list", "replicasets"))
    deploy(platform, version(1))
    deploy(platform, version(2))
    assert programs(standin) == ["chat-1", "chat-2"]
    with pytest.raises(UsageError, match="you may not list the ReplicaSets of chat"):
        roll_back(platform)


def test_a_scaled_endpoint_keeps_its_number_of_pods(standin: StandInCluster, platform: KubernetesPlatform) -> None:
    for number in (1, 2):
        made = version(number)
        made[-1].request["spec"]["replicas"] = 2
        deploy(platform, made)
    roll_back(platform)
    assert standin.store.objects[DEPLOYMENT]["spec"]["replicas"] == 2


def test_a_recipe_s_rollback_claims_the_chips_of_before(
    standin: StandInCluster, platform: KubernetesPlatform, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, claims = load(RECIPE), []
    for size in (32, 64):
        sized = replace(recipe, engine=recipe.engine.edit(args={"tensor-parallel-size": size}))
        desired = RULES.desired([sized], platform.account())
        here = replace(platform, cluster=replace(platform.cluster, namespace="toolkit"))
        apply(here, make_plan(RECIPE, RULES, [recipe.name], desired, here.observe(desired, [recipe.name])))
        claims.append(claimed(standin))

    assert run(["rollback", RECIPE, "--yes", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["name"] == recipe.name
    assert claims[0] != claims[1]
    assert claimed(standin) == claims[0]


def claimed(standin: StandInCluster) -> str:
    """The claim template of the pods that the Deployment wants, which exists."""
    objects: dict[Key, Any] = standin.store.objects
    (found,) = [item for key, item in objects.items() if key.plural == "deployments"]
    (claim,) = found["spec"]["template"]["spec"]["resourceClaims"]
    name = str(claim["resourceClaimTemplateName"])
    assert Key("resourceclaimtemplates", "toolkit", name) in objects
    return name
