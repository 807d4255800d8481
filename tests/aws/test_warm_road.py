"""A warm start of vLLM on a GPU: the job that compiles, then an endpoint that takes it, with genuine boto3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compilable import compilable
from loopback_registry import running
from rights import not_allowed
from standin import StandIn

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import NotCompiled
from toolkit.loading import load

RECIPE = """\
name: sd
target: {{model: ./target}}
speculation: {{method: draft-model, model: ./drafter, num_speculative_tokens: 5}}
engine: {{name: vllm, version: 0.32.0, max_model_len: 1024, max_num_seqs: 4, warm_start: true}}
container: {{base: '{host}/base:1'}}
platform: {{name: sagemaker, role: create, instance_types: [ml.g6.xlarge]}}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("ecr")) as host:
        yield host


@pytest.fixture
def recipe(standin: StandIn, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return compilable(standin, host, tmp_path, monkeypatch, RECIPE)


def container(standin: StandIn) -> dict[str, Any]:
    sagemaker: Any = standin.session().client("sagemaker")
    endpoint = sagemaker.describe_endpoint(EndpointName="sd")
    config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    model = sagemaker.describe_model(ModelName=config["ProductionVariants"][0]["ModelName"])
    found: dict[str, Any] = model["PrimaryContainer"]
    return found


def test_an_endpoint_starts_with_what_the_job_has_compiled(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    (job,) = standin.training.started
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"
    made = container(standin)
    channels = {item["ChannelName"]: item["S3DataSource"]["S3Uri"] for item in made["AdditionalModelDataSources"]}
    assert channels["compiled"] == job["CheckpointConfig"]["S3Uri"]
    assert made["Environment"]["TOOLKIT_ARTIFACTS_KEY"] == job["Environment"]["TOOLKIT_ARTIFACTS_KEY"]
    assert toolkit.plan(recipe).changes == []


def test_it_takes_the_rights_that_are_listed(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert not_allowed(standin, load(recipe)) == set()


def test_another_flag_needs_another_job(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    recipe.write_text(recipe.read_text().replace("max_model_len: 1024", "max_model_len: 512"))
    with pytest.raises(NotCompiled, match="compiled for max_model_len 1024, not 512") as raised:
        toolkit.deploy(recipe, progress=Silent())
    assert "remove `warm_start`" in raised.value.hint
