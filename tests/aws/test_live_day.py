"""The scripted day, rehearsed against the stand-in: with faults, a failing step, and interrupted; then compared."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_images import push_base
from standin import ACCOUNT, PING, StandIn
from standin_answers import three_tokens
from test_train_road import head_files

from toolkit.apply.progress import Silent
from toolkit.images.registry import Registry
from tools.live_day.__main__ import main
from tools.live_day.comparing import compare, mark
from tools.live_day.recording import Recorded, Recorder, read
from tools.live_day.steps import STEPS, Means, Step

# Connections are kept until their clients are collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.fixture
def day(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs the program in an account whose keys look like real ones, and whose autoscaling takes the last copy away."""
    keys = {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "t0k3n" * 9,
    }
    for name, value in {**standin.environment(), **keys, "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    standin.serve(three_tokens)

    def to_zero(_: float) -> None:
        with closing(standin.session().client("sagemaker")) as sagemaker:
            sagemaker.update_inference_component_runtime_config(
                InferenceComponentName="live-day-component", DesiredRuntimeConfig={"CopyCount": 0}
            )
        standin.settle()

    def run(steps: Sequence[Step], *more: str, answer: str = "n") -> int:
        arguments = ["--account", ACCOUNT, "--out", str(tmp_path / "out"), *more]
        return main(arguments, steps=steps, ask=lambda _: answer, pause=to_zero, progress=Silent())

    yield run
    gc.collect()  # while the marks above hold


def first(name: str, do: Callable[[Means], object]) -> list[Step]:
    """The day's steps, before one of which something is done."""

    def both(step: Step) -> Callable[[Means], object]:
        return lambda means: (do(means), step.run(means))

    return [replace(step, run=both(step)) if step.name == name else step for step in STEPS]


def only(*names: str, of: Sequence[Step] = STEPS) -> list[Step]:
    return [step for step in of if step.name in names]


def interrupt(_: Means) -> None:
    raise KeyboardInterrupt


def finished(folder: Path) -> list[str]:
    names: list[str] = json.loads((folder / "out" / "finished.json").read_text())
    return names


def test_the_whole_day_with_throttling_leaves_nothing_and_its_recording_agrees_with_the_stand_in(
    day: Callable[..., int],
    standin: StandIn,
    host: str,
    wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    standin.account.registry.host = host
    standin.training.model = lambda _: head_files()
    with Registry(host) as registry:
        push_base(registry, "base", runs_python=True)
    for operation in ("CreateModel", "UpdateEndpoint", "CreateInferenceComponent", "CreateTrainingJob"):
        standin.faults.throttle(operation, times=2)

    def own_base(means: Means) -> None:
        with means.recipe("train").open("a") as recipe:
            recipe.write(f"container: {{base: '{host}/base:1'}}\n")

    steps = first("failing", lambda _: standin.script("live-day", ["Updating", "RollingBack", "InService"], PING))
    steps = [step if step.name != "train" else first("train", own_base)[-1] for step in steps]
    assert day(steps, "--yes") == 0

    said = capsys.readouterr().out
    assert "nothing is left" in said
    assert [item for item in standin.leftovers() if "live-day" in item] == []
    assert finished(tmp_path) == [step.name for step in STEPS]
    recording = tmp_path / "out" / "recording.jsonl"
    calls = list(read(recording))
    assert {call.step for call in calls} == {"plan", *finished(tmp_path), "remove"}
    repeated = [error["code"] for call in calls if call.operation == "CreateTrainingJob" for error in call.before]
    assert repeated == ["ThrottlingException"] * 2
    written = recording.read_text()
    for secret in (KEY, SECRET, "t0k3n", "moto", str(Path.home()), "Signature", "RequestId"):
        assert secret not in written, secret

    standin.reset()
    assert main(["--compare", str(recording)], open_standin=lambda: standin) == 0, capsys.readouterr().out


def test_the_plan_is_shown_with_its_price_and_nothing_is_made_without_a_yes(
    day: Callable[..., int], standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert day(STEPS) == 2
    shown = capsys.readouterr()
    for step in STEPS:
        assert step.does in shown.out
    (total,) = (float(line.split()[1]) for line in shown.out.splitlines() if line.startswith("together"))
    assert 10 < total < 35
    assert "nothing was done" in shown.err
    assert standin.leftovers() == []


def test_the_account_of_the_credentials_must_be_the_one_that_is_named(
    day: Callable[..., int], standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert day(STEPS, "--account", "999999999999", "--yes") == 2
    assert f"your credentials are of account {ACCOUNT}, and --account is 999999999999" in capsys.readouterr().err
    assert [str(call) for call in standin.calls] == ["sts:GetCallerIdentity"]


def test_a_step_that_fails_is_named_and_all_is_removed(
    day: Callable[..., int], standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standin.faults.fail("CreateInferenceComponent", "ValidationException", "not in this account")
    assert day(only("deploy", "component", "zero"), "--yes") == 1
    said = capsys.readouterr().out
    assert "component failed: " in said
    assert "not in this account" in said
    assert "== zero" not in said
    assert standin.leftovers() == []
    assert finished(tmp_path) == ["deploy"]


def test_an_update_that_should_fail_and_does_not_is_a_failure(
    day: Callable[..., int], standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert day(STEPS, "--yes", "--only", "failing") == 1
    assert "failing failed: an update whose engine cannot start was taken" in capsys.readouterr().out
    assert standin.leftovers() == []


def test_an_interrupted_day_leaves_nothing_and_goes_on_with_what_the_step_needs(
    day: Callable[..., int], standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("deploy", "canary", "rollback", "component")
    assert day(only(*names, of=first("rollback", interrupt)), "--yes") == 130
    assert standin.leftovers() == []
    assert finished(tmp_path) == ["deploy", "canary"]
    assert f"To go on: python -m tools.live_day --account {ACCOUNT} --out" in capsys.readouterr().out

    assert day(only(*names), "--yes") == 0
    again = [line.split()[1].rstrip(":") for line in capsys.readouterr().out.splitlines() if line.startswith("== ")]
    assert again == ["deploy", "canary", "rollback", "component", "remove"]
    assert standin.leftovers() == []

    standin.calls.clear()
    assert day(only(*names), "--yes") == 2
    assert "all steps went well" in capsys.readouterr().err


def test_what_cannot_be_removed_is_listed_until_it_is(
    day: Callable[..., int], standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    standin.account.denied.add("sagemaker:DeleteEndpoint")
    assert day(only("deploy"), "--yes") == 1
    said = capsys.readouterr().out
    assert "could not be removed" in said
    assert "\n  Endpoint live-day\n" in said
    assert "--only remove" in said

    standin.account.denied.clear()
    assert day(only("deploy"), "--yes", "--only", "remove") == 0
    assert standin.leftovers() == []


def test_what_a_recording_knows_better_is_told(standin: StandIn) -> None:
    role = {"RoleName": "one", "AssumeRolePolicyDocument": '{"Version": "2012-10-17", "Statement": []}'}
    weights: dict[str, Any] = {"Bucket": "weights", "CreateBucketConfiguration": {"LocationConstraint": "us-west-2"}}

    def call(service: str, operation: str, request: dict[str, Any], **told: Any) -> Recorded:
        return Recorded("deploy", "us-west-2", service, operation, request, told.pop("status", 200), **told)

    def refused(code: str) -> dict[str, Any]:
        return {"status": 400, "error": {"code": code, "message": "no"}}

    found = compare(
        [
            call("iam", "CreateRole", role, **refused("LimitExceeded")),
            call("iam", "GetRole", {"RoleName": "two"}, answer={}),
            call("iam", "GetRole", {"RoleName": "three"}, **refused("AccessDenied")),
            call("s3", "CreateBucket", weights, **refused("OperationAborted")),
            call("s3", "CreateBucket", weights, answer={"BucketNovelty": {"Is": "new"}}),
            call("s3", "CreateBucket", weights, status=0, error={"code": "ReadTimeoutError", "message": "late"}),
        ],
        standin,
    )
    assert not found.agrees
    assert found.too_mild == ["iam:CreateRole: LimitExceeded: no"]
    assert [line.partition(": ")[0] for line in found.too_strict] == ["iam:GetRole"]
    assert found.other_code == ["iam:GetRole: AccessDenied: no; here NoSuchEntity"]
    assert found.for_a_while == ["s3:CreateBucket: OperationAborted: no"]
    assert found.lacking == {"s3:CreateBucket BucketNovelty"}
    assert (found.taken, found.refused) == (1, 1)


def test_a_refusal_that_both_know_makes_its_rule_seen_live(standin: StandIn, tmp_path: Path) -> None:
    request = {
        "MetricName": "m",
        "AlarmName": "a",
        "Namespace": "n",
        "ComparisonOperator": "GreaterThanThreshold",
        "Statistic": "Sum",
        "Threshold": 1,
        "Period": 60,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 2,
    }
    error = {"code": "ValidationError", "message": "DatapointsToAlarm should be less than or equal EvaluationPeriods"}
    found = compare([Recorded("", "us-west-2", "cloudwatch", "PutMetricAlarm", request, 400, error=error)], standin)
    assert found.seen, list(found.lines())
    (name,) = found.seen

    rules = "- id: other\n  says: x\n- id: {}\n  says: y\n{}# a remark\n- id: last\n"
    file = tmp_path / "rules.yaml"
    file.write_text(rules.format(name, "  base: z\n"))
    assert mark([name], tmp_path) == [name]
    assert file.read_text() == rules.format(f"{name}\n  known: seen live", "  base: z\n")
    assert mark([name], tmp_path) == []


def test_a_recording_names_no_secret_and_nobody(standin: StandIn, tmp_path: Path) -> None:
    session, path = standin.session(), tmp_path / "recording.jsonl"
    recorder = Recorder(path)
    recorder.know_caller({"Arn": "arn:aws:sts::345678901234:assumed-role/PlatformAdmins/jane.doe@example.org"})
    recorder.attach(session)
    secrets = {
        "account": "arn:aws:iam::345678901234:role/toolkit-live-day",
        "key": "ASIAIOSFODNN7EXAMPLE",
        "role id": "AROADBQP57FF2AEXAMPLE",
        "url": "https://b.s3.amazonaws.com/k?X-Amz-Credential=ASIAX%2F2026&X-Amz-Signature=0a1b2c3d4e",
        "signature": "AWS4-HMAC-SHA256 Credential=345678901234/x, Signature=5f6e7d8c",
        "request": "denied (Request ID: 7d1c3f8e-1111-2222; Host ID: q0w9e8r7t6y5=)",
        "caller": "User: arn:aws:sts::345678901234:assumed-role/PlatformAdmins/jane.doe@example.org is not authorized",
        "name": "made by PlatformAdmins",
        "user": "arn:aws:iam::345678901234:user/team/john",
        "mail": "ask john@example.net",
        "token": "hf_" + "aB3" * 12,
    }
    iam: Any = session.client("iam")
    tags = [{"Key": key, "Value": value} for key, value in secrets.items()]
    trust = '{"Version": "2012-10-17", "Statement": []}'
    with pytest.raises(iam.exceptions.ClientError):
        iam.create_role(RoleName="r", AssumeRolePolicyDocument=trust, Tags=tags, Description="345678901234.dkr.ecr")
    standin.faults.fail("GetRole", "AccessDenied", secrets["caller"], times=1)
    with pytest.raises(iam.exceptions.ClientError):
        iam.get_role(RoleName="r")
    s3: Any = session.client("s3")
    s3.create_bucket(Bucket="bodies", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket="bodies", Key="k", Body=b"a secret body")
    s3.get_object(Bucket="bodies", Key="k")["Body"].close()
    session.client("ecr").get_authorization_token()

    written = path.read_text()
    for secret in (
        "345678901234",
        *("ASIA", "AROA", "0a1b2c3d4e", "5f6e7d8c", "7d1c3f8e", "q0w9e8r7", "PlatformAdmins", "jane", "john", "hf_aB3"),
        *("a secret body", "RequestId", "HostId"),
    ):
        assert secret not in written, secret
    assert "role/toolkit-live-day" in written
    *_, token = read(path)
    assert token.operation == "GetAuthorizationToken"
    assert {item["authorizationToken"] for item in token.answer["authorizationData"]} == {"<hidden>"}
