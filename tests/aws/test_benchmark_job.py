"""SageMaker's own benchmark of an endpoint, on the stand-in: what it asks, what is read, and that nothing stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from standin import ACCOUNT, StandIn
from standin_benchmarks import archive
from standin_user import EVERYTHING, TRUST, User

from toolkit.apply.progress import Silent
from toolkit.errors import EndpointNotFound, PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

SETTINGS = {"tokenizer": "org/target", "concurrency": 4}
PROFILE = {"output_token_throughput": {"unit": "tokens/sec", "avg": 120.5}}
BUCKET = f"toolkit-{ACCOUNT}-us-west-2"


@pytest.fixture
def platform(user: User, standin: StandIn) -> SageMakerPlatform:
    s3: Any = user.session.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    user.deploy("hub")
    standin.account.iam.settle()
    standin.benchmarks.profile = lambda endpoint: archive({**PROFILE, "of": endpoint})
    return SageMakerPlatform(Clients(standin.session()), sleep=lambda _: None)


def nothing_stays(standin: StandIn) -> bool:
    s3: Any = standin.session().client("s3")
    objects = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return not objects and standin.benchmarks.leftovers() == []


def test_a_job_asks_the_endpoint_and_its_profile_is_read(platform: SageMakerPlatform, standin: StandIn) -> None:
    assert platform.benchmark("hub", SETTINGS, Silent()) == {**PROFILE, "of": "hub"}

    (job,) = standin.benchmarks.started
    assert job["BenchmarkTarget"] == {"Endpoint": {"Identifier": "hub"}}
    assert job["Workload"]["parameters"] == SETTINGS
    assert job["Workload"]["benchmark"] == {"type": "aiperf"}
    assert job["RoleArn"].endswith(":role/execution")
    assert job["OutputConfig"]["S3OutputLocation"].startswith(f"s3://{BUCKET}/benchmarks/hub-")
    assert nothing_stays(standin)


def test_without_settings_nothing_is_asked(platform: SageMakerPlatform, standin: StandIn) -> None:
    standin.calls.clear()
    assert platform.benchmark("hub", None, Silent()) is None
    assert standin.calls == []


def test_another_role_and_a_job_that_fails(platform: SageMakerPlatform, standin: StandIn) -> None:
    iam: Any = standin.session().client("iam")
    poor = iam.create_role(RoleName="poor", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]

    with pytest.raises(PlatformError, match=r"AWS's benchmark of hub: AccessDenied: s3:PutObject") as caught:
        platform.benchmark("hub", SETTINGS, Silent(), poor)
    assert "write below s3://toolkit-" in caught.value.hint
    assert "--also-role" in caught.value.hint
    assert nothing_stays(standin)
    iam.put_role_policy(RoleName="poor", PolicyName="all", PolicyDocument=json.dumps(EVERYTHING))
    standin.account.iam.settle()
    assert platform.benchmark("hub", SETTINGS, Silent(), poor)["of"] == "hub"


def test_ctrl_c_stops_the_job(user: User, platform: SageMakerPlatform, standin: StandIn) -> None:
    standin.benchmarks.looks = 9
    waits = iter([KeyboardInterrupt, None, None])

    def wait(_: float) -> None:
        if problem := next(waits):
            raise problem

    stopped = SageMakerPlatform(Clients(standin.session()), sleep=wait)
    with pytest.raises(KeyboardInterrupt):
        stopped.benchmark("hub", SETTINGS, Silent())
    assert [str(call) for call in standin.calls].count("sagemaker:StopAIBenchmarkJob") == 1
    assert nothing_stays(standin)


@pytest.mark.parametrize("left", [archive({})[:20], b"no archive"], ids=["cut", "none"])
def test_an_archive_that_is_broken(left: bytes, platform: SageMakerPlatform, standin: StandIn) -> None:
    standin.benchmarks.profile = lambda _: left
    with pytest.raises(PlatformError, match="cannot be read"):
        platform.benchmark("hub", SETTINGS, Silent())
    assert nothing_stays(standin)


def test_an_endpoint_that_is_not_there(platform: SageMakerPlatform, standin: StandIn) -> None:
    with pytest.raises(EndpointNotFound):
        platform.benchmark("nobody", SETTINGS, Silent())
    assert nothing_stays(standin)
