"""The whole road on a cluster, as a user walks it: plan, deploy, status, invoke, destroy; and every crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import CUSTOM
from fakes import answer_events, event_stream
from kubernetes.client import ApiException
from limited import limited
from manifests import NAME, deployment, endpoint, placed
from rendering import shipped_at
from scripted_http import Reply, scripted
from scripted_node import ScriptedNode
from studied import studied

import toolkit
from toolkit.api.deployment import DeploymentPlan, read_plan
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.api.studying import are_there
from toolkit.apply.executor import make, remove
from toolkit.apply.progress import Silent
from toolkit.apply.waiter import wait_in_service
from toolkit.cli.main import run
from toolkit.errors import EndpointNotFound, StalePlanError, UsageError
from toolkit.loading import load
from toolkit.measure.report import BenchReport
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.record import Record
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES, wait_seconds
from toolkit.platforms.kubernetes.rules.kinds import KINDS
from toolkit.registry import rules_of

Captured = pytest.CaptureFixture[str]
ANSWER = event_stream(answer_events([5, 6, 7], histogram=[1, 1]))


@pytest.fixture
def name() -> str:
    """One that no other namespace of the session's server has."""
    return f"chat-{os.urandom(4).hex()}"


def plan(platform: KubernetesPlatform, name: str, desired: list[Resource]) -> Plan:
    wanted = placed(desired, platform.cluster.namespace)
    return make_plan("chat.yaml", RULES, [name], wanted, platform.observe(wanted, [name]), account=platform.account())


def planned(platform: KubernetesPlatform, name: str, desired: list[Resource]) -> DeploymentPlan:
    return DeploymentPlan(**vars(plan(platform, name, desired)))


def command(capsys: Captured, *arguments: str) -> tuple[int, str]:
    code = run(list(arguments))
    return code, capsys.readouterr().out


def test_the_road(answering: ScriptedNode, platform: KubernetesPlatform, name: str, capsys: Captured) -> None:
    with answering.at_work():
        assert planned(platform, name, endpoint(name=name)).apply().status().status == "InService"

    place = platform.account().location
    _, out = command(capsys, "status", "--platform", "kubernetes", "--json")
    (found,) = [item for item in json.loads(out)["endpoints"] if item["region"] == place]
    assert (found["name"], found["status"]) == (name, "InService")

    with scripted(Reply(parts=[ANSWER])) as container:
        answering.backend = container.url
        assert toolkit.connect(name, platform="kubernetes", region=place).chat("hello").text == "<5><6><7>"
    logs = toolkit.connect(name, platform="kubernetes", region=place).logs()
    assert any("startup complete" in line for line in logs)


def test_a_recipe_walks_it_too(
    kubelet: ScriptedNode, platform: KubernetesPlatform, tmp_path: Path, capsys: Captured
) -> None:
    recipe = str(shipped_at(tmp_path, platform.cluster.namespace))
    with kubelet.at_work():
        for _ in ("made", "left as it is"):
            code, out = command(capsys, "deploy", recipe, "--no-prove", "--json")
            assert (code, json.loads(out)["status"]) == (0, "InService")
        assert command(capsys, "logs", recipe)[1].endswith("INFO Application startup complete.\n")
        code, out = command(capsys, "destroy", recipe, "--yes")
    assert (code, f"namespace {platform.cluster.namespace}" in out) == (0, True)
    assert there(platform) == set()


@pytest.mark.parametrize("namespace", ["toolkit"])
def test_the_study_of_trainium_walks_it_with_both_arms(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    served: list[tuple[str, str]] = []

    def measured(arm: Endpoint, *, journal: Path, **_: Any) -> BenchReport:
        assert arm.twin
        served.extend((one.name, one.status().status) for one in (arm, arm.twin))
        return studied()

    with kubelet.at_work():
        done = toolkit.study("qwen3-32b", hardware="trn2", progress=Silent(), _steps=Steps(measure=measured))

    name = "qwen3-32b-draft-model-trn2-eks"
    assert served == [(name, "InService"), (f"{name}-baseline", "InService")]
    assert [setting for setting, *_, differs in done.setting_rows() if differs] == ["asked by"]
    assert there(platform) == set()


def test_arms_of_that_name_in_another_namespace_are_not_the_studys(
    kubelet: ScriptedNode, namespace: str, tmp_path: Path
) -> None:
    other = shipped_at(tmp_path, namespace)
    toolkit.deploy(other, wait=False, progress=Silent())
    assert (are_there(load(other)), are_there(load("qwen3-32b/draft-model-trn2-eks"))) == (True, False)


def test_a_saved_plan_is_applied_once(kubelet: ScriptedNode, namespace: str, tmp_path: Path, capsys: Captured) -> None:
    saved = str(tmp_path / "plan.json")
    assert command(capsys, "plan", str(shipped_at(tmp_path, namespace)), "--out", saved)[0] == 0
    with kubelet.at_work():
        code, out = command(capsys, "deploy", "--plan", saved, "--no-prove", "--json", "--yes")
    assert (code, json.loads(out)["status"]) == (0, "InService")
    with pytest.raises(StalePlanError, match="what runs now is not what"):
        read_plan(Path(saved))


def test_a_plan_is_refused_when_the_cluster_has_changed(platform: KubernetesPlatform, name: str) -> None:
    made = planned(platform, name, endpoint(name=name))
    (namespace, *_) = placed(endpoint(), platform.cluster.namespace)
    platform.cluster.call("POST", "/api/v1/namespaces", namespace.request)
    with pytest.raises(StalePlanError):
        made.apply()


def test_a_plan_without_a_cluster_is_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(StalePlanError, match="made without a kubeconfig"):
        toolkit.plan("qwen3-32b/draft-model-trn2-eks").apply()


@pytest.mark.usefixtures("kubeconfig")
def test_a_rollback_of_what_is_nowhere_is_told(name: str) -> None:
    with pytest.raises(EndpointNotFound, match=f"there is no endpoint {name}"):
        toolkit.rollback(name, platform="kubernetes")


@pytest.mark.parametrize("where", [["--platform", "kubernetes"], []], ids=["named", "looked for"])
def test_a_bare_name_is_found_in_its_namespace(
    kubelet: ScriptedNode,
    platform: KubernetesPlatform,
    name: str,
    tmp_path: Path,
    capsys: Captured,
    where: list[str],
) -> None:
    apply(platform, endpoint(name=name), tmp_path, name)
    with kubelet.at_work():
        code, out = command(capsys, "destroy", name, "--yes", *where)
    said = f"removed 3 resources\nnot removed: namespace {platform.cluster.namespace}"
    assert (code, out.startswith(said)) == (0, True)
    assert there(platform) == set()


def test_a_bare_name_in_several_namespaces_is_refused(
    platform: KubernetesPlatform, namespace: str, name: str, tmp_path: Path
) -> None:
    paused = [*endpoint(name=name)[:-1], deployment(name=name, replicas=0)]
    other = replace(platform, cluster=replace(platform.cluster, namespace=f"{namespace}-2"))
    for one in (platform, other):
        apply(one, paused, tmp_path, name)
    both = f"real/{namespace}, real/{namespace}-2"
    with pytest.raises(UsageError, match=f"{name} exists in several namespaces: {both}"):
        toolkit.connect(name)


def test_a_cluster_that_nobody_named_need_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("hello there")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert command(capsys, "destroy", NAME, "--yes") == (3, "")
    assert toolkit.endpoints(platform="local") == []


def test_what_may_not_be_looked_at_is_told_where_nothing_is(
    platform: KubernetesPlatform, kubeconfig: Path, name: str, capsys: Captured
) -> None:
    """But for what this cluster does not have: there can be none of KEDA's."""
    with limited(platform, kubeconfig, ("list", "poddisruptionbudgets"), ("list", "scaledobjects")):
        code, out = command(capsys, "destroy", name, "--yes", "--platform", "kubernetes")
    assert code == 0
    assert "not removed: a possible PodDisruptionBudget of this endpoint, which could not be read" in out
    assert "ScaledObject" not in out


def test_a_rollout_gets_the_time_that_its_deployment_gives(platform: KubernetesPlatform) -> None:
    slow = deployment(replicas=2)
    slow.request["spec"]["progressDeadlineSeconds"] = 18900
    assert wait_seconds(planned(platform, NAME, [*endpoint()[:-1], slow])) == 2 * 18900 + 600
    assert wait_seconds(planned(platform, NAME, [])) == 7200


# ---- crashes


@dataclass(frozen=True)
class DyingCluster(Cluster):
    """Ctrl-C at the n-th changing call from now: before it reaches the server, or before its answer is read."""

    left: list[int] = field(default_factory=list)
    before: bool = True

    def open(self, method: str, *arguments: Any, **options: Any) -> Any:
        is_change = method != "GET" and not {"dryRun"} & set(_query(arguments, options))
        if is_change and self.left:
            self.left[0] -= 1
            if self.left[0] == 0:
                self.left.clear()
                if not self.before:
                    with suppress(ApiException):
                        super().open(method, *arguments, **options)
                raise KeyboardInterrupt
        return super().open(method, *arguments, **options)


def _query(arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, str]:
    return options.get("query") or (arguments[2] if len(arguments) > 2 else None) or {}


def apply(platform: KubernetesPlatform, desired: list[Resource], folder: Path, name: str = NAME) -> Plan:
    """What `toolkit deploy` and `toolkit destroy` do."""
    made = plan(platform, name, desired)
    record = Record(folder / "record.jsonl", print)
    with platform.lease(name):
        make(made, rules_of(made.platform).kinds, platform, record, Silent())
        if desired:
            config = desired[-1].request["metadata"]["annotations"]["toolkit/recipe"]
            wait_in_service(platform, {name: config}, Silent(), 60, sleep=platform.sleep)
        remove(made, platform, record, Silent())
    return made


def crashes(platform: KubernetesPlatform, before: bool, go: Callable[[KubernetesPlatform], object]) -> Iterator[int]:
    """Do it again and again, each time dying one changing call later, and then the whole; yields after each."""
    for number in count(1):
        left = [number]
        here = platform.cluster
        dying = DyingCluster(here.client, here.context, here.namespace, left, before)
        try:
            go(replace(platform, cluster=dying))
        except KeyboardInterrupt:
            yield number
        else:
            return


def there(platform: KubernetesPlatform) -> set[str]:
    """What is in the namespace, but for what controllers put there."""
    kinds = [rule.kind for rule in KINDS if rule.api.namespaced and rule.kind not in CUSTOM]
    found = {(kind, item["metadata"]["name"]) for kind in (*kinds, "Lease", "Pod") for item in _items(platform, kind)}
    return {f"{kind}/{name}" for kind, name in found if name != "default" and not name.endswith("-ca.crt")}


def _items(platform: KubernetesPlatform, kind: str) -> list[dict[str, Any]]:
    listed = platform.cluster.items(path(kind, platform.cluster.namespace), {})
    return [item for item in listed if "deletionTimestamp" not in item["metadata"]]


_ALL = {f"ConfigMap/{NAME}-1", f"Deployment/{NAME}", f"ServiceAccount/{NAME}", f"Service/{NAME}"}


def no_pod(found: set[str]) -> set[str]:
    return {item for item in found if not item.startswith("Pod/")}


@pytest.mark.parametrize("before", [True, False], ids=["never sent", "answer lost"])
def test_a_deployment_that_dies_at_any_call_is_carried_on(
    platform: KubernetesPlatform, tmp_path: Path, before: bool
) -> None:
    tries = 0
    for _ in crashes(platform, before, lambda dying: apply(dying, endpoint(), tmp_path)):
        tries += 1
        apply(platform, endpoint(), tmp_path)
        assert no_pod(there(platform)) == _ALL
        apply(platform, [], tmp_path)
        assert there(platform) == set()
    assert tries >= 5


@pytest.mark.parametrize("before", [True, False], ids=["never sent", "answer lost"])
def test_a_removal_that_dies_at_any_call_is_carried_on(
    platform: KubernetesPlatform, tmp_path: Path, before: bool
) -> None:
    apply(platform, endpoint(), tmp_path)
    tries = 0
    for _ in crashes(platform, before, lambda dying: apply(dying, [], tmp_path)):
        tries += 1
        apply(platform, [], tmp_path)
        assert there(platform) == set()
        apply(platform, endpoint(), tmp_path)
    assert tries >= 4


@pytest.mark.parametrize("before", [True, False], ids=["never sent", "answer lost"])
def test_a_replacement_that_dies_at_any_call_is_carried_on(
    platform: KubernetesPlatform, tmp_path: Path, before: bool
) -> None:
    other = [*endpoint()[:-1], relabelled()]
    tries = 0
    apply(platform, endpoint(), tmp_path)
    for _ in crashes(platform, before, lambda dying: apply(dying, other, tmp_path)):
        tries += 1
        apply(platform, other, tmp_path)
        (found,) = _items(platform, "Deployment")
        assert found["spec"]["selector"]["matchLabels"]["tier"] == "gpu"
        apply(platform, [], tmp_path)
        apply(platform, endpoint(), tmp_path)
    assert tries >= 2


def relabelled() -> Resource:
    return deployment(recipe="bbbb", labels={"tier": "gpu"})
