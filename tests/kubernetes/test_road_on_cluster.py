"""The whole road on a cluster, as a user walks it: plan, deploy, status, invoke, destroy; and every crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fakes import answer_events, event_stream
from kubernetes.client import ApiException
from manifests import NAME, deployment, endpoint
from scripted_http import Reply, scripted
from standin_cluster import StandInCluster
from studied import studied

import toolkit
from toolkit.api.deployment import DeploymentPlan, read_plan
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.api.study_arms import are_there
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
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES, wait_seconds
from toolkit.registry import rules_of

Captured = pytest.CaptureFixture[str]
ANSWER = event_stream(answer_events([5, 6, 7], histogram=[1, 1]))


def planned(platform: KubernetesPlatform, desired: list[Resource]) -> DeploymentPlan:
    made = make_plan("chat.yaml", RULES, [NAME], desired, platform.observe(desired, [NAME]), account=platform.account())
    return DeploymentPlan(**vars(made))


def command(capsys: Captured, *arguments: str) -> tuple[int, str]:
    code = run(list(arguments))
    return code, capsys.readouterr().out


def test_the_road(standin: StandInCluster, platform: KubernetesPlatform, capsys: Captured) -> None:
    assert planned(platform, endpoint()).apply().status().status == "InService"

    _, out = command(capsys, "status", "--platform", "kubernetes", "--json")
    (found,) = json.loads(out)["endpoints"]
    assert (found["name"], found["region"], found["status"]) == (NAME, "stand-in/ml", "InService")

    where = {"platform": "kubernetes", "region": "stand-in/ml"}
    with scripted(Reply(parts=[ANSWER])) as container:
        standin.backend = container.url
        assert toolkit.connect(NAME, **where).chat("hello").text == "<5><6><7>"
    assert any("startup complete" in line for line in toolkit.connect(NAME, **where).logs())


def test_a_recipe_walks_it_too(standin: StandInCluster, kubeconfig: Path, capsys: Captured) -> None:
    recipe = "qwen3-32b/draft-model-trn2-eks"
    for _ in ("made", "left as it is"):
        code, out = command(capsys, "deploy", recipe, "--no-prove", "--json")
        assert (code, json.loads(out)["status"]) == (0, "InService")
    assert command(capsys, "logs", recipe)[1].endswith("INFO Application startup complete.\n")
    code, out = command(capsys, "destroy", recipe, "--yes")
    assert (code, "namespace toolkit" in out) == (0, True)
    assert there(standin) == ["namespaces/toolkit"]


def test_the_study_of_trainium_walks_it_with_both_arms(standin: StandInCluster, kubeconfig: Path) -> None:
    served: list[tuple[str, str]] = []

    def measured(arm: Endpoint, *, journal: Path, **_: Any) -> BenchReport:
        assert arm.twin
        served.extend((one.name, one.status().status) for one in (arm, arm.twin))
        return studied()

    done = toolkit.study("qwen3-32b", hardware="trn2", progress=Silent(), _steps=Steps(measure=measured))

    name = "qwen3-32b-draft-model-trn2-eks"
    assert served == [(name, "InService"), (f"{name}-baseline", "InService")]
    assert [setting for setting, *_, differs in done.setting_rows() if differs] == ["asked by"]
    assert there(standin) == ["namespaces/toolkit"]


def test_arms_of_that_name_in_another_namespace_are_not_the_studys(
    standin: StandInCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    recipe = load("qwen3-32b/draft-model-trn2-eks")
    other = tmp_path / "other.yaml"
    other.write_text(recipe.path.read_text().replace("    neuron_devices", "    namespace: other\n    neuron_devices"))
    toolkit.deploy(other, progress=Silent())
    assert (are_there(load(other)), are_there(recipe)) == (True, False)


def test_a_saved_plan_is_applied_once(
    standin: StandInCluster, kubeconfig: Path, tmp_path: Path, capsys: Captured
) -> None:
    saved = str(tmp_path / "plan.json")
    assert command(capsys, "plan", "qwen3-32b/draft-model-trn2-eks", "--out", saved)[0] == 0
    code, out = command(capsys, "deploy", "--plan", saved, "--no-prove", "--json", "--yes")
    assert (code, json.loads(out)["status"]) == (0, "InService")
    with pytest.raises(StalePlanError, match="what runs now is not what"):
        read_plan(Path(saved))


def test_a_plan_is_refused_when_the_cluster_has_changed(platform: KubernetesPlatform) -> None:
    made = planned(platform, endpoint())
    platform.cluster.call("POST", "/api/v1/namespaces", endpoint()[0].request)
    with pytest.raises(StalePlanError):
        made.apply()


def test_a_plan_without_a_cluster_is_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(StalePlanError, match="made without a kubeconfig"):
        toolkit.plan("qwen3-32b/draft-model-trn2-eks").apply()


def test_a_rollback_of_what_is_nowhere_is_told(kubeconfig: Path) -> None:
    with pytest.raises(EndpointNotFound, match=f"there is no endpoint {NAME}"):
        toolkit.rollback(NAME, platform="kubernetes")


@pytest.mark.parametrize("where", [["--platform", "kubernetes"], []], ids=["named", "looked for"])
def test_a_bare_name_is_found_in_its_namespace(
    platform: KubernetesPlatform, standin: StandInCluster, tmp_path: Path, capsys: Captured, where: list[str]
) -> None:
    apply(platform, endpoint(), tmp_path)
    code, out = command(capsys, "destroy", NAME, "--yes", *where)
    assert (code, out.startswith("removed 4 resources\nnot removed: namespace ml")) == (0, True)
    assert there(standin) == ["namespaces/ml"]


def test_a_bare_name_in_several_namespaces_is_refused(platform: KubernetesPlatform, tmp_path: Path) -> None:
    apply(platform, endpoint(), tmp_path)
    apply(
        replace(platform, cluster=replace(platform.cluster, namespace="other")), endpoint(namespace_="other"), tmp_path
    )
    with pytest.raises(UsageError, match="chat exists in several namespaces: stand-in/ml, stand-in/other"):
        toolkit.connect(NAME)


def test_a_cluster_that_nobody_named_need_not_answer(kubeconfig: Path, capsys: Captured) -> None:
    kubeconfig.write_text("hello there")
    assert command(capsys, "destroy", NAME, "--yes") == (3, "")
    assert toolkit.endpoints(platform="local") == []


def test_what_may_not_be_looked_at_is_told_where_nothing_is(
    standin: StandInCluster, kubeconfig: Path, capsys: Captured
) -> None:
    standin.forbidden.add(("list", "scaledobjects"))
    code, out = command(capsys, "destroy", NAME, "--yes", "--platform", "kubernetes")
    assert code == 0
    assert "not removed: a possible ScaledObject of this endpoint, which could not be read" in out


def test_a_rollout_gets_the_time_that_its_deployment_gives(platform: KubernetesPlatform) -> None:
    slow = deployment(replicas=2)
    slow.request["spec"]["progressDeadlineSeconds"] = 18900
    assert wait_seconds(planned(platform, [*endpoint()[:-1], slow])) == 2 * 18900 + 600
    assert wait_seconds(planned(platform, [])) == 7200


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


def apply(platform: KubernetesPlatform, desired: list[Resource], folder: Path) -> Plan:
    """What `toolkit deploy` and `toolkit destroy` do."""
    made = make_plan("chat.yaml", RULES, [NAME], desired, platform.observe(desired, [NAME]))
    record = Record(folder / "record.jsonl", print)
    with platform.lease(NAME):
        make(made, rules_of(made.platform).kinds, platform, record, Silent())
        if desired:
            config = desired[-1].request["metadata"]["annotations"]["toolkit/recipe"]
            wait_in_service(platform, {NAME: config}, Silent(), 60, sleep=lambda _: None)
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


def there(standin: StandInCluster) -> list[str]:
    return sorted(f"{key.plural}/{key.name}" for key in standin.store.objects if key.plural not in _RUNNING)


_RUNNING = ("events", "pods", "replicasets")
_ALL = ["configmaps/chat-1", "deployments/chat", "namespaces/ml", "serviceaccounts/chat", "services/chat"]


@pytest.mark.parametrize("before", [True, False], ids=["never sent", "answer lost"])
def test_a_deployment_that_dies_at_any_call_is_carried_on(
    standin: StandInCluster, platform: KubernetesPlatform, tmp_path: Path, before: bool
) -> None:
    tries = 0
    for _ in crashes(platform, before, lambda dying: apply(dying, endpoint(), tmp_path)):
        tries += 1
        apply(platform, endpoint(), tmp_path)
        assert there(standin) == _ALL
        apply(platform, [], tmp_path)
        assert there(standin) == ["namespaces/ml"]
    assert tries >= 5


@pytest.mark.parametrize("before", [True, False], ids=["never sent", "answer lost"])
def test_a_removal_that_dies_at_any_call_is_carried_on(
    standin: StandInCluster, platform: KubernetesPlatform, tmp_path: Path, before: bool
) -> None:
    apply(platform, endpoint(), tmp_path)
    tries = 0
    for _ in crashes(platform, before, lambda dying: apply(dying, [], tmp_path)):
        tries += 1
        apply(platform, [], tmp_path)
        assert there(standin) == ["namespaces/ml"]
        apply(platform, endpoint(), tmp_path)
    assert tries >= 4


@pytest.mark.parametrize("before", [True, False], ids=["never sent", "answer lost"])
def test_a_replacement_that_dies_at_any_call_is_carried_on(
    standin: StandInCluster, platform: KubernetesPlatform, tmp_path: Path, before: bool
) -> None:
    other = [*endpoint()[:-1], relabelled()]
    tries = 0
    apply(platform, endpoint(), tmp_path)
    for _ in crashes(platform, before, lambda dying: apply(dying, other, tmp_path)):
        tries += 1
        apply(platform, other, tmp_path)
        deployment = next(item for key, item in standin.store.objects.items() if key.plural == "deployments")
        assert deployment["spec"]["selector"]["matchLabels"]["tier"] == "gpu"
        apply(platform, [], tmp_path)
        apply(platform, endpoint(), tmp_path)
    assert tries >= 2


def relabelled() -> Resource:
    return deployment(recipe="bbbb", labels={"tier": "gpu"})
