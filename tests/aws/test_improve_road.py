"""`toolkit improve` on SageMaker: the trial is a variant of the live endpoint, and leaves it as it was, or better."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import answer_events, event_stream
from pairs import RECIPE, write_pair
from private_files import open_to_others
from standin import StandIn
from standin_runtime import Invocation, Reply
from trained_at_once import trained_at_once
from tuned_arms import report_at

import toolkit
from toolkit.api.improvement import improve
from toolkit.api.measuring import bench
from toolkit.api.steps import Steps
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import PlatformError
from toolkit.home import home
from toolkit.loading import load
from toolkit.measure.measurement import Gain, Interval
from toolkit.measure.report import BenchReport
from toolkit.platforms.sagemaker.rules.price import price_of
from toolkit.recipe.recipe import Recipe
from toolkit.training.plan import job_name

LIVE = (
    RECIPE.replace(
        "platform: {name: local}", "platform: {name: sagemaker, role: create, instance_types: [ml.g6.xlarge]}"
    )
    .replace("0.32.0", "0.30.0")
    .replace("num_speculative_tokens: 7", "num_speculative_tokens: 7  # measured")
    + "scaling: {min_instances: 1, max_instances: 4}\nobservability: {data_capture_percent: 50}\n"
)
BUCKET = "toolkit-123456789012-us-west-2"
NOTHING_NEW = "nothing new was captured, and `training` is as it was, since the head that serves was trained"
BETTER, SAME, WORSE = Interval(1.3, 1.2, 1.4), Interval(1.0, 0.9, 1.1), Interval(0.8, 0.7, 0.9)


@dataclass
class Road:
    """The steps of `improve`, with a trained head that is a copy of the one before, and a scripted measurement."""

    standin: StandIn
    ratio: Interval = BETTER
    seen: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    started_from: list[str] = field(default_factory=list)
    fails: bool = False

    @property
    def steps(self) -> Steps:
        return Steps(train=self.train, measure=self.measure)

    def train(self, recipe: Recipe, **_: Any) -> TrainingRun:
        assert recipe.training
        assert recipe.training.start_from
        self.jobs.append(job_name(recipe))
        self.started_from.append(recipe.training.start_from)
        return trained_at_once(recipe)

    def measure(self, new: Any, **_: Any) -> BenchReport:
        self.seen.append(described(self.standin))
        held_out, *own = new.workloads
        self.own = [workload.name for workload in own]
        self.asked += [prompt.text for prompt in held_out.prompts]
        if self.fails:
            raise PlatformError("the endpoint has gone")
        gain = Gain(held_out.name, 1, "speculative", self.ratio, self.ratio)
        kept = [Gain(workload.name, 1, "speculative", SAME, SAME) for workload in own]
        return replace(report_at(7), gains=(gain, *kept), noise=Interval(1.0, 0.99, 1.01))


def described(standin: StandIn) -> dict[str, Any]:
    found: Any = standin.session().client("sagemaker").describe_endpoint(EndpointName="tiny")
    return dict(found)


def variants(endpoint: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Instances and weight of each."""
    return {
        item["VariantName"]: (item["CurrentInstanceCount"], item["CurrentWeight"])
        for item in endpoint["ProductionVariants"]
    }


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An endpoint in service for the second time, which autoscaling has given three instances, and its traffic."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    path = write_pair(tmp_path)
    path.write_text(LIVE.replace("max_model_len: 1024", "max_model_len: 512"))
    toolkit.deploy(path, progress=Silent())
    path.write_text(LIVE)
    toolkit.deploy(path, progress=Silent())
    sagemaker: Any = standin.session().client("sagemaker")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="tiny", DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 3}]
    )
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="tiny", WaiterConfig={"Delay": 0})
    capture(standin, range(20))
    return path


def capture(standin: StandIn, questions: range) -> None:
    """What SageMaker writes of requests that ask these questions."""
    s3: Any = standin.session().client("s3")
    for number in questions:
        body = {"messages": [{"role": "user", "content": f"Question {number}"}]}
        record = {"captureData": {"endpointInput": {"data": json.dumps(body), "encoding": "JSON"}}}
        key = f"capture/tiny/tiny/AllTraffic/2026/11/22/10/{number:02}.jsonl"
        s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(record).encode())


def test_both_heads_answer_the_recipes_own_workloads_too(recipe: Path, standin: StandIn) -> None:
    (recipe.parent / "ours.jsonl").write_text('{"prompt": "Name three rivers."}\n')
    recipe.write_text(f"{LIVE}workloads: {{ours: ./ours.jsonl}}\n")
    road = Road(standin)
    assert improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.own == ["ours"]


def test_while_it_is_measured_each_instance_answers_as_many_requests(recipe: Path, standin: StandIn) -> None:
    road = Road(standin)
    improve(recipe, progress=Silent(), _steps=road.steps)
    (trial,) = road.seen
    assert variants(trial) == {"AllTraffic": (3, 1.0), "candidate": (1, 1.0)}
    assert 0 < len(road.asked) < 20


def test_after_a_head_that_is_not_better_all_is_as_it_was(recipe: Path, standin: StandIn) -> None:
    before, held = described(standin), standin.leftovers()
    found = improve("tiny", progress=Silent(), _steps=Road(standin, WORSE).steps)
    assert (found.promoted, found.tried) == (False, "variant")
    after = described(standin)
    assert after["EndpointConfigName"] == before["EndpointConfigName"]
    assert variants(after) == variants(before) == {"AllTraffic": (3, 1.0)}
    assert standin.leftovers() == held
    assert recipe.read_text() == LIVE
    assert toolkit.plan(recipe).changes == []
    toolkit.rollback(recipe, progress=Silent())  # to the deployment before the trial, and not to the trial
    assert served(standin)["SM_VLLM_MAX_MODEL_LEN"] == "512"


def served(standin: StandIn) -> dict[str, str]:
    """The environment of the model of the one variant."""
    client: Any = standin.session().client("sagemaker")
    name = described(standin)["EndpointConfigName"]
    (variant,) = client.describe_endpoint_config(EndpointConfigName=name)["ProductionVariants"]
    container = client.describe_model(ModelName=variant["ModelName"])["PrimaryContainer"]
    drafter = [source["S3DataSource"]["S3Uri"] for source in container["AdditionalModelDataSources"]]
    return {**container["Environment"], "drafter": drafter[0]}


def test_a_better_head_serves_alone_and_a_rollback_brings_the_one_before(recipe: Path, standin: StandIn) -> None:
    before = served(standin)["drafter"]
    assert improve(recipe, progress=Silent(), _steps=Road(standin).steps)
    assert variants(described(standin)) == {"AllTraffic": (3, 1.0)}
    assert served(standin)["drafter"] != before
    drafter = load(recipe).drafter
    assert drafter
    assert drafter.name.startswith("drafter@")
    assert toolkit.plan(recipe).changes == []
    toolkit.rollback("tiny", progress=Silent())
    assert variants(described(standin)) == {"AllTraffic": (3, 1.0)}
    assert served(standin)["drafter"] == before


def test_the_next_call_trains_on_what_was_captured_since_or_says_that_nothing_was(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    road = Road(standin)
    assert improve("tiny", progress=Silent(), _steps=road.steps)
    promoted, serves = load(recipe).drafter, described(standin)["EndpointConfigName"]

    capture(standin, range(10))  # what was asked before
    again = improve("tiny", progress=Silent(), _steps=road.steps)
    assert (again.promoted, again.reason) == (False, NOTHING_NEW)
    assert described(standin)["EndpointConfigName"] == serves
    assert run(["improve", "tiny", "--dry-run"]) == 0
    assert f"nothing to do: {NOTHING_NEW}" in capsys.readouterr().out

    road.ratio = WORSE
    capture(standin, range(20, 30))
    assert not improve("tiny", progress=Silent(), _steps=road.steps)
    assert len(set(road.jobs)) == 2
    assert road.started_from[-1] == str(promoted)


def test_killed_while_it_measures_the_same_command_goes_on_and_deploying_goes_back(
    recipe: Path, standin: StandIn
) -> None:
    before, held = described(standin), standin.leftovers()

    class Killed(Road):
        def measure(self, new: Any, **_: Any) -> BenchReport:
            standin.faults.fail("DescribeEndpoint", "Gone", "the process was killed", status=400, when="before")
            raise PlatformError("the process was killed")

    with pytest.raises(PlatformError):
        improve(recipe, progress=Silent(), _steps=Killed(standin).steps)
    assert variants(described(standin)).keys() == {"AllTraffic", "candidate"}

    road = Road(standin, WORSE)
    updates = len([call for call in standin.calls if call.operation == "UpdateEndpoint"])
    road.fails = True
    with pytest.raises(PlatformError, match="has gone"):
        improve(recipe, progress=Silent(), _steps=road.steps)
    again = [call for call in standin.calls if call.operation == "UpdateEndpoint"][updates:]
    assert len(again) == 1  # the one that ends the trial
    assert described(standin)["EndpointConfigName"] == before["EndpointConfigName"]
    assert standin.leftovers() == held


def test_a_variant_that_does_not_start_leaves_all_as_it_was(recipe: Path, standin: StandIn) -> None:
    before, held = described(standin), standin.leftovers()
    standin.script("tiny", ["Updating", "RollingBack", "InService"], reason="no capacity")
    with pytest.raises(PlatformError, match="rolled back"):
        improve(recipe, progress=Silent(), _steps=Road(standin).steps)
    assert described(standin)["EndpointConfigName"] == before["EndpointConfigName"]
    assert standin.leftovers() == held


def test_the_plan_says_what_happens_to_the_endpoint_and_what_it_costs(
    recipe: Path, standin: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = standin.leftovers()
    assert run(["improve", "tiny", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"] == [f"s3://{BUCKET}/capture/tiny/tiny/"]
    assert "production variant candidate of tiny, one instance beside AllTraffic" in found["trial"]
    assert "SageMaker starts 2 new instances beside those that serve" in found["trial"]
    assert found["training"]["actions"][-1]["kind"] == "TrainingJob"
    hourly = price_of("ml.g6.xlarge", "us-west-2")
    assert found["price"].startswith("a training job: ")
    assert found["price"].endswith(f"; then {hourly:.2f} $/h while the head is tried")

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(["improve", "tiny"]) == 2
    said = capsys.readouterr().err
    assert f"This starts {found['price']}. Go on? Cannot ask: stdin is not a terminal." in said
    assert said.index("traffic: ") < said.index("This starts")
    assert standin.leftovers() == held


def test_requests_name_the_variant_and_no_text_of_them_is_written(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the API that AWS documents for this, InvokeEndpointWithResponseStream with TargetVariant."""
    invoked: list[Invocation] = []

    def container(invocation: Invocation) -> Reply:
        invoked.append(invocation)
        histogram = [0, 0, 0, 2] if invocation.variant == "candidate" else [0, 4, 0, 0]
        return Reply((event_stream(answer_events(list(range(8)), histogram)),), content_type="text/event-stream")

    standin.serve(container)
    reports: list[BenchReport] = []

    def measure(new: Any, **known: Any) -> BenchReport:
        reports.append(bench(new, **{**known, "seconds": 5.0}, requests=2))
        return reports[-1]

    steps = replace(Road(standin).steps, measure=measure)
    found = improve(recipe, _steps=steps)
    assert {one.variant for one in invoked} == {"AllTraffic", "candidate"}
    assert found.acceptance_lengths == (2.0, 4.0)
    assert "Question" in invoked[0].body["messages"][0]["content"]
    said = capsys.readouterr()
    assert open_to_others(home()) == []
    written = [path.read_text(errors="replace") for path in home().rglob("*") if path.is_file()]
    assert "measure tiny@candidate" in said.err
    assert not [text for text in (said.out, said.err, *written, str(reports[0].to_dict())) if "Question" in text]
