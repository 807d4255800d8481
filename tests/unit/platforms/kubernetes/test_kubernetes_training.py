"""The Job that trains a head: valid, restricted, on all GPUs of its machine, and refused without what it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

import toolkit
from toolkit.errors import UsageError
from toolkit.platforms.kubernetes.rules.train_job import placing_pod, reading_pod
from toolkit.training.job import TrainingJob

MODELS = Path(__file__).parents[4] / "recipes" / "tiny" / "models"
RECIPE = f"""\
name: my-head
target: {{model: {MODELS}/target}}
training:
  data: [./chats.jsonl, hf://owner/questions]
  depth: 10
  max_length: 1024
  max_hours: 3
  image: registry.example/train:1
  instance_type: p4d.24xlarge
speculation: {{method: p-eagle, model: ./head, num_speculative_tokens: 7}}
engine: {{version: 0.30.0, max_model_len: 1024}}
platform:
  name: kubernetes
  instance_types: [g6e.2xlarge]
  hub_token_secret: hub
  kubernetes: {{weights_claim: models}}
"""


def rendered(folder: Path, written: str = "", instead: str = "") -> list[dict[str, Any]]:
    (folder / "chats.jsonl").write_text("{}\n")
    path = folder / "my-head.yaml"
    path.write_text(RECIPE.replace(written, instead) if written else RECIPE)
    return [dict(item) for item in toolkit.render(path, to_train=True)["train"]]


def test_it_trains_on_all_gpus_of_its_machine_as_nobody(tmp_path: Path) -> None:
    config, policy, job = rendered(tmp_path)
    for manifest in (config, policy, job):
        kubernetes_validate.validate(manifest, "1.34", strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["command"] == ["python3", "/opt/toolkit/train", "/job"]
    assert job["spec"]["activeDeadlineSeconds"] == 3 * 3600
    token = next(item for item in container["env"] if item["name"] == "HF_TOKEN")
    assert token["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert "ingress" in policy["spec"]
    assert policy["spec"]["ingress"] == []


@pytest.mark.parametrize("divided", ["tensor-parallel-size: 2", "pipeline-parallel-size: 4"])
def test_the_job_of_a_model_that_several_nodes_serve_has_all_gpus_of_one(tmp_path: Path, divided: str) -> None:
    served = RECIPE.replace("weights_claim: models", "weights_claim: models, nodes: 2")
    served = served.replace("g6e.2xlarge", "g6e.12xlarge")
    engine = f"max_model_len: 1024, args: {{{divided}}}}}"
    job = rendered(tmp_path, RECIPE, served.replace("max_model_len: 1024}", engine))[-1]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_what_only_jobs_of_sagemaker_have_is_a_warning(tmp_path: Path) -> None:
    assert rendered(tmp_path, "depth: 10", "depth: 10\n  spot: true")
    found = [item for item in toolkit.check(tmp_path / "my-head.yaml").findings if item.code == "recipe.no-effect"]
    assert [(item.path, item.severity) for item in found] == [("training.spot", "warning")]


def test_it_works_in_the_claim(tmp_path: Path) -> None:
    job = TrainingJob.model_validate(json.loads(rendered(tmp_path)[0]["data"]["job.json"]))
    assert (job.target, job.data) == ("/workspace/target", ("/workspace/chats.jsonl", "hf://owner/questions"))
    assert job.checkpoints.startswith("/workspace/training/my-head-")


@pytest.mark.parametrize(
    ("written", "instead", "why"),
    [
        ("  image: registry.example/train:1\n", "", "training.image"),
        ("p4d.24xlarge", "m7i.2xlarge", "has no NVIDIA GPU"),
        ("hf://owner/questions", "s3://bucket/capture/", "does not read s3://bucket/capture/"),
    ],
)
def test_what_it_lacks_is_named(tmp_path: Path, written: str, instead: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        rendered(tmp_path, written, instead)


def test_the_pods_that_hand_the_head_over_are_valid_and_restricted(tmp_path: Path) -> None:
    job = rendered(tmp_path)[-1]
    for pod in (reading_pod(job), placing_pod(job, "head", "eagle3")):
        kubernetes_validate.validate(pod, "1.34", strict=True)
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["activeDeadlineSeconds"] <= 3600, "a command that is killed leaves none behind for ever"
        assert len(pod["metadata"]["name"]) <= 63
