"""Train a head in a SageMaker training job: its request, its role, spot interruptions, and where the head goes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from reports import example
from rights import needless, never_allowed, not_allowed
from small_images import push_base
from standin import StandIn
from standin_training import JobScript

import toolkit
from toolkit.api.served_card import write_served
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import RecipeError, ToolkitError, UsageError
from toolkit.images.registry import Registry
from toolkit.loading import load
from toolkit.training.job import TrainingJob

MODELS = Path(__file__).parents[2] / "recipes" / "tiny" / "models"
BUCKET = "toolkit-123456789012-us-west-2"
RECIPE = """\
name: my-head
target: {{model: {models}/target}}
training:
  data: [./chats.jsonl, s3://captured/requests/]
  start_from: {models}/p-eagle
  layers: 2
  depth: 10
  max_length: 1024
  steps: 3
  instance_type: ml.p5.48xlarge
  instance_count: 2
  spot: true
  max_hours: 2
speculation: {{method: p-eagle, model: {head}, num_speculative_tokens: 7}}
engine: {{version: 0.30.0, max_model_len: 1024, max_num_seqs: 16, max_num_batched_tokens: 2048}}
container: {{base: '{host}/base:1'}}
platform: {{name: sagemaker, role: create, instance_types: [ml.g6e.2xlarge], kms_key: abc}}
"""
INTERRUPTED = ("Starting", "Training", "Interrupted", "Starting", "Training", "Uploading", "Completed")


@pytest.fixture
def recipe(standin: StandIn, host: str, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose job leaves the tiny P-EAGLE head."""
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    for name, value in {**standin.environment(), **pip, "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    standin.account.registry.host = host
    standin.training.model = lambda _: head_files()
    with Registry(host) as registry:
        push_base(registry, "base", runs_python=True)
    s3: Any = standin.session().client("s3")
    s3.create_bucket(Bucket="captured", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket="captured", Key="requests/1.jsonl", Body=b"{}")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "Count to nine."}\n')
    return written(tmp_path, host, "./made/head")


def written(folder: Path, host: str, head: str) -> Path:
    path = folder / "my-head.yaml"
    path.write_text(RECIPE.format(models=MODELS, head=head, host=host))
    return path


def head_files(**changes: Any) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in (MODELS / "p-eagle").iterdir()}
    config = {**json.loads(files["config.json"]), **changes}
    files |= {"config.json": json.dumps(config).encode(), "report.json": b'{"held_out_loss": 1.5}'}
    return {f"head/{name}": content for name, content in files.items()}


def objects(standin: StandIn, prefix: str) -> list[str]:
    found: Any = standin.session().client("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [item["Key"] for item in found.get("Contents", [])]


def test_the_plan_says_what_it_costs_and_what_the_job_is(recipe: Path) -> None:
    plan = toolkit.train_plan(recipe)
    kinds = [action.kind for action in plan.actions]
    assert kinds[0] == "Bucket"
    assert kinds[-1] == "TrainingJob"
    assert {"Repository", "Image", "Weights", "Role", "RolePolicy"} < set(kinds)
    request: Mapping[str, Any] = plan.actions[-1].request
    assert request["ResourceConfig"] == {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2, "VolumeSizeInGB": 500}
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 14400}
    assert request["EnableNetworkIsolation"] is True
    assert "Environment" not in request
    channels = [item["ChannelName"] for item in request["InputDataConfig"]]
    assert channels == ["target", "start", "data-0", "data-1", "job"]
    assert any("at most 2 h" in note and "estimate" in note for note in plan.notes)
    less = toolkit.train_plan(recipe, discount_percent=50)
    assert less.price_per_hour == (plan.price_per_hour or 0) / 2
    assert any("$/h with your discount of 50 %, at most 2 h" in note for note in less.notes)


def test_the_job_reads_its_channels(recipe: Path) -> None:
    plan = toolkit.train_plan(recipe)
    (text,) = [action.request["Content"]["job.json"] for action in plan.actions if "Content" in action.request]
    job = TrainingJob.model_validate_json(text)
    data = "/opt/ml/input/data"
    assert (job.target, job.start_from) == (f"{data}/target", f"{data}/start")
    assert job.data == (f"{data}/data-0", f"{data}/data-1")
    assert (job.checkpoints, job.head) == ("/opt/ml/checkpoints", "/opt/ml/model/head")
    assert job.num_speculative_tokens == 7


def test_the_roles_writing_ends_at_the_jobs_own_prefix(recipe: Path) -> None:
    (policy,) = [
        json.loads(action.request["PolicyDocument"])
        for action in toolkit.train_plan(recipe).actions
        if action.kind == "RolePolicy"
    ]
    written_to = [
        resource
        for statement in policy["Statement"]
        if "s3:PutObject" in statement["Action"]
        for resource in ([statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"])
    ]
    assert all(f"{BUCKET}/training/my-head/" in resource for resource in written_to)


def test_interrupted_on_spot_it_completes_and_the_head_is_fetched(recipe: Path, standin: StandIn) -> None:
    standin.training.script = JobScript(INTERRUPTED, log=('train: {"stage": "train", "done": 3, "total": 3}',))
    standin.training.container = lambda _: {"step": b"2"}
    seen: list[Mapping[str, bytes]] = []

    def model(checkpoints: Mapping[str, bytes]) -> dict[str, bytes]:
        seen.append(checkpoints)
        return head_files()

    standin.training.model = model
    run = toolkit.train(recipe, progress=Silent())
    assert seen == [{"step": b"2"}]
    assert (run.status, run.metrics) == ("trained", {"held_out_loss": 1.5})
    assert (recipe.parent / "made" / "head" / "config.json").is_file()
    assert toolkit.train(recipe, progress=Silent()).status == "reused"
    assert len(standin.training.started) == 1


PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours"


def with_machines(recipe: Path, keys: str) -> Path:
    """The recipe, whose job has other machines."""
    text = recipe.read_text()
    (before,) = re.findall(r"  instance_type: .*\n  instance_count: .*\n  spot: .*\n", text)
    recipe.write_text(text.replace(before, keys))
    return recipe


def buy(standin: StandIn, offering: str) -> None:
    client: Any = standin.session().client("sagemaker")
    client.create_training_plan(TrainingPlanName="ours", TrainingPlanOfferingId=offering)


@pytest.mark.parametrize(
    ("keys", "resources", "encrypted"),
    [
        (f"  instance_type: ml.p5.48xlarge\n  training_plan: {PLAN}\n  keep_alive_minutes: 30\n",
         {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "TrainingPlanArn": PLAN,
          "KeepAlivePeriodInSeconds": 1800}, None),
        (f"  instance_types:\n  - {{type: ml.p5.48xlarge, training_plan: '{PLAN}'}}\n"
         "  - {type: ml.p4d.24xlarge, count: 2}\n  encrypt_traffic: true\n",
         {"InstancePreferences": [
             {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "TrainingPlanArns": [PLAN]},
             {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
         ]}, True),
    ],
)  # fmt: skip
def test_on_reserved_machines_kept_warm_or_of_a_list_it_trains(
    recipe: Path, standin: StandIn, keys: str, resources: Mapping[str, Any], encrypted: bool | None
) -> None:
    buy(standin, "jobs-later")
    run = toolkit.train(with_machines(recipe, keys), progress=Silent())
    (started,) = standin.training.started
    assert run.status == "trained"
    assert started["ResourceConfig"] == {**resources, "VolumeSizeInGB": 500}
    assert started.get("EnableInterContainerTrafficEncryption") is encrypted


def test_a_plan_that_is_for_endpoints_is_refused(recipe: Path, standin: StandIn) -> None:
    buy(standin, "endpoints")
    path = with_machines(recipe, f"  instance_type: ml.p5.48xlarge\n  training_plan: {PLAN}\n")
    with pytest.raises(ToolkitError, match="A training plan for SageMaker endpoints can be used exclusively"):
        toolkit.train(path, progress=Silent())
    assert standin.training.started == []


def test_training_takes_the_rights_that_are_listed(recipe: Path, standin: StandIn) -> None:
    toolkit.train(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert {call for call in not_allowed(standin, load(recipe)) if "captured" not in call[1]} == set()


def test_the_jobs_role_takes_all_that_it_is_given(recipe: Path, standin: StandIn) -> None:
    """Whether SageMaker deletes in S3 what a job deletes, and ends uploads that fail, is not documented."""
    toolkit.train(recipe, progress=Silent())
    assert never_allowed(standin) == set()
    doubtful = {"s3:DeleteObject", "s3:AbortMultipartUpload"}
    assert {action for action, _ in needless(standin)} <= doubtful
    assert any(access.action == "s3:ListBucket" for access in standin.account.iam.refused)  # too early


def test_a_head_goes_to_s3_and_into_the_lock(recipe: Path, standin: StandIn, host: str) -> None:
    path = written(recipe.parent, host, f"s3://{BUCKET}/heads/mine/")
    run = toolkit.train(path, progress=Silent())
    assert run.head == f"s3://{BUCKET}/heads/mine/"
    assert "heads/mine/config.json" in objects(standin, "heads/mine/")
    assert toolkit.plan(path).changes  # the lock knows the head, so that it can be deployed


def test_a_head_from_elsewhere_in_s3_is_only_replaced_when_told_to_and_no_job_is_billed_for_the_refusal(
    recipe: Path, standin: StandIn, host: str
) -> None:
    s3: Any = standin.session().client("s3")
    s3.put_object(Bucket="captured", Key="heads/mine/config.json", Body=b"{}")
    path = written(recipe.parent, host, "s3://captured/heads/mine/")
    with pytest.raises(UsageError, match="s3://captured/heads/mine/ is not empty") as raised:
        toolkit.train(path, progress=Silent())
    assert "--overwrite" in raised.value.hint
    assert standin.training.started == []
    toolkit.train(path, overwrite=True, progress=Silent())
    assert s3.get_object(Bucket="captured", Key="heads/mine/config.json")["Body"].read() != b"{}"


def test_a_head_that_took_the_place_in_s3_since_is_not_replaced(recipe: Path, standin: StandIn, host: str) -> None:
    s3: Any = standin.session().client("s3")
    path = written(recipe.parent, host, "s3://captured/heads/mine/")
    toolkit.train(path, progress=Silent())
    s3.put_object(Bucket="captured", Key="heads/mine/model.safetensors", Body=b"another", ChecksumAlgorithm="SHA256")
    with pytest.raises(UsageError, match="does not hold the head of this command"):
        toolkit.train(path, progress=Silent())
    assert s3.get_object(Bucket="captured", Key="heads/mine/model.safetensors")["Body"].read() == b"another"


def test_a_copy_to_s3_that_was_interrupted_is_completed(recipe: Path, standin: StandIn, host: str) -> None:
    s3: Any = standin.session().client("s3")
    path = written(recipe.parent, host, f"s3://{BUCKET}/heads/mine/")
    toolkit.train(path, progress=Silent())
    s3.delete_object(Bucket=BUCKET, Key="heads/mine/config.json")
    assert toolkit.train(path, progress=Silent()).status == "reused"
    assert "heads/mine/config.json" in objects(standin, "heads/mine/")


def test_what_is_measured_of_a_head_in_s3_is_in_its_card_there(recipe: Path, standin: StandIn, host: str) -> None:
    trained = toolkit.train(written(recipe.parent, host, f"s3://{BUCKET}/heads/mine/"), progress=Silent())
    before = objects(standin, "heads/mine/")
    assert write_served(trained, example(), progress=Silent()) == f"s3://{BUCKET}/heads/mine/README.md"
    assert objects(standin, "heads/mine/") == before
    s3: Any = standin.session().client("s3")
    card = s3.get_object(Bucket=BUCKET, Key="heads/mine/README.md")["Body"].read().decode()
    assert card.startswith((MODELS / "p-eagle" / "README.md").read_text())
    assert "## Served\n\nMeasured by toolkit" in card
    assert "vllm 0.30.0, the target's own dtype, ml.g6e.2xlarge" in " ".join(card.split())


def test_a_head_that_fails_its_checks_is_not_copied(recipe: Path, standin: StandIn, host: str) -> None:
    standin.training.model = lambda _: head_files(target_hidden_size=512)
    path = written(recipe.parent, host, f"s3://{BUCKET}/heads/mine/")
    with pytest.raises(RecipeError, match="hidden size 512"):
        toolkit.train(path, progress=Silent())
    assert objects(standin, "heads/mine/") == []


def test_a_failed_job_is_tried_again_under_another_name_from_the_same_checkpoints(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    standin.training.script = JobScript(("Training", "Failed"), reason="AlgorithmError: the loss is not a number")
    assert run(["train", str(recipe), "--deploy", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "the loss is not a number" in said
    assert f"To go on from its last checkpoint: toolkit train {recipe} --deploy --yes" in said
    standin.training.script = JobScript()
    trained = toolkit.train(recipe, progress=Silent())
    first, second = standin.training.started
    assert trained.job == f"{first['TrainingJobName']}-2"
    assert first["CheckpointConfig"] == second["CheckpointConfig"]


def test_what_is_deployed_after_training_is_asked_about_as_any_deployment_is(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    toolkit.train(recipe, progress=Silent())
    assert run(["train", str(recipe), "--deploy"]) == 2
    assert "Deploy this to" in capsys.readouterr().err
    assert toolkit.status(platform="sagemaker").endpoints == ()


def test_the_question_about_the_price_names_the_methods_that_are_compared(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(re.sub("  start_from: .*\n", "", recipe.read_text()))
    assert run(["train", str(recipe), "--compare", "p-eagle,eagle3"]) == 2
    assert ", for heads of p-eagle, eagle3. Go on?" in " ".join(capsys.readouterr().err.split())
    assert standin.training.started == []


def test_a_registered_version_names_the_job_of_its_head(recipe: Path, standin: StandIn) -> None:
    run = toolkit.train(recipe, progress=Silent())
    made = toolkit.register(recipe, group="heads", progress=Silent())
    sagemaker: Any = standin.session().client("sagemaker")
    found = sagemaker.describe_model_package(ModelPackageName=made.arn)
    job = sagemaker.describe_training_job(TrainingJobName=run.job)["TrainingJobArn"]
    assert found["CustomerMetadataProperties"]["toolkit:training-job"] == job
    card = json.loads(found["ModelCard"]["ModelCardContent"])
    assert card["training_details"]["training_job_details"]["training_arn"] == job
    assert found["SecurityConfig"] == {"KmsKeyId": "abc"}


@pytest.mark.parametrize("head", ["./made/head", f"s3://{BUCKET}/heads/mine/"])
def test_a_registered_version_names_the_job_of_the_comparison_that_its_head_is_from(
    recipe: Path, standin: StandIn, host: str, head: str
) -> None:
    """And none once the head is another."""
    path = written(recipe.parent, host, head)
    plain = re.sub("  start_from: .*\n", "", path.read_text())
    path.write_text(plain)
    alone = toolkit.train(path, progress=Silent())
    standin.training.model = lambda _: compared_files()
    run = toolkit.train(path, compare=("p-eagle", "eagle3"), take="eagle3", overwrite=True, progress=Silent())
    assert run.job != alone.job
    assert toolkit.register(path, group="heads", progress=Silent()).training_job == run.job
    path.write_text(plain.replace(head, f"{MODELS}/p-eagle"))
    assert toolkit.register(path, group="others", progress=Silent()).training_job == ""


def compared_files() -> dict[str, bytes]:
    report = {
        "acceptance_length": 4.0, "acceptance_length_low": 3.0, "acceptance_length_high": 5.0,
        "held_out_conversations": 2, "by_source": [], "by_conversation": [[0, 40, 10], [1, 80, 20]],
        "num_speculative_tokens": 7, "seconds": 60, "steps": 3, "ended": "",
    }  # fmt: skip
    heads = {method: (MODELS / method).iterdir() for method in ("p-eagle", "eagle3")}
    files = {f"head/{method}/{path.name}": path.read_bytes() for method, paths in heads.items() for path in paths}
    return files | {f"head/{method}/report.json": json.dumps(report).encode() for method in heads}
