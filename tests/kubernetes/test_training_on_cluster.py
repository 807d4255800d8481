"""`toolkit train` on a cluster: a Job, its progress, its head in the claim and on this machine; and what goes wrong."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fakes import Interrupting, Told
from kubernetes.client import ApiException
from pod_steps import Step, exited, running, scheduled, waits
from recorded import RecordingCluster, recorded
from scripted_http import Reply, scripted
from scripted_node import ScriptedNode
from waiting import until

import toolkit
from tests.unit.training.test_head_comparison import report
from toolkit.api.outside import Outside
from toolkit.api.training import train as train_with
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import PlatformError, RecipeError, TrainingJobFailed
from toolkit.platforms.kubernetes.cluster import Cluster, path, selector
from toolkit.platforms.kubernetes.observe import job_status
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules.metadata import OURS
from toolkit.training.job import TrainingJob

MODELS = Path(__file__).parents[2] / "recipes" / "tiny" / "models"
RECIPE = """\
name: my-head
target: {model: MODELS/target}
training:
  data: [./chats.jsonl]
  layers: 2
  depth: 10
  max_length: 1024
  image: registry.example/train:1
speculation: {method: p-eagle, model: ./heads/mine, num_speculative_tokens: 7}
engine: {version: 0.30.0, max_model_len: 1024, max_num_seqs: 16, max_num_batched_tokens: 2048}
platform: {name: kubernetes, instance_types: [g6e.2xlarge], kubernetes: {namespace: NAMESPACE, weights_claim: models}}
"""
PROGRESS = 'train: {"stage": "train", "done": 3, "total": 3, "loss": 0.5, "accuracy": [0.9]}'
TRAINED = (scheduled(), running("2 samples", name="train"), exited(0, PROGRESS, name="train"))
WRONG = "error: chats.jsonl:3 has no turn of the assistant"


class Files(SimpleHTTPRequestHandler):
    """Stands in for the same server in the pod."""

    def log_message(self, *_: object) -> None: ...


@dataclass
class Desk:
    """A recipe, a cluster with its claim, and the folder that its pods serve as the head."""

    kubelet: ScriptedNode
    cluster: RecordingCluster
    platform: KubernetesPlatform
    recipe: Path
    served: Path

    @property
    def head(self) -> Path:
        return self.recipe.parent / "heads" / "mine"

    def script(self, *steps: Step) -> None:
        self.kubelet.script = steps

    def train(self, **more: Any) -> TrainingRun:
        outside = Outside(open_trainer=lambda *_: self.platform)
        return train_with(self.recipe, **{"_outside": outside, "progress": Silent(), **more})

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Ours, and pods."""
        wanted = {} if kind == "Pod" else {"labelSelector": selector(OURS)}
        return self.cluster.items(path(kind, self.cluster.namespace), wanted)


def prepare(cluster: Cluster) -> None:
    """A namespace with a claim, as `kubectl create` makes them."""
    cluster.call("POST", path("Namespace", ""), {"metadata": {"name": cluster.namespace}})
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    place = path("PersistentVolumeClaim", cluster.namespace)
    cluster.call("POST", place, {"metadata": {"name": "models"}, "spec": spec})


@pytest.fixture
def desk(answering: ScriptedNode, platform: KubernetesPlatform, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "chats.jsonl").write_text('{"prompt": "Count to nine."}\n')
    recipe = tmp_path / "my-head.yaml"
    recipe.write_text(RECIPE.replace("MODELS", str(MODELS)).replace("NAMESPACE", platform.cluster.namespace))
    served = tmp_path / "served"
    shutil.copytree(MODELS / "p-eagle", served)
    (served / "report.json").write_text('{"held_out_loss": 1.25}')
    prepare(platform.cluster)
    recording, cluster = recorded(replace(platform, poll_seconds=0.0, sleep=lambda _: time.sleep(0.02)))
    found = Desk(answering, cluster, recording, recipe, served)
    found.script(*TRAINED)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(served))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        answering.backend = f"http://127.0.0.1:{server.server_port}"
        with answering.at_work():
            yield found
        server.shutdown()
        thread.join()


def test_a_head_is_trained_in_a_job_checked_and_put_where_endpoints_and_the_recipe_have_it(desk: Desk) -> None:
    told = Told()
    found = desk.train(progress=told)
    assert (found.status, found.head, found.metrics) == ("trained", str(desk.head), {"held_out_loss": 1.25})
    assert (desk.head / "model.safetensors").read_bytes() == (MODELS / "p-eagle" / "model.safetensors").read_bytes()
    assert f"{found.job}: train 3/3, loss 0.500, right by depth 90%" in told.said
    (job,) = desk.objects("Job")
    (config,) = desk.objects("ConfigMap")
    inside = TrainingJob.model_validate_json(config["data"]["job.json"])
    assert job["metadata"]["name"] == found.job
    assert inside.head == f"/workspace/training/{found.job}/head"
    assert "head" not in {pod["metadata"]["labels"].get("app.kubernetes.io/component") for pod in desk.objects("Pod")}


def test_the_head_is_put_into_the_claim_under_the_name_that_endpoints_mount(desk: Desk) -> None:
    found = desk.train()
    made = desk.cluster.created("Pod")
    read, placed = (pod["spec"]["containers"][0] for pod in made)
    folder = f"/workspace/training/{found.job}/head"
    assert read["command"][-1] == folder
    assert read["volumeMounts"][0]["readOnly"] is True
    assert placed["command"][-2:] == [folder, "/workspace/mine"]
    assert all(pod["spec"]["securityContext"]["runAsNonRoot"] for pod in made)


def test_heads_are_compared_in_one_job_and_the_one_that_is_taken_is_put_into_the_claim(desk: Desk) -> None:
    for file in desk.served.iterdir():
        file.unlink()
    for method, tokens in (("p-eagle", 40), ("eagle3", 20)):
        shutil.copytree(MODELS / method, desk.served / method)
        (desk.served / method / "report.json").write_text(json.dumps(report([(tokens, 10), (tokens + 2, 11)])))
    compared = desk.train(compare=["p-eagle", "eagle3"])
    assert compared.comparison
    assert [head.method for head in compared.comparison.heads] == ["p-eagle", "eagle3"]
    assert not desk.head.exists()

    taken = desk.train(compare=["p-eagle", "eagle3"], take="eagle3")
    assert (taken.job, taken.status) == (compared.job, "reused")
    assert (desk.head / "model.safetensors").read_bytes() == (MODELS / "eagle3" / "model.safetensors").read_bytes()
    placed = desk.cluster.created("Pod")[-1]["spec"]["containers"][0]
    assert placed["command"][-2:] == [f"/workspace/training/{taken.job}/head/eagle3", "/workspace/mine"]
    (config,) = desk.objects("ConfigMap")
    inside = TrainingJob.model_validate_json(config["data"]["job.json"])
    assert [head.method for head in inside.compare] == ["p-eagle", "eagle3"]


def test_done_once_it_starts_no_second_job(desk: Desk) -> None:
    first, again = desk.train(), desk.train()
    assert (again.job, again.status, again.metrics) == (first.job, "reused", first.metrics)
    assert len(desk.objects("Job")) == 1


def test_bad_data_ends_it_with_the_jobs_own_words_and_the_next_try_has_the_same_checkpoints(desk: Desk) -> None:
    desk.script(scheduled(), running(name="train"), exited(2, WRONG, name="train"))
    with pytest.raises(TrainingJobFailed, match=r"chats\.jsonl:3 has no turn of the assistant") as raised:
        desk.train()
    assert f"kubectl logs -n {desk.cluster.namespace}" in raised.value.hint
    assert len(desk.objects("Pod")) == 1, "exit code 2 is not tried again"
    (failed,) = desk.objects("Job")
    desk.script(*TRAINED)
    plan = toolkit.train_plan(desk.recipe)
    assert [(action.verb, action.kind) for action in plan.changes] == [("replace", "Job")]
    assert desk.train().status == "trained"
    (job,) = desk.objects("Job")
    assert job["metadata"]["uid"] != failed["metadata"]["uid"]
    assert job["metadata"]["name"] == failed["metadata"]["name"]


def test_a_pod_that_is_taken_away_is_followed_by_another(desk: Desk) -> None:
    desk.script(scheduled(), running(name="train"), exited(143, "the training was stopped after step 2", name="train"))

    def given_back() -> bool:
        if any("containerStatuses" in pod["status"] for pod in desk.objects("Pod")):
            desk.script(*TRAINED)  # of the next one
        return False

    assert desk.train(progress=Interrupting(given_back)).status == "trained"
    assert len(desk.objects("Pod")) > 1


def test_interrupted_the_job_goes_on_and_the_next_command_waits_for_it(desk: Desk) -> None:
    desk.script(scheduled(), running("2 samples", name="train"))
    told = Interrupting(lambda: any("containerStatuses" in pod["status"] for pod in desk.objects("Pod")))
    with pytest.raises(KeyboardInterrupt):
        desk.train(progress=told)
    stop = f"To stop it, with a checkpoint: kubectl delete job -n {desk.cluster.namespace}"
    assert f"goes on in the cluster. {stop}" in told.said[-1]
    (action,) = toolkit.train_plan(desk.recipe).changes
    assert (action.verb, action.reason) == ("update", "is already training; waits for it")
    desk.kubelet.go_on(TRAINED)
    assert desk.train().status == "trained"
    assert len(desk.objects("Job")) == 1


def test_a_pod_that_can_never_start_is_a_failure_and_not_a_wait_for_its_deadline(desk: Desk) -> None:
    desk.script(waits("ErrImagePull", "registry.example/train:1: not found"))
    with pytest.raises(TrainingJobFailed, match=r"ErrImagePull: .*not found"):
        desk.train()
    desk.script(*TRAINED)
    assert desk.train().status == "trained"


def test_a_pod_that_the_cluster_refuses_is_a_failure_and_not_a_wait_for_the_jobs_deadline(desk: Desk) -> None:
    """Such a Job has no pods, and says nothing of it: only its events do."""
    place = f"/api/v1/namespaces/{desk.cluster.namespace}/limitranges"
    spec = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    desk.cluster.call("POST", place, {"metadata": {"name": "small"}, "spec": spec})
    until(lambda: is_refused(desk, "2Gi"))
    with pytest.raises(TrainingJobFailed, match=r"FailedCreate: .*maximum memory usage per Container is 1Gi"):
        desk.train()
    (job,) = desk.objects("Job")
    assert job_status(desk.cluster, job).status == "Failed"
    its_successor = {**job, "metadata": {**job["metadata"], "uid": "another"}}
    assert job_status(desk.cluster, its_successor).status == "InProgress"
    desk.cluster.call("DELETE", f"{place}/small")
    until(lambda: not is_refused(desk, "2Gi"))
    assert desk.train().status == "trained"


def is_refused(desk: Desk, memory: str) -> bool:
    """Whether a pod that wants so much is."""
    container = {"name": "a", "image": "b", "resources": {"limits": {"memory": memory}}}
    pod = {"metadata": {"name": "one"}, "spec": {"containers": [container]}}
    try:
        desk.cluster.call("POST", path("Pod", desk.cluster.namespace), pod, query={"dryRun": "All"})
    except ApiException:
        return True
    return False


def test_a_head_that_fails_its_checks_is_put_nowhere(desk: Desk) -> None:
    config = json.loads((desk.served / "config.json").read_text())
    (desk.served / "config.json").write_text(json.dumps({**config, "target_hidden_size": 512}))
    with pytest.raises(RecipeError, match="hidden size 512"):
        desk.train()
    assert not desk.head.exists()
    pods = [body["metadata"]["name"] for body in desk.cluster.created("Pod")]
    assert [name.rpartition("-")[2] for name in pods] == ["read"], "nothing was copied within the claim"


def test_a_head_that_is_not_in_the_claim_is_said(desk: Desk) -> None:
    for file in desk.served.iterdir():
        file.unlink()
    with pytest.raises(PlatformError, match="is not in its claim"):
        desk.train()


def test_names_that_lead_out_of_the_folder_are_no_files_of_a_head(desk: Desk) -> None:
    listing = b'<a href="../../evil">a</a> <a href="/etc/passwd">b</a> <a href=".bashrc">c</a>'
    with scripted(Reply(parts=[listing])) as server:
        desk.kubelet.backend = server.url
        with pytest.raises(PlatformError, match="is not in its claim"):
            desk.train()


def test_deployments_leave_alone_what_the_job_needs(desk: Desk) -> None:
    desk.train()
    verbs = {(action.kind, action.verb) for action in toolkit.plan(desk.recipe).actions}
    assert ("ConfigMap", "delete") not in verbs
    assert ("NetworkPolicy", "delete") not in verbs


def test_removing_the_endpoint_removes_the_job(desk: Desk) -> None:
    desk.train()
    toolkit.destroy(desk.recipe, progress=Silent())
    assert desk.objects("Job") == desk.objects("ConfigMap") == desk.objects("NetworkPolicy") == []


def test_the_command_shows_its_plan(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(desk.recipe), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [action["kind"] for action in plan["actions"]] == ["ConfigMap", "NetworkPolicy", "Job"]
    assert any("works in claim models" in note for note in plan["notes"])
    assert run(["train", str(desk.recipe)]) == 2, "no price is known: it asks, and there is no terminal"
