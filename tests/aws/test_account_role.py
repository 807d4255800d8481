"""The execution role: where it is looked for, and which roles are taken for one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from pairs import recipe_with
from standin import StandIn

from toolkit.errors import PlatformError, UsageError
from toolkit.loading import load
from toolkit.platforms import doctor
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform
from toolkit.platforms.sagemaker.role import check_trust, find_role
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.access import ROLE_VARIABLE

SAGEMAKERS = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
PERSONS = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "sts:AssumeRole"}
FOUND = "arn:aws:iam::123456789012:role/service-role/found"
NOWHERE = Path("/nowhere")


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return Clients(standin.session())


@pytest.fixture
def studio(clients: Clients) -> Iterator[Stubber]:
    """What SageMaker answers about Studio; asked anything else, or not asked, the test fails."""
    with Stubber(clients.sagemaker) as stub:
        yield stub
        stub.assert_no_pending_responses()


def make_role(clients: Clients, name: str, statement: Mapping[str, Any]) -> str:
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    role = clients.iam.create_role(RoleName=name, Path="/service-role/", AssumeRolePolicyDocument=document)["Role"]
    return role["Arn"]


def logged_in_as(role: str, clients: Clients, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """Clients of somebody who has taken that role."""
    keys = clients.sts.assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
    for name, value in standin.environment().items():
        monkeypatch.setenv(name, value)
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    return Clients(session)


def write_metadata(folder: Path, **metadata: str) -> Path:
    path = folder / "resource-metadata.json"
    path.write_text(json.dumps(metadata))
    return path


def found(
    clients: Clients, written: str | None = None, variable: str | None = None, metadata: Path = NOWHERE
) -> str | None:
    environ = {ROLE_VARIABLE: variable} if variable else {}
    role = find_role(clients, written=written, environ=environ, studio_metadata=metadata)
    return role.arn if role else None


def test_an_arn_is_taken_as_it_is_written(clients: Clients, standin: StandIn) -> None:
    arn = "arn:aws-us-gov:iam::123456789012:role/team/execution"
    assert found(clients, arn) == arn
    assert not standin.calls


def test_a_name_is_looked_up_with_its_path(clients: Clients) -> None:
    arn = make_role(clients, "execution", SAGEMAKERS)
    assert found(clients, "execution") == arn == "arn:aws:iam::123456789012:role/service-role/execution"


def test_create_means_that_one_is_to_be_made(clients: Clients, standin: StandIn) -> None:
    assert found(clients, "create", variable=FOUND) is None
    assert not standin.calls


def test_the_environment_counts_where_the_recipe_is_silent(clients: Clients) -> None:
    assert found(clients, variable=FOUND) == FOUND
    assert found(clients, "arn:aws:iam::123456789012:role/written", variable=FOUND) != FOUND


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:sts::123456789012:assumed-role/execution/me",
        "arn:aws:iam::123456789012:user/me",
        "arn:aws:iam::1:role/execution",
    ],
)
def test_what_is_not_the_arn_of_a_role(clients: Clients, arn: str) -> None:
    with pytest.raises(UsageError, match=r"^platform\.role: arn\S+ is not the ARN of a role"):
        found(clients, arn)


def test_a_name_that_no_role_has(clients: Clients) -> None:
    with pytest.raises(PlatformError) as caught:
        found(clients, variable="executoin")
    assert caught.value.message == "$TOOLKIT_EXECUTION_ROLE: role executoin does not exist"
    assert "aws iam list-roles" in caught.value.hint


def test_a_name_that_we_may_not_look_up(clients: Clients, standin: StandIn) -> None:
    standin.faults.fail("iam:GetRole", "AccessDenied", status=403)
    with pytest.raises(PlatformError) as caught:
        found(clients, "execution")
    assert caught.value.message == "platform.role: you are not allowed to read the role execution"
    assert caught.value.hint == "Write its ARN instead of its name."


def test_the_callers_own_role_if_sagemaker_may_take_it_too(
    clients: Clients, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = make_role(clients, "notebook", SAGEMAKERS)
    assert found(logged_in_as(arn, clients, standin, monkeypatch)) == arn


def test_the_callers_own_role_is_that_of_a_person(
    clients: Clients, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = make_role(clients, "person", PERSONS)
    assert found(logged_in_as(arn, clients, standin, monkeypatch)) is None


def test_the_callers_own_role_that_we_may_not_look_at(
    clients: Clients, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = make_role(clients, "notebook", SAGEMAKERS)
    them = logged_in_as(arn, clients, standin, monkeypatch)
    standin.faults.fail("iam:GetRole", "AccessDenied", status=403)
    assert found(them) is None


def test_a_user_has_no_role(clients: Clients) -> None:
    assert found(clients) is None


def test_studio_says_the_role_itself(clients: Clients, standin: StandIn, tmp_path: Path) -> None:
    metadata = write_metadata(tmp_path, DomainId="d-1", SpaceName="space", ExecutionRoleArn=FOUND)
    assert found(clients, metadata=metadata) == FOUND
    assert not standin.calls


def test_a_private_space_has_the_role_of_its_owner(clients: Clients, studio: Stubber, tmp_path: Path) -> None:
    domain = {"DefaultUserSettings": {"ExecutionRole": f"{FOUND}-domain"}}
    studio.add_response("describe_domain", domain, {"DomainId": "d-123456"})
    space = {"SpaceSharingSettings": {"SharingType": "Private"}, "OwnershipSettings": {"OwnerUserProfileName": "me"}}
    studio.add_response("describe_space", space, {"DomainId": "d-123456", "SpaceName": "space"})
    profile = {"UserSettings": {"ExecutionRole": FOUND}}
    studio.add_response("describe_user_profile", profile, {"DomainId": "d-123456", "UserProfileName": "me"})
    assert found(clients, metadata=write_metadata(tmp_path, DomainId="d-123456", SpaceName="space")) == FOUND


def test_a_user_without_a_role_of_their_own_has_the_domains(clients: Clients, studio: Stubber, tmp_path: Path) -> None:
    studio.add_response("describe_domain", {"DefaultUserSettings": {"ExecutionRole": FOUND}})
    studio.add_response("describe_user_profile", {"UserSettings": {}})
    assert found(clients, metadata=write_metadata(tmp_path, DomainId="d-1", UserProfileName="me")) == FOUND


def test_a_shared_space_has_the_domains_role_for_spaces(clients: Clients, studio: Stubber, tmp_path: Path) -> None:
    studio.add_response("describe_domain", {"DefaultSpaceSettings": {"ExecutionRole": FOUND}})
    studio.add_response("describe_space", {"SpaceSharingSettings": {"SharingType": "Shared"}})
    assert found(clients, metadata=write_metadata(tmp_path, DomainId="d-1", SpaceName="ours")) == FOUND


def test_a_notebook_instance(clients: Clients, studio: Stubber, tmp_path: Path) -> None:
    asked = {"NotebookInstanceName": "notebook"}
    studio.add_response("describe_notebook_instance", {"RoleArn": FOUND}, asked)
    assert found(clients, metadata=write_metadata(tmp_path, ResourceName="notebook")) == FOUND


IN_STUDIO = {"DomainId": "d-1", "SpaceName": "mine", "ExecutionRoleArn": FOUND}


@pytest.mark.parametrize(
    ("written", "variable", "metadata", "whose"),
    [
        (FOUND, "", {}, "the recipe's"),
        (None, FOUND, IN_STUDIO, "that of $TOOLKIT_EXECUTION_ROLE"),
        (None, "", IN_STUDIO, "that of the SageMaker Studio space mine"),
        (None, "", {"ResourceName": "book", "ExecutionRoleArn": FOUND}, "that of the notebook instance book"),
    ],
)
def test_a_plan_and_doctor_say_whose_role_was_found(
    standin: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: str | None,
    variable: str,
    metadata: dict[str, str],
    whose: str,
) -> None:
    """With the region of the session and the bucket, so that whoever is in Studio sees what was detected."""
    monkeypatch.setenv(ROLE_VARIABLE, variable)
    file, clients = write_metadata(tmp_path, **metadata), Clients(standin.session())
    recipe = recipe_with(load("gpt-oss-20b/p-eagle"), role=written)
    account = SageMakerPlatform(clients, studio_metadata=file).account(recipe)
    (note,) = [note for note in RULES.notes(recipe, account) if note.startswith("Account ")]
    bucket = "weights in s3://toolkit-123456789012-us-west-2"
    assert note == f"Account 123456789012, us-west-2: runs as {FOUND} ({whose}), {bucket}"
    if not written:
        environ = {ROLE_VARIABLE: variable}
        said = f"account 123456789012, us-west-2; endpoints run as {FOUND} ({whose}); {bucket}"
        assert doctor.session_text(clients, environ, file) == said


def test_doctor_does_without_aws(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.examine_aws(lambda: pytest.fail("asked")).detail == "no credentials; only SageMaker needs them"
    for name, value in standin.environment().items():
        monkeypatch.setenv(name, value)
    assert "no role: set $TOOLKIT_EXECUTION_ROLE" in doctor.examine_aws().detail
    standin.faults.expire_token()
    expired = doctor.examine_aws()
    assert not expired.ok
    assert not expired.needed
    assert expired.hint


def test_studio_where_we_may_not_ask_leaves_the_callers_role(
    clients: Clients, standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = make_role(clients, "studio", SAGEMAKERS)
    them = logged_in_as(arn, clients, standin, monkeypatch)
    standin.faults.fail("sagemaker:DescribeDomain", "AccessDeniedException")
    assert found(them, metadata=write_metadata(tmp_path, DomainId="d-1", SpaceName="space")) == arn


@pytest.mark.parametrize(
    ("statements", "trusted"),
    [
        ([SAGEMAKERS], True),
        (SAGEMAKERS, True),  # one statement need not be in a list
        ([PERSONS, SAGEMAKERS], True),
        ([PERSONS], False),
        ([{**SAGEMAKERS, "Principal": {"Service": ["ec2.amazonaws.com", "sagemaker.amazonaws.com"]}}], True),
        ([{**SAGEMAKERS, "Principal": {"Service": "ec2.amazonaws.com"}}], False),
        ([{**SAGEMAKERS, "Principal": "*"}], False),
        ([{**SAGEMAKERS, "Action": ["sts:TagSession", "sts:assumerole"]}], True),
        ([{**SAGEMAKERS, "Action": "sts:*"}], True),
        ([{**SAGEMAKERS, "Action": "sts:TagSession"}], False),
        ([{**SAGEMAKERS, "Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}], True),
        ([SAGEMAKERS, {**SAGEMAKERS, "Effect": "Deny"}], False),
        ([], False),
    ],
)
def test_which_trust_policies_let_sagemaker_take_the_role(statements: Any, trusted: bool) -> None:
    assert check_trust({"Version": "2012-10-17", "Statement": statements}) is trusted
