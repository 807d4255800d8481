"""gpt-oss in a container without a network: its chat format's vocabulary is downloaded by older vLLM.

vllm-project/vllm#22525: "openai_harmony.HarmonyError: error downloading or loading vocab file".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aws_kinds import TEMPLATES, desired, wanted
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.api.checking import check
from toolkit.engines.arguments import environment
from toolkit.findings import Finding
from toolkit.loading import load, on_platform
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe

ISOLATED = "network: {isolation: true}\n"
FOLDER = "  env: {TIKTOKEN_ENCODINGS_BASE: /opt/ml/model}\n  max_model_len"


def complete(root: Path) -> Recipe:
    recipe = load(root / "recipe.yaml")
    return pinned(recipe, read_lock(lock_path(recipe)))


def found(root: Path, text: str, model_type: str = "gpt_oss") -> list[Finding]:
    path = write_hub_pair(root, text, target={"config": {"model_type": model_type}})
    return [finding for finding in check(path).findings if finding.code == "engine.vocabulary"]


OLDER = HUB_RECIPE.replace("0.30.0", "0.29.0")


def test_the_vocabulary_of_an_isolated_gpt_oss_is_staged(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, OLDER + ISOLATED)
    assert (finding.severity, finding.path) == ("info", "network.isolation")
    assert "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken" in finding.hint
    (weights,) = [item for item in wanted(complete(tmp_path), "Weights") if "Url" in item.request]
    assert weights.request["Files"][0]["path"] == "o200k_base.tiktoken"
    (model,) = wanted(complete(tmp_path), "Model")
    container = model.request["PrimaryContainer"]
    folder = container["Environment"]["TIKTOKEN_ENCODINGS_BASE"]
    channels = {item["ChannelName"]: item["S3DataSource"]["S3Uri"] for item in container["AdditionalModelDataSources"]}
    assert folder == "/opt/ml/additional-model-data-sources/files"
    assert channels["files"] == f"s3://{weights.request['Bucket']}/{weights.request['Prefix']}"


def test_a_template_stages_the_vocabulary_beside_the_models(tmp_path: Path) -> None:
    found(tmp_path, OLDER + ISOLATED)
    made = TEMPLATES.template(desired([TEMPLATES.arrange(complete(tmp_path), ACCOUNT)], ACCOUNT))
    commands = [step["command"] for step in made["Metadata"]["toolkit:stageFirst"]]
    assert any("| sha256sum --check && aws s3 cp o200k_base.tiktoken s3://" in command for command in commands)
    (model,) = [item for item in made["Resources"].values() if item["Type"] == "AWS::SageMaker::Model"]
    environment = model["Properties"]["PrimaryContainer"]["Environment"]
    assert environment["TIKTOKEN_ENCODINGS_BASE"] == "/opt/ml/model/files"


def test_a_cluster_isolates_nothing_and_stages_nothing(tmp_path: Path) -> None:
    found(tmp_path, OLDER + ISOLATED)
    moved = on_platform(complete(tmp_path), "kubernetes")
    on_s3 = replace(moved, platform=moved.platform.edit(weights="s3"))
    assert "TIKTOKEN_ENCODINGS_BASE" not in environment(on_s3)


def test_what_is_not_staged_cannot_be_downloaded(tmp_path: Path) -> None:
    drafter = "platform: {weights: hub, name: sagemaker,"
    (finding,) = found(tmp_path, OLDER.replace("platform: {name: sagemaker,", drafter) + ISOLATED)
    assert finding.severity == "error"
    assert "0.30.0 or newer" in finding.hint


@pytest.mark.parametrize(
    ("text", "model_type"),
    [
        (OLDER, "gpt_oss"),  # it has a network
        (HUB_RECIPE + ISOLATED, "gpt_oss"),  # this version downloads nothing
        (OLDER + ISOLATED, "llama"),
        (OLDER.replace("  max_model_len", FOLDER) + ISOLATED, "gpt_oss"),
    ],
    ids=["network", "newer", "other model", "own file"],
)
def test_what_starts_without_a_download(tmp_path: Path, text: str, model_type: str) -> None:
    assert found(tmp_path, text, model_type) == []
    assert not [item for item in wanted(complete(tmp_path), "Weights") if "Url" in item.request]
