"""What goes wrong on the way to the stand-in, and what its journal says of it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from standin import Crash, StandIn, When, crash_at
from standin_user import User

ONCE = Config(retries={"mode": "standard", "total_max_attempts": 1})


def attempts(standin: StandIn, operation: str) -> int:
    return [call.operation for call in standin.calls].count(operation)


def test_calls_are_journalled_in_order_with_their_requests(standin: StandIn, user: User) -> None:
    standin.calls.clear()
    user.session.client("s3").put_object(Bucket="weights-us-west-2", Key="a b/ü", Body=b"12")
    user.session.client("iam").get_role(RoleName="execution")
    user.sagemaker.list_models(NameContains="m")
    assert [str(call) for call in standin.calls] == ["s3:PutObject", "iam:GetRole", "sagemaker:ListModels"]
    put, get, listed = (call.request for call in standin.calls)
    assert (put["Bucket"], put["Key"]) == ("weights-us-west-2", "a b/ü")
    assert get == {"RoleName": "execution"}
    assert listed == {"NameContains": "m"}


def test_throttling_passes_with_retries(standin: StandIn) -> None:
    standin.faults.throttle("ListModels", times=2)
    assert standin.session().client("sagemaker").list_models()["Models"] == []
    assert attempts(standin, "ListModels") == 3


def test_throttling_that_lasts_is_an_error(standin: StandIn) -> None:
    standin.faults.throttle("*", times=5)
    with pytest.raises(ClientError, match=r"\(ThrottlingException\) .*reached max retries: 4"):
        standin.session().client("sagemaker").list_models()


def test_in_a_storm_every_call_is_refused_before_it_gets_through(standin: StandIn) -> None:
    standin.faults.storm("ThrottlingException", times=2)
    session = standin.session()
    session.client("sagemaker").list_models()
    session.client("s3").list_buckets()
    assert (attempts(standin, "ListModels"), attempts(standin, "ListBuckets")) == (3, 3)


@pytest.mark.parametrize("status", [500, 503])
def test_errors_of_the_service_pass_with_retries(standin: StandIn, status: int) -> None:
    standin.faults.fail("sagemaker:ListModels", "InternalFailure", status=status)
    assert standin.session().client("sagemaker").list_models()["Models"] == []


ASK: dict[str, Callable[[Any], Any]] = {
    "sagemaker": lambda session: session.client("sagemaker").list_models(),
    "iam": lambda session: session.client("iam").list_roles(),
    "s3": lambda session: session.client("s3").list_buckets(),
    "logs": lambda session: session.client("logs").describe_log_groups(),
}


@pytest.mark.parametrize("service", ASK)
def test_an_expired_token_is_said_in_the_protocol_of_the_service(standin: StandIn, service: str) -> None:
    standin.faults.expire_token()
    with pytest.raises(ClientError) as caught:
        ASK[service](standin.session())
    code = caught.value.response["Error"]["Code"]
    assert code == ("ExpiredToken" if service in ("iam", "s3") else "ExpiredTokenException")


@pytest.mark.parametrize("service", ASK)
def test_a_denied_action_is_said_in_the_protocol_of_the_service(standin: StandIn, service: str) -> None:
    standin.account.denied = {
        "sagemaker:ListModels",
        "iam:ListRoles",
        "s3:ListAllMyBuckets",
        "logs:DescribeLogGroups",
    }
    with pytest.raises(ClientError, match=f"not authorized to perform: {service}:") as caught:
        ASK[service](standin.session())
    code = caught.value.response["Error"]["Code"]
    assert code == ("AccessDenied" if service in ("iam", "s3") else "AccessDeniedException")


@pytest.mark.parametrize(("when", "exists"), [("before", False), ("after", True)])
def test_a_cut_connection_leaves_open_whether_the_call_took_effect(
    standin: StandIn, user: User, when: When, exists: bool
) -> None:
    standin.faults.drop("DeleteModel", when=when)
    user.create_model("m")
    with pytest.raises(ConnectionClosedError):
        user.session.client("sagemaker", config=ONCE).delete_model(ModelName="m")
    assert ("sagemaker model m" not in standin.leftovers()) is exists


def test_a_create_that_took_effect_meets_itself_when_it_is_tried_again(standin: StandIn, user: User) -> None:
    standin.faults.drop("CreateModel", when="after")
    with pytest.raises(ClientError, match="Cannot create already existing model"):
        user.create_model("m")
    assert attempts(standin, "CreateModel") == 2


@pytest.mark.parametrize(("when", "made"), [("before", 1), ("after", 2)])
def test_a_crash_stops_a_session_for_good(standin: StandIn, when: When, made: int) -> None:
    session = standin.session()
    point = crash_at(session, 2, when)
    iam, trust = session.client("iam"), "{}"
    iam.create_role(RoleName="r1", AssumeRolePolicyDocument=trust)
    for name in ("r2", "r3"):
        with pytest.raises(Crash):
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
    assert len(standin.leftovers()) == made
    assert point.calls == 3


@pytest.mark.parametrize("upload", ["upload_file", "upload_fileobj"])
@pytest.mark.parametrize(("when", "left"), [("before", 1), ("after", 2)])
def test_a_crash_during_an_upload_reaches_the_caller(
    standin: StandIn, user: User, when: When, left: int, upload: str
) -> None:
    session = standin.session()
    crash_at(session, 1, when)
    what = __file__ if upload == "upload_file" else io.BytesIO(b"more")
    with pytest.raises(Crash):
        getattr(session.client("s3"), upload)(what, "weights-us-west-2", "target/more")
    assert len([item for item in standin.leftovers() if item.startswith("s3 object")]) == left


def test_without_a_number_nothing_crashes_and_calls_are_counted(standin: StandIn) -> None:
    session = standin.session()
    point = crash_at(session, 0, "before")
    standin.faults.throttle("ListModels")
    session.client("sagemaker").list_models()
    session.client("iam").list_roles()
    assert point.calls == 2, "attempts are no calls"


def test_another_process_finds_the_stand_in_by_its_environment(standin: StandIn) -> None:
    code = "import boto3; boto3.client('sagemaker').list_models(); boto3.client('s3').list_buckets()"
    environment = {"PATH": os.environ["PATH"], **standin.environment("eu-west-1")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert [(str(call), call.region) for call in standin.calls] == [
        ("sagemaker:ListModels", "eu-west-1"),
        ("s3:ListBuckets", "eu-west-1"),
    ]


def test_after_a_reset_nothing_is_left(standin: StandIn, user: User) -> None:
    user.deploy("ep")
    standin.faults.expire_token()
    standin.account.denied.add("sagemaker:ListModels")
    standin.reset()
    assert standin.leftovers() == []
    assert user.sagemaker.list_models()["Models"] == []
    assert [str(call) for call in standin.calls] == ["sagemaker:ListModels"]
