"""The stand-in refuses training jobs that AWS refuses, and lets them live as AWS does. Nothing was tried live."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from standin import StandIn
from standin_training import JobScript
from standin_user import IMAGE, User

from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.observe import training_status


def request(user: User, name: str = "job", **changes: Any) -> dict[str, Any]:
    """A job that AWS would take; a change of None leaves the key out."""
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://weights-us-west-2/target/"}
    made = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "RoleArn": user.role,
        "InputDataConfig": [{"ChannelName": "target", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": "s3://weights-us-west-2/out"},
        "CheckpointConfig": {"S3Uri": "s3://weights-us-west-2/compiled/", "LocalPath": "/opt/ml/checkpoints"},
        "ResourceConfig": {"InstanceType": "ml.trn2.48xlarge", "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "Environment": {"A": "b"},
        "Tags": [{"Key": "team", "Value": "x"}],
        **changes,
    }
    return {key: value for key, value in made.items() if value is not None}


def refused(words: str) -> Any:
    return pytest.raises(ClientError, match=words)


def stages(user: User, name: str = "job", looks: int = 5) -> list[tuple[str, str]]:
    answers = [user.sagemaker.describe_training_job(TrainingJobName=name) for _ in range(looks)]
    return [(answer["TrainingJobStatus"], answer["SecondaryStatus"]) for answer in answers]


# Rules


def test_a_jobs_name_is_used_once(user: User) -> None:
    """API reference of CreateTrainingJob, TrainingJobName and ResourceInUse; wording from users' reports."""
    user.sagemaker.create_training_job(**request(user))
    with refused("Job name must be unique within an AWS account and region, and a training job with this name already"):
        user.sagemaker.create_training_job(**request(user))


@pytest.mark.parametrize("name", ["a" * 64, "job.1", "-job", "job_1"])
def test_a_name_has_at_most_63_letters_digits_and_hyphens(user: User, name: str) -> None:
    """botocore, TrainingJobName."""
    with refused("TrainingJobName|trainingJobName"):
        user.sagemaker.create_training_job(**request(user, name))


def test_a_value_of_the_environment_has_at_most_512_characters(user: User) -> None:
    """botocore, TrainingEnvironmentValue; hosting takes 1024."""
    user.sagemaker.create_training_job(**request(user, "fits", Environment={"A": "x" * 512}))
    with refused("less than or equal to 512"):
        user.sagemaker.create_training_job(**request(user, Environment={"A": "x" * 513}))


def test_an_environment_has_at_most_100_entries(user: User) -> None:
    """botocore, TrainingEnvironmentMap."""
    with refused("less than or equal to 100"):
        user.sagemaker.create_training_job(**request(user, Environment={f"A{n}": "" for n in range(101)}))


def test_there_are_no_jobs_on_inferentia(user: User) -> None:
    """botocore, TrainingInstanceType."""
    resources = {"InstanceType": "ml.inf2.48xlarge", "InstanceCount": 1}
    with refused("enum value set"):
        user.sagemaker.create_training_job(**request(user, ResourceConfig=resources))


def test_the_role_must_trust_sagemaker(user: User) -> None:
    """API reference of CreateTrainingJob, RoleArn; wording as for models."""
    user.role = "arn:aws:iam::123456789012:role/nobody"
    with refused("Could not assume role"):
        user.sagemaker.create_training_job(**request(user))


def test_the_image_must_be_there(user: User) -> None:
    """API reference of AlgorithmSpecification, TrainingImage; wording as for models."""
    image = "123456789012.dkr.ecr.us-west-2.amazonaws.com/none:1"
    with refused("not found"):
        user.sagemaker.create_training_job(
            **request(user, AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"})
        )


def test_a_channels_data_must_be_there(user: User) -> None:
    """Developer guide, "no objects found under S3 URL"; wording as for models."""
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://weights-us-west-2/none/"}
    channel = {"ChannelName": "target", "DataSource": {"S3DataSource": source}}
    with refused("Could not find model data at s3://weights-us-west-2/none/"):
        user.sagemaker.create_training_job(**request(user, InputDataConfig=[channel]))


def test_channels_have_names_of_their_own(user: User) -> None:
    """API reference of Channel, ChannelName; wording unverified."""
    channels = request(user)["InputDataConfig"] * 2
    with refused("The name of the channel"):
        user.sagemaker.create_training_job(**request(user, InputDataConfig=channels))


def test_a_job_needs_a_stopping_condition(user: User) -> None:
    """API reference of CreateTrainingJob: required but for serverless jobs, though not in botocore's model."""
    with refused("how long a model training job can run"):
        user.sagemaker.create_training_job(**request(user, StoppingCondition=None))


def test_spot_instances_need_a_time_to_wait_that_is_not_shorter_than_the_job(user: User) -> None:
    """API reference of StoppingCondition, MaxWaitTimeInSeconds; wording unverified."""
    for stops in ({"MaxRuntimeInSeconds": 3600}, {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 1800}):
        with refused("must be equal to or greater than MaxRuntimeInSeconds"):
            user.sagemaker.create_training_job(**request(user, EnableManagedSpotTraining=True, StoppingCondition=stops))
    stops = {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 3600}
    with refused("only supported when EnableManagedSpotTraining is set to true"):
        user.sagemaker.create_training_job(**request(user, StoppingCondition=stops))
    user.sagemaker.create_training_job(**request(user, EnableManagedSpotTraining=True, StoppingCondition=stops))


def test_volumes_of_types_with_their_own_disks_take_no_key(user: User) -> None:
    """API reference of ResourceConfig, VolumeKmsKeyId; wording unverified."""
    resources = {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 100}
    with refused("local storage"):
        user.sagemaker.create_training_job(**request(user, ResourceConfig={**resources, "VolumeKmsKeyId": "abc"}))


def test_only_a_job_in_progress_can_be_stopped(user: User) -> None:
    """API reference of StopTrainingJob; wording unverified."""
    user.sagemaker.create_training_job(**request(user))
    stages(user)
    with refused("is in status Completed"):
        user.sagemaker.stop_training_job(TrainingJobName="job")


def test_a_job_that_is_not_there_is_not_found(user: User) -> None:
    """As users report it."""
    with refused("Requested resource not found"):
        user.sagemaker.describe_training_job(TrainingJobName="job")


# Life


def test_a_job_goes_through_its_stages(user: User) -> None:
    user.sagemaker.create_training_job(**request(user))
    assert stages(user) == [
        ("InProgress", "Starting"),
        ("InProgress", "DownloadingTrainingImage"),
        ("InProgress", "Training"),
        ("InProgress", "Uploading"),
        ("Completed", "Completed"),
    ]


def test_what_its_container_leaves_is_in_s3_once_it_has_trained(standin: StandIn, user: User) -> None:
    standin.training.container = lambda environment: {"seen.json": json.dumps(environment).encode()}
    user.sagemaker.create_training_job(**request(user))
    stages(user)
    left = user.session.client("s3").get_object(Bucket="weights-us-west-2", Key="compiled/seen.json")["Body"].read()
    assert json.loads(left) == {"A": "b"}


def test_what_it_writes_is_in_the_log_of_all_jobs(standin: StandIn, user: User) -> None:
    standin.training.script = JobScript(log=("working",))
    user.sagemaker.create_training_job(**request(user))
    stages(user)
    assert user.log("/aws/sagemaker/TrainingJobs") == ["working"]


def test_a_job_that_fails_leaves_a_reason_and_no_files(standin: StandIn, user: User) -> None:
    standin.training.script = JobScript(("Training", "Failed"), reason="AlgorithmError")
    standin.training.container = lambda _: {"artifacts.json": b"{}"}
    user.sagemaker.create_training_job(**request(user))
    assert stages(user, looks=2) == [("InProgress", "Training"), ("Failed", "Failed")]
    assert user.sagemaker.describe_training_job(TrainingJobName="job")["FailureReason"] == "AlgorithmError"
    assert user.session.client("s3").list_objects_v2(Bucket="weights-us-west-2", Prefix="compiled/")["KeyCount"] == 0


def test_a_stopped_job_is_stopping_first(user: User) -> None:
    user.sagemaker.create_training_job(**request(user))
    user.sagemaker.stop_training_job(TrainingJobName="job")
    assert stages(user, looks=2) == [("Stopping", "Stopping"), ("Stopped", "Stopped")]


def test_jobs_are_found_by_a_part_of_their_name_and_their_tags_by_arn(user: User) -> None:
    for name in ("a-1", "a-2", "b-1"):
        user.sagemaker.create_training_job(**request(user, name))
    found = user.sagemaker.list_training_jobs(NameContains="a-", SortBy="Name", SortOrder="Ascending")
    summaries = found["TrainingJobSummaries"]
    assert [item["TrainingJobName"] for item in summaries] == ["a-1", "a-2"]
    tags = user.sagemaker.list_tags(ResourceArn=summaries[0]["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "x"}]


def test_a_job_has_been_in_its_last_stage_since_that_began(standin: StandIn, user: User) -> None:
    user.sagemaker.create_training_job(**request(user))
    began = [datetime(2026, 11, 20, 8, minute, tzinfo=UTC) for minute in (1, 5)]

    def with_times(parsed: Any, **_: object) -> None:
        parsed["SecondaryStatusTransitions"] = [{"Status": "Training", "StartTime": time} for time in began]

    session = standin.session()
    session.events.register("after-call.sagemaker.DescribeTrainingJob", with_times)
    assert training_status(Clients(session), "job").entered == began[-1].timestamp()
