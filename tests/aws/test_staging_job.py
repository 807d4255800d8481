"""Weights that a job in the account stages: its commands are run for real, on the stand-in's S3 and a hub here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cfnlint import lint
from hub import COMMIT, TOKEN, Hub, hub
from standin import ACCOUNT, Crash, StandIn
from standin_caller import accesses_of
from standin_machine import Machine

from toolkit.apply.progress import Silent
from toolkit.errors import BuildError, PlatformError
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import template
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.platform import SageMakerPlatform
from toolkit.platforms.sagemaker.staging_job import stage_in_account, staging_project
from toolkit.recipe.content import PART_BYTES

BUCKET, PREFIX, MARK = f"toolkit-{ACCOUNT}-us-west-2", "weights/target-0123/", "staged/target-0123"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234abcd"
CONTENT = random.Random(5).randbytes(PART_BYTES + 1000)
REQUEST = {
    "Bucket": BUCKET,
    "Prefix": PREFIX,
    "Hub": "org/target",
    "Revision": COMMIT,
    "Mark": MARK,
    "InAccount": {"Bytes": len(CONTENT)},
}


class Lines(Silent):
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, text: str, detail: str = "") -> None:
        self.shown.append(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the hub has."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_bytes(CONTENT)
    return tmp_path / "model"


@pytest.fixture
def server(folder: Path) -> Iterator[Hub]:
    with hub({"org/target": folder}) as server:
        yield server


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    clients = Clients(standin.session())
    clients.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return clients


@pytest.fixture
def machine(standin: StandIn, server: Hub, tmp_path: Path) -> Machine:
    (tmp_path / "machine").mkdir()
    return Machine(standin, tmp_path / "machine", {"HF_ENDPOINT": server.url})


def stage(clients: Clients, sleep: Callable[[float], None], **changes: str) -> list[str]:
    """Stage in the account; what was shown."""
    lines = Lines()
    stage_in_account(clients, {**REQUEST, **changes}, lines, sleep)
    return lines.shown


def objects(clients: Clients) -> dict[str, bytes]:
    listed = clients.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {item["Key"]: clients.s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in listed}


def test_the_job_puts_the_files_into_s3_and_nothing_else_stays(clients: Clients, machine: Machine) -> None:
    shown = stage(clients, machine.sleep)
    found = objects(clients)
    assert json.loads(found.pop(MARK))["complete"] is True
    assert found == {f"{PREFIX}config.json": b"{}", f"{PREFIX}model.safetensors": CONTENT}
    assert "codebuild: BUILD" in shown
    assert "[Container] Phase complete: SUCCEEDED" in shown


def test_the_road_has_the_job_do_it(clients: Clients, machine: Machine, standin: StandIn) -> None:
    platform = SageMakerPlatform(clients, sleep=machine.sleep)
    platform.execute(Action("Weights", "target-0123", "create", "does not exist", REQUEST), Silent())
    assert len(standin.codebuild.started) == 1
    assert objects(clients)[f"{PREFIX}model.safetensors"] == CONTENT


@pytest.mark.parametrize("secret", [None, "hub"])
def test_a_gated_model_takes_a_secret_that_the_role_reads(
    clients: Clients, standin: StandIn, machine: Machine, server: Hub, secret: str | None
) -> None:
    clients.secretsmanager.create_secret(Name="hub", SecretString=TOKEN)
    server.gated.add("org/target")
    if secret is None:
        with pytest.raises(PlatformError, match="answered 401") as refused:
            stage(clients, machine.sleep)
        assert "platform: {hub_token_secret: NAME}" in refused.value.hint
        return
    shown = stage(clients, machine.sleep, HubTokenSecret=secret)
    assert f"{PREFIX}model.safetensors" in objects(clients)
    assert TOKEN not in "".join(shown)
    sent = [call.request for call in standin.calls if call.service == "codebuild"]
    assert TOKEN not in str(sent)
    assert not any("environmentVariablesOverride" in item for item in standin.codebuild.started)


def test_the_role_may_do_what_a_job_does_and_no_more(clients: Clients, standin: StandIn, machine: Machine) -> None:
    """With a token, a key, and an upload to carry on; logs and source are CodeBuild's own affair."""
    clients.secretsmanager.create_secret(Name="hub", SecretString=TOKEN)
    begun = clients.s3.create_multipart_upload(
        Bucket=BUCKET, Key=f"{PREFIX}model.safetensors", ChecksumAlgorithm="SHA256"
    )
    assert begun["UploadId"]
    before = len(standin.calls)
    stage(clients, machine.sleep, HubTokenSecret="hub", KmsKeyId=KEY)
    asked = {access.action for call in standin.calls[before:] for access in accesses_of(call)}
    allowed = {action: item["Resource"] for item in machine.rights for action in item["Action"]}
    unasked = {action for action in allowed if action not in asked and not action.startswith("logs:")}
    # Of an object in a version, and of what S3 itself asks: parts are encrypted (its guide, mpuAndPermissions).
    assert unasked == {"s3:GetObjectVersion", "s3:AbortMultipartUpload", "kms:Decrypt"}
    assert allowed["secretsmanager:GetSecretValue"] == [f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:hub-*"]
    assert allowed["kms:GenerateDataKey"] == [KEY]
    assert allowed["s3:PutObject"] == [f"arn:aws:s3:::{BUCKET}/weights/*", f"arn:aws:s3:::{BUCKET}/staged/*"]
    assert not [resources for resources in allowed.values() if "*" in resources]


def test_recipes_with_other_needs_have_other_projects() -> None:
    projects = [staging_project(secret, key) for secret in (None, "hub") for key in (None, KEY)]
    assert len({project.name for project in projects}) == 4
    assert projects[0].name == "toolkit-weights"


def test_who_may_not_make_the_project_is_sent_to_an_admin(clients: Clients, standin: StandIn, machine: Machine) -> None:
    standin.account.denied = {"codebuild:CreateProject"}
    with pytest.raises(BuildError, match="project toolkit-weights is needed, and CreateProject") as refused:
        stage(clients, machine.sleep)
    assert "toolkit build RECIPE --staging-template" in refused.value.hint
    assert objects(clients) == {}


@pytest.mark.parametrize("secret", [None, "hub"])
def test_cloudformation_knows_all_that_the_template_says(secret: str | None) -> None:
    text = json.dumps(template(Account(ACCOUNT, "us-west-2"), staging_project(secret, secret and KEY)))
    assert [f"{found.rule.id}: {found.message}" for found in lint(text, regions=["us-west-2"])] == []


@pytest.mark.parametrize(
    ("code", "hint"), [("AccountLimitExceededException", "remove `staging` under `platform`"), ("InternalFailure", "")]
)
def test_a_job_that_is_refused_leaves_nothing(
    clients: Clients, standin: StandIn, machine: Machine, code: str, hint: str
) -> None:
    standin.faults.fail("StartBuild", code, "Cannot have more than 0 builds in queue for the account", times=20)
    with pytest.raises(PlatformError, match="Cannot have more than 0 builds") as refused, aws_errors("staging"):
        stage(clients, machine.sleep)
    assert hint in refused.value.hint
    assert objects(clients) == {}


def test_the_same_command_follows_the_job_of_one_that_was_killed(
    clients: Clients, standin: StandIn, machine: Machine
) -> None:
    def die(seconds: float) -> None:
        if standin.codebuild.started:
            raise Crash("while the job runs")

    with pytest.raises(Crash):
        stage(clients, die)
    stage(clients, machine.sleep)
    assert len(standin.codebuild.started) == 1
    assert set(objects(clients)) == {f"{PREFIX}config.json", f"{PREFIX}model.safetensors", MARK}


def test_ctrl_c_stops_the_job_and_leaves_nothing_to_pay(clients: Clients, standin: StandIn) -> None:
    def interrupt(seconds: float) -> None:
        if standin.codebuild.started:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage(clients, interrupt)
    assert "StopBuild" in [call.operation for call in standin.calls if call.service == "codebuild"]
    assert objects(clients) == {}


def test_a_job_that_failed_says_why_and_the_next_sends_only_what_is_missing(
    clients: Clients, standin: StandIn, machine: Machine, server: Hub, folder: Path
) -> None:
    (folder / "model.safetensors").rename(folder.parent / "aside")
    stage(clients, machine.sleep)
    (folder.parent / "aside").rename(folder / "model.safetensors")
    clients.s3.put_object(Bucket=BUCKET, Key=MARK, Body=objects(clients)[MARK].replace(b"true", b"false"))
    server.sent.clear()
    server.lie_at = 1
    with pytest.raises(PlatformError, match=r"FAILED in BUILD: .*model.safetensors arrived with") as refused:
        stage(clients, machine.sleep)
    assert "Try again" in refused.value.hint
    assert not [item for item in standin.leftovers() if item.startswith("s3 upload")]
    server.lie_at = None
    stage(clients, machine.sleep)
    assert objects(clients)[f"{PREFIX}model.safetensors"] == CONTENT
    assert "config.json" not in server.sent


def test_a_role_without_a_right_is_named_with_what_prints_its_rights(
    clients: Clients, standin: StandIn, machine: Machine
) -> None:
    stage(clients, machine.sleep)
    role = "toolkit-weights-us-west-2"
    document: Any = clients.iam.get_role_policy(RoleName=role, PolicyName="toolkit-weights")["PolicyDocument"]
    kept = [item for item in document["Statement"] if "s3:PutObject" not in item["Action"]]
    clients.iam.put_role_policy(
        RoleName=role, PolicyName="toolkit-weights", PolicyDocument=json.dumps({**document, "Statement": kept})
    )
    clients.s3.delete_object(Bucket=BUCKET, Key=f"{PREFIX}config.json")
    with pytest.raises(PlatformError, match="stages org/target: FAILED in BUILD") as refused:
        stage(clients, machine.sleep)
    assert f"runs under {role}" in refused.value.hint
    assert "--staging-template" in refused.value.hint
