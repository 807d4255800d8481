"""Compile for Trainium in a training job, then deploy what was compiled, with the genuine boto3 client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compilable import RECIPE, compilable, leave
from pairs import write_pair, write_recipe
from rights import not_allowed
from standin import StandIn
from standin_training import JobScript

import toolkit
from toolkit.api.jobs import compile_plan
from toolkit.apply.progress import PlainProgress, Silent
from toolkit.errors import NotCompiled, RecipeError, TrainingJobFailed, UsageError
from toolkit.loading import load
from toolkit.platforms.sagemaker.ci_roles import reading

TOOLKIT = Path(sys.executable).with_name("toolkit")
BUCKET = "toolkit-123456789012-us-west-2"


@pytest.fixture
def recipe(standin: StandIn, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return compilable(standin, host, tmp_path, monkeypatch)


def with_k(recipe: Path, k: int) -> Path:
    before, _, rest = recipe.read_text().partition("num_speculative_tokens: ")
    recipe.write_text(f"{before}num_speculative_tokens: {k}{rest[1:]}")
    return recipe


def jobs(recipe: Path) -> dict[str, tuple[str, str]]:
    """What compiling would do, by the jobs' names."""
    actions = compile_plan(recipe).actions
    return {action.name: (action.verb, action.reason) for action in actions if action.kind == "TrainingJob"}


def model(standin: StandIn, name: str = "sd") -> dict[str, Any]:
    sagemaker: Any = standin.session().client("sagemaker")
    endpoint = sagemaker.describe_endpoint(EndpointName=name)
    config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    found: dict[str, Any] = sagemaker.describe_model(ModelName=config["ProductionVariants"][0]["ModelName"])
    container: dict[str, Any] = found["PrimaryContainer"]
    return container


def test_what_was_compiled_is_mounted(recipe: Path, standin: StandIn) -> None:
    done = toolkit.compile(recipe, progress=Silent())
    (request,) = standin.training.started
    place = request["CheckpointConfig"]["S3Uri"]
    assert [action.verb for action in done.actions] == ["create"] * len(done.actions)

    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"
    container = model(standin)
    channels = {item["ChannelName"]: item["S3DataSource"]["S3Uri"] for item in container["AdditionalModelDataSources"]}
    assert channels["compiled"] == place
    assert container["Environment"]["TOOLKIT_ARTIFACTS"] == "/opt/ml/additional-model-data-sources/compiled"
    assert container["Environment"]["TOOLKIT_ARTIFACTS_KEY"] == request["Environment"]["TOOLKIT_ARTIFACTS_KEY"]
    assert toolkit.plan(recipe).changes == []


def test_compiling_deploying_and_destroying_take_the_rights_that_are_listed(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert not_allowed(standin, load(recipe)) == set()


def test_planning_takes_what_a_pull_request_may(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    standin.calls.clear()
    toolkit.plan(recipe)
    assert not_allowed(standin, load(recipe), reading) == set()


def test_nothing_is_made_where_nothing_was_compiled(recipe: Path, standin: StandIn) -> None:
    with pytest.raises(NotCompiled, match="does not exist") as raised:
        toolkit.deploy(recipe, progress=Silent())
    assert "toolkit compile" in raised.value.hint
    assert "compile: at-start" in raised.value.hint
    assert standin.leftovers() == []


def test_another_k_is_refused_until_it_is_compiled(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    first = model(standin)

    with_k(recipe, 7)
    with pytest.raises(NotCompiled, match="compiled for num_speculative_tokens 5, not 7"):
        toolkit.deploy(recipe, progress=Silent())
    assert model(standin) == first
    ((verb, reason),) = jobs(recipe).values()
    assert (verb, "num_speculative_tokens 5, not 7" in reason) == ("create", True)

    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    assert model(standin)["Environment"]["TOOLKIT_ARTIFACTS_KEY"] != first["Environment"]["TOOLKIT_ARTIFACTS_KEY"]
    toolkit.rollback(recipe, progress=Silent())
    assert model(standin) == first


def test_compiling_twice_starts_one_job(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    assert [verb for verb, _ in jobs(recipe).values()] == ["reuse"]
    assert toolkit.compile(recipe, progress=Silent()).changes == []
    assert len(standin.training.started) == 1


def test_the_baseline_has_a_job_of_its_own(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, baseline=True, progress=Silent())
    environments = [item["Environment"] for item in standin.training.started]
    methods = [json.loads(environment["TOOLKIT_ARTIFACTS_PARTS"])["method"] for environment in environments]
    assert methods == ["draft-model", "none"]
    assert toolkit.deploy(recipe, baseline=True, progress=Silent()).status().status == "InService"
    assert toolkit.plan(recipe, baseline=True).changes == []


def test_a_failed_job_ends_with_its_cause_and_the_next_has_another_name(recipe: Path, standin: StandIn) -> None:
    log = ("compile: 0 min 05 s: the engine compiles and loads", "RuntimeError: Failed compilation with neuronx-cc")
    standin.training.script = JobScript(("Starting", "Training", "Failed"), log, "AlgorithmError: exit code: 1")
    said: list[str] = []
    with pytest.raises(TrainingJobFailed, match=r"sd-[0-9a-f]{12} failed: AlgorithmError: exit code: 1") as raised:
        toolkit.compile(recipe, progress=PlainProgress(said.append))
    assert raised.value.logs == log
    assert any("the engine compiles and loads" in line for line in said)

    ((name, (verb, reason)),) = jobs(recipe).items()
    assert (name[-2:], verb) == ("-2", "create")
    assert "failed: AlgorithmError: exit code: 1" in reason
    standin.training.script = JobScript()
    toolkit.compile(recipe, progress=Silent())
    assert [item["TrainingJobName"] for item in standin.training.started] == [name[:-2], name]


def test_a_cause_that_is_known_comes_with_the_edit(recipe: Path, standin: StandIn) -> None:
    reason = "CapacityError: Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity."
    standin.training.script = JobScript(("Starting", "Failed"), (), reason)
    with pytest.raises(TrainingJobFailed, match="Unable to provision") as raised:
        toolkit.compile(recipe, progress=Silent())
    assert raised.value.cause
    assert raised.value.cause.code == "capacity"


def test_a_job_that_takes_too_long_is_stopped_and_says_so(recipe: Path, standin: StandIn) -> None:
    standin.training.script = JobScript(("Starting", "Training", "MaxRuntimeExceeded"))
    with pytest.raises(TrainingJobFailed, match="was stopped \\(MaxRuntimeExceeded\\)"):
        toolkit.compile(recipe, progress=Silent())


def test_files_that_still_arrive_do_not_count(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, wait=False, progress=Silent())
    (request,) = standin.training.started
    place = request["CheckpointConfig"]["S3Uri"].removeprefix(f"s3://{BUCKET}/")
    record = leave(request["Environment"])["artifacts.json"]
    standin.session().client("s3").put_object(Bucket=BUCKET, Key=f"{place}artifacts.json", Body=record)
    with pytest.raises(NotCompiled, match=f"{request['TrainingJobName']} compiles it"):
        toolkit.deploy(recipe, progress=Silent())


def test_a_killed_command_leaves_the_job_and_the_next_joins_it(recipe: Path, standin: StandIn, tmp_path: Path) -> None:
    standin.training.script = JobScript(("Starting", *["Training"] * 5000, "Uploading", "Completed"))
    environment = {**os.environ, "TOOLKIT_HOME": str(tmp_path / "home")}
    process = subprocess.Popen([TOOLKIT, "compile", str(recipe)], env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    seen = next(line for line in process.stderr if "training" in line and "in total" in line)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    (request,) = standin.training.started
    name = request["TrainingJobName"]
    assert (process.returncode, name in seen) == (130, True)
    assert f"aws sagemaker stop-training-job --training-job-name {name}" in rest
    assert standin.training.running == [name]

    assert jobs(recipe) == {name: ("update", "is already compiling; waits for it")}
    standin.training.hurry()
    assert toolkit.compile(recipe, progress=Silent()).actions[-1].name == name
    assert len(standin.training.started) == 1


def test_an_interrupted_wait_tells_the_whole_command(recipe: Path, standin: StandIn) -> None:
    standin.training.script = JobScript(("Starting", *["Training"] * 5000, "Uploading", "Completed"))
    said: list[str] = []

    def interrupt(line: str) -> None:
        said.append(line)
        if "in total" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toolkit.compile(recipe, platform="sagemaker", baseline=True, progress=PlainProgress(interrupt))
    assert f"Go on: toolkit compile {recipe} --platform sagemaker --baseline\n" in "".join(said)


def test_a_colleagues_job_of_the_same_key_is_joined(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, wait=False, progress=Silent())
    recipe.write_text(recipe.read_text().replace("name: sd", "name: mine"))
    (request,) = standin.training.started
    assert jobs(recipe) == {request["TrainingJobName"]: ("update", "is already compiling; waits for it")}


def test_another_ones_job_is_not_taken_for_ours(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, wait=False, progress=Silent())
    (request,) = standin.training.started
    request["Tags"].clear()
    with pytest.raises(Exception, match="was not created by the toolkit"):
        toolkit.compile(recipe, progress=Silent())


def test_destroy_stops_what_still_compiles_and_tells_what_stays(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    place = standin.training.started[0]["CheckpointConfig"]["S3Uri"]
    toolkit.compile(with_k(recipe, 7), wait=False, progress=Silent())
    assert len(standin.training.running) == 1

    removed = toolkit.destroy(recipe, progress=Silent())
    assert standin.training.running == []
    assert any(f"aws s3 rm --recursive {place}" in item for item in removed.not_removed)
    assert any("in which there is more" in item for item in removed.not_removed)
    assert {item.split()[1] for item in standin.leftovers()} == {"repository", "group", "bucket", "object"}


def test_the_job_may_write_and_the_endpoint_may_not(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    iam: Any = standin.session().client("iam")
    documents = {
        name: json.dumps(iam.get_role_policy(RoleName=name, PolicyName="sd")["PolicyDocument"])
        for name in ("toolkit-sd-us-west-2", "toolkit-sd-compile-us-west-2")
    }
    assert {name: "s3:PutObject" in text for name, text in documents.items()} == {
        "toolkit-sd-us-west-2": False,
        "toolkit-sd-compile-us-west-2": True,
    }


def test_without_an_account_there_is_a_plan(tmp_path: Path) -> None:
    write_pair(tmp_path, "draft-model")
    recipe = write_recipe(tmp_path, RECIPE.format(host="123456789012.dkr.ecr.us-west-2.amazonaws.com"))
    assert [verb for verb, _ in jobs(recipe).values()] == ["create"]
    assert any("toolkit compile" in note for note in toolkit.plan(recipe).notes)


def test_what_compiles_at_start_is_refused(recipe: Path) -> None:
    recipe.write_text(recipe.read_text().replace("max_num_seqs: 4", "max_num_seqs: 4, compile: at-start"))
    with pytest.raises(UsageError, match="is compiled when its containers start"):
        compile_plan(recipe)


@pytest.mark.parametrize("instance_type", ["ml.g6.12xlarge", "ml.inf2.48xlarge"])
def test_the_checks_speak_before_compiling_does(recipe: Path, instance_type: str) -> None:
    recipe.write_text(recipe.read_text().replace("ml.trn2.48xlarge", instance_type))
    with pytest.raises(RecipeError, match=instance_type):
        compile_plan(recipe)


def test_the_command_answers_with_one_document(recipe: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TOOLKIT_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> dict[str, Any]:
        done = subprocess.run([TOOLKIT, "compile", recipe, *arguments, "--json"], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    assert {action["verb"] for action in run("--dry-run")["actions"]} == {"create"}
    assert run()["actions"][-1]["kind"] == "TrainingJob"
    assert run("--no-wait")["actions"][-1]["verb"] == "reuse"
