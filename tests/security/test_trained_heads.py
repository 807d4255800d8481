"""A training job's output is somebody else's until it is checked: its names stay in the folder, its secrets nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import toolkit
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker import objects

MODELS = Path(__file__).parents[2] / "recipes" / "tiny" / "models"
ADDRESS = "s3://bucket/output/job/output/model"


def clients(*names: str) -> Any:
    """S3 with objects of these names below the head's folder."""

    def download_file(bucket: str, key: str, path: str) -> None:
        Path(path).write_text(key)

    pages = [{"Contents": [{"Key": f"output/job/output/model/head/{name}", "Size": 1} for name in names]}]
    paginator = SimpleNamespace(paginate=lambda **_: pages)
    described = {"ModelArtifacts": {"S3ModelArtifacts": ADDRESS}}
    return SimpleNamespace(
        sagemaker=SimpleNamespace(describe_training_job=lambda **_: described),
        s3=SimpleNamespace(get_paginator=lambda _: paginator, download_file=download_file),
    )


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", ".."])
def test_an_object_whose_name_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "head"
    folder.mkdir()
    with pytest.raises(PlatformError, match="is not a file of a head"):
        objects.fetch_head(clients(name), {"TrainingJobName": "job"}, folder)
    assert list(tmp_path.rglob("evil")) == []


def test_files_of_a_head_are_fetched(tmp_path: Path) -> None:
    objects.fetch_head(clients("config.json", "more/model.safetensors"), {"TrainingJobName": "job"}, tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["config.json", "model.safetensors"]


def test_no_token_of_the_user_is_in_the_jobs_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"secret-{name}")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "hi"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: mine\ntarget: {{model: {MODELS}/target}}\n"
        "training: {data: [./chats.jsonl], depth: 10, max_length: 1024, instance_type: ml.p5.48xlarge}\n"
        "speculation: {method: p-eagle, model: ./head, num_speculative_tokens: 7}\n"
        "engine: {version: 0.30.0, max_model_len: 1024}\n"
        "platform: {name: sagemaker, role: create, instance_types: [ml.g6e.2xlarge], hub_token_secret: hub}\n"
    )
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    plan = json.dumps(toolkit.train_plan(recipe).to_dict())
    assert "secret-" not in plan
    assert "Environment" not in next(a.request for a in toolkit.train_plan(recipe).actions if a.kind == "TrainingJob")
