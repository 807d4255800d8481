"""Weights that a job in the account stages: its commands are run for real, on the stand-in's S3 and a hub here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cfnlint import lint
from hub import COMMIT, TOKEN, Hub
from standin import ACCOUNT, Crash, StandIn
from standin_caller import accesses_of
from standin_iam import Rights
from standin_machine import Machine
from standin_policies import Access
from standin_user import clients_with

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
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
TERMS = {"RolePath": "/team", "PermissionsBoundary": BOUNDARY, "Tags": {"team": "search"}}


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
def clients(standin: StandIn) -> Clients:
    return clients_with(standin, BUCKET)


@pytest.fixture
def machine(standin: StandIn, server: Hub, tmp_path: Path) -> Machine:
    (tmp_path / "machine").mkdir()
    return Machine(standin, tmp_path / "machine", {"HF_ENDPOINT": server.url})


def stage(clients: Clients, sleep: Callable[[float], None], **changes: Any) -> list[str]:
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


def execute(clients: Clients, sleep: Callable[[float], None], verb: Any = "create", **changes: Any) -> None:
    """An action on the weights, as `deploy` and `destroy` take it."""
    request = {key: value for key, value in {**REQUEST, **changes}.items() if value is not None}
    SageMakerPlatform(clients, sleep=sleep).execute(Action("Weights", "target-0123", verb, "why", request), Silent())


def die_in(standin: StandIn) -> Callable[[float], None]:
    """A sleep in which we are killed once a job runs."""

    def die(seconds: float) -> None:
        if standin.codebuild.started:
            raise Crash("while the job runs")

    return die


def test_the_road_has_the_job_do_it(clients: Clients, machine: Machine, standin: StandIn) -> None:
    execute(clients, machine.sleep)
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
    assert allowed["secretsmanager:GetSecretValue"] == [f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:hub-??????"]
    another = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:hub-prod-AbCdEf"
    assert Rights.of(machine.rights).refusal(Access("", "secretsmanager:GetSecretValue", another))
    assert allowed["kms:GenerateDataKey"] == [KEY]
    assert allowed["s3:PutObject"] == [f"arn:aws:s3:::{BUCKET}/weights/*", f"arn:aws:s3:::{BUCKET}/staged/*"]
    assert not [resources for resources in allowed.values() if "*" in resources]


def test_recipes_with_other_needs_have_other_projects() -> None:
    projects = [
        staging_project({**REQUEST, "HubTokenSecret": secret, "KmsKeyId": key}, own_bucket)
        for secret in (None, "hub")
        for key in (None, KEY)
        for own_bucket in ("", "team-b")
    ]
    assert len({project.name for project in projects}) == 8
    assert projects[0].name == "toolkit-weights"


def test_a_bucket_of_the_users_own_takes_a_job_too(clients: Clients, standin: StandIn, machine: Machine) -> None:
    """Also where the account has the project of the toolkit's bucket, whose role may not write to it."""
    stage(clients, machine.sleep)
    clients.s3.create_bucket(Bucket="team-b", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    stage(Clients(standin.session(), bucket="team-b"), machine.sleep, Bucket="team-b")
    assert clients.s3.head_object(Bucket="team-b", Key=f"{PREFIX}model.safetensors")["ContentLength"] == len(CONTENT)


def test_who_may_not_make_the_project_is_sent_to_an_admin(clients: Clients, standin: StandIn, machine: Machine) -> None:
    standin.account.denied = {"codebuild:CreateProject"}
    with pytest.raises(BuildError, match="project toolkit-weights is needed, and CreateProject") as refused:
        stage(clients, machine.sleep)
    assert "toolkit build RECIPE --staging-template" in refused.value.hint
    assert objects(clients) == {}


@pytest.mark.parametrize("secret", [None, "hub"])
def test_cloudformation_knows_all_that_the_template_says(secret: str | None) -> None:
    project = staging_project({**REQUEST, "HubTokenSecret": secret, "KmsKeyId": secret and KEY, "InAccount": TERMS})
    text = json.dumps(template(Account(ACCOUNT, "us-west-2"), project))
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


@pytest.mark.parametrize("changes", [{}, {"HubTokenSecret": "hub"}, {"InAccount": None}], ids=["same", "other", "here"])
def test_whoever_stages_next_follows_the_job_of_one_that_was_killed(
    clients: Clients,
    standin: StandIn,
    machine: Machine,
    server: Hub,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
) -> None:
    """Also from another project, or from this machine: nobody sends beside it, and all is there then."""
    with pytest.raises(Crash):
        execute(clients, die_in(standin))
    if "InAccount" in changes:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
    execute(clients, machine.sleep, **changes)
    assert len(standin.codebuild.started) == 1
    assert server.sent["model.safetensors"] < 2 * len(CONTENT)
    leases = {key for key in objects(clients) if key.startswith("leases/")}
    assert set(objects(clients)) - leases == {f"{PREFIX}config.json", f"{PREFIX}model.safetensors", MARK}


def test_a_job_of_other_weights_is_not_waited_for(clients: Clients, standin: StandIn, machine: Machine) -> None:
    with pytest.raises(Crash):
        execute(clients, die_in(standin), Prefix="weights/target-01234/", Mark="staged/target-01234")
    execute(clients, machine.sleep)
    assert len(standin.codebuild.started) == 2
    assert f"{PREFIX}model.safetensors" in objects(clients)


def test_a_job_that_runs_on_does_not_bring_back_weights_that_are_deleted(
    clients: Clients, standin: StandIn, machine: Machine
) -> None:
    with pytest.raises(Crash):
        execute(clients, die_in(standin))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        """While it is being stopped it still writes."""
        slept.append(seconds)
        machine.sleep(seconds)

    execute(clients, sleep, "delete")
    assert slept == [5.0]
    machine.sleep(0.0)
    assert "StopBuild" in [call.operation for call in standin.calls if call.service == "codebuild"]
    assert not [key for key in objects(clients) if not key.startswith("leases/")]


def test_what_a_job_left_whose_project_is_gone_is_removed(clients: Clients, machine: Machine) -> None:
    clients.s3.put_object(Bucket=BUCKET, Key="staging-jobs/target-0123/toolkit-weights-gone.zip", Body=b"")
    execute(clients, machine.sleep)
    assert not [key for key in objects(clients) if key.startswith("staging-jobs/")]


def test_weights_that_are_all_there_need_no_job_and_no_project(
    clients: Clients, standin: StandIn, machine: Machine
) -> None:
    """As for the second of two deployments that planned the same model."""
    stage(clients, machine.sleep)
    standin.calls.clear()
    stage(clients, machine.sleep, HubTokenSecret="hub")
    assert [call.operation for call in standin.calls if call.service in ("codebuild", "iam")] == []


def test_the_role_is_made_as_the_recipe_wants_roles(clients: Clients, machine: Machine) -> None:
    document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    clients.iam.create_policy(PolicyName="boundary", PolicyDocument=document)
    stage(clients, machine.sleep, InAccount=TERMS)
    role: Any = clients.iam.get_role(RoleName="toolkit-weights-us-west-2")["Role"]
    assert role["Arn"] == f"arn:aws:iam::{ACCOUNT}:role/team/toolkit-weights-us-west-2"
    assert role["PermissionsBoundary"]["PermissionsBoundaryArn"] == BOUNDARY
    assert {"Key": "team", "Value": "search"} in role["Tags"]
    (project,) = clients.codebuild.batch_get_projects(names=["toolkit-weights"])["projects"]
    assert project["serviceRole"] == role["Arn"]
    assert {"key": "team", "value": "search"} in project["tags"]


def test_with_a_role_of_the_users_own_none_is_made(clients: Clients, standin: StandIn, machine: Machine) -> None:
    with pytest.raises(BuildError, match=r"toolkit-weights does not exist, and with `platform\.role`") as refused:
        stage(clients, machine.sleep, InAccount={"ByAdmin": True})
    assert "toolkit build RECIPE --staging-template" in refused.value.hint
    assert [call for call in standin.calls if call.service == "iam"] == []


def test_a_job_that_does_not_reach_the_hub_is_not_begun(
    clients: Clients, standin: StandIn, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    with pytest.raises(PlatformError, match="HF_ENDPOINT names another hub here"):
        stage(clients, machine.sleep)
    assert [call for call in standin.calls if call.service in ("codebuild", "iam")] == []


def test_a_model_that_is_called_denied_is_not_the_roles_fault(clients: Clients, machine: Machine) -> None:
    with pytest.raises(PlatformError, match="org/denied-model: FAILED in BUILD") as refused:
        stage(clients, machine.sleep, Hub="org/denied-model")
    assert "--staging-template" not in refused.value.hint


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
