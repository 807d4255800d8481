"""A warm start of vLLM on a GPU: the job that compiles, then an endpoint that takes it, with genuine boto3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from compilable import compilable
from loopback_registry import running
from pairs import write_pair
from rights import not_allowed
from standin import StandIn
from trained_at_once import trained_at_once
from tuned_arms import report_at

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.api.improvement import improve, improve_plan
from toolkit.api.steps import Steps
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Silent
from toolkit.errors import NotCompiled
from toolkit.loading import load
from toolkit.measure.measurement import Gain, Interval
from toolkit.measure.report import BenchReport
from toolkit.recipe.recipe import Recipe

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


def test_settings_that_nobody_has_compiled_are_tuned_all_the_same(recipe: Path) -> None:
    deployed: list[str] = []

    def measure(endpoint: Endpoint, **_: Any) -> BenchReport:
        assert endpoint.status().status == "InService"
        deployed.append(endpoint.name)
        return report_at(2, {"chat": 0.8})

    assert toolkit.tune(recipe, k=[2], _steps=Steps(measure=measure), progress=Silent()).winner == "K=2"
    assert deployed == ["sd-tune-k2"]


def test_another_acceptance_is_measured_without_what_nobody_has_compiled(recipe: Path) -> None:
    lengths: list[float | None] = []

    def measure(endpoint: Endpoint, **_: Any) -> BenchReport:
        assert endpoint.status().status == "InService"
        lengths.append(endpoint.synthetic_acceptance_length)
        return report_at(2)

    toolkit.what_if(recipe, [2.0], _steps=Steps(measure=measure), progress=Silent())
    assert lengths == [2.0]


@pytest.fixture
def improvable(recipe: Path) -> Path:
    """A compiled recipe in service, and traffic to learn from."""
    questions = ({"messages": [{"role": "user", "content": f"Question {number}"}]} for number in range(20))
    (recipe.parent / "ours.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in questions))
    text = recipe.read_text().replace("draft-model", "p-eagle")
    write_pair(recipe.parent)
    recipe.write_text(f"{text}training: {{data: [./ours.jsonl], depth: 10, layers: 2}}\n")
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    return recipe


@dataclass
class HeadRoad:
    """A head that is trained at once, and measured to be that many times as fast."""

    ratio: float
    measured: int = 0

    @property
    def steps(self) -> Steps:
        return Steps(train=self.train, measure=self.measure)

    def train(self, recipe: Recipe, **_: Any) -> TrainingRun:
        return trained_at_once(recipe)

    def measure(self, new: Endpoint, **_: Any) -> BenchReport:
        self.measured += 1
        ratio = Interval(self.ratio, self.ratio * 0.98, self.ratio * 1.02)
        gains = [Gain(workload.name, 1, "speculative", ratio, ratio) for workload in new.workloads]
        return replace(report_at(7), gains=tuple(gains), noise=Interval(1.0, 0.99, 1.01))


def test_a_head_for_which_nobody_has_compiled_is_tried_and_promoted(improvable: Path, standin: StandIn) -> None:
    planned = improve_plan(improvable)
    assert f"`toolkit compile {improvable}` and then `toolkit deploy {improvable}`" in planned.trial

    assert improve(improvable, progress=Silent(), _steps=HeadRoad(1.3).steps)
    assert "drafter@" in improvable.read_text()
    assert "TOOLKIT_ARTIFACTS_KEY" not in container(standin)["Environment"]

    toolkit.compile(improvable, progress=Silent())
    toolkit.deploy(improvable, progress=Silent())
    assert "TOOLKIT_ARTIFACTS_KEY" in container(standin)["Environment"]


def test_after_a_head_that_is_no_better_the_one_before_starts_with_its_compiled_code(
    improvable: Path, standin: StandIn
) -> None:
    before = container(standin)
    road = HeadRoad(0.8)
    assert not improve(improvable, progress=Silent(), _steps=road.steps)
    assert road.measured == 1
    assert container(standin)["Environment"] == before["Environment"]
