"""What a platform team asks for is in the requests, and the commands of its page run in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documented_commands import blocks, of_toolkit
from pairs import write_pair
from rights import never_allowed
from standin import ACCOUNT, StandIn
from standin_iam import Rights
from standin_user import TRUST

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import PlatformError
from toolkit.loading import load
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.permissions import permissions

PAGE = "docs/howto/platform-team.md"
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
LOG_KEY = "arn:aws:kms:us-west-2:123456789012:key/5678abcd-12ab-34cd-56ef-1234567890ab"
WRITES = ("Create", "Put", "Delete", "Attach", "Tag", "Update")


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's own recipe, at the path that its commands name, in an account that has its boundary."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.001"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "recipes"
    folder.mkdir()
    write_pair(folder)
    (text,) = blocks(PAGE, "yaml")
    path = folder / "chat.yaml"
    kms: Any = standin.session().client("kms")
    path.write_text(text.replace(LOG_KEY, kms.create_key()["KeyMetadata"]["Arn"]))
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam: Any = standin.session().client("iam")
    iam.create_policy(PolicyName="boundary", PolicyDocument=json.dumps(everything))
    standin.calls.clear()
    return path


def requests(standin: StandIn, operation: str) -> Iterator[dict[str, Any]]:
    return (call.request for call in standin.calls if call.operation == operation)


def test_its_commands_run_in_their_order(recipe: Path, standin: StandIn) -> None:
    for name, *arguments in of_toolkit(PAGE):
        assert run([name, *arguments]) in ((0, 1) if name == "check" else (0,)), (name, arguments)
    stack = json.loads(Path("stack.json").read_text())["Resources"]
    (role,) = (item["Properties"] for item in stack.values() if item["Type"] == "AWS::IAM::Role")
    (group,) = (item["Properties"] for item in stack.values() if item["Type"] == "AWS::Logs::LogGroup")
    assert role["PermissionsBoundary"] == BOUNDARY
    assert group["RetentionInDays"] == 365
    (made,) = requests(standin, "CreateRole")
    assert made["PermissionsBoundary"] == BOUNDARY
    assert made["Path"] == role["Path"] == "/team/"
    *_, model = requests(standin, "CreateModel")
    assert model["ExecutionRoleArn"].startswith("arn:aws:iam::123456789012:role/team/toolkit-chat")
    assert {"Key": "team", "Value": "search"} in made["Tags"]
    (logs,) = requests(standin, "CreateLogGroup")
    assert logs["kmsKeyId"] == group["KmsKeyId"]
    assert [item["retentionInDays"] for item in requests(standin, "PutRetentionPolicy")] == [365]
    assert never_allowed(standin) == set()


def test_with_the_printed_policy_on_a_role_of_theirs_nothing_is_written_in_iam(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(recipe), "--format", "role-policy"]) == 0
    printed = capsys.readouterr().out
    iam: Any = standin.session().client("iam")
    arn = iam.create_role(RoleName="theirs", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    iam.put_role_policy(RoleName="theirs", PolicyName="toolkit", PolicyDocument=printed)
    standin.account.iam.settle()
    given = recipe.read_text().replace("role: create", f"role: {arn}")
    recipe.write_text(given.replace(f"  permissions_boundary: {BOUNDARY}\n  role_path: /team/\n", ""))
    standin.calls.clear()
    toolkit.deploy(recipe, progress=Silent())
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert standin.account.iam.refused == []
    assert [call for call in standin.calls if call.service == "iam" and call.operation.startswith(WRITES)] == []


def test_whoever_may_do_what_is_listed_deploys_below_the_path_and_nowhere_else(recipe: Path, standin: StandIn) -> None:
    loaded = load(recipe)
    needed = permissions(loaded, Account(ACCOUNT, "us-west-2"))
    for item in needed:
        if any(action.startswith("iam:") for action in item.actions):
            assert all(":role/team/toolkit-" in arn for arn in item.resources)
    standin.account.iam.caller = Rights.of(item.statement() for item in needed)
    toolkit.deploy(recipe, progress=Silent())
    standin.calls.clear()
    assert toolkit.plan(recipe).changes == []
    recipe.write_text(recipe.read_text().replace("role_path: /team/", "role_path: /other/"))
    with pytest.raises(PlatformError, match="exists with the path /team/, and IAM moves no role to /other/"):
        toolkit.plan(recipe)


def test_a_boundary_that_is_added_later_holds_and_one_that_is_taken_out_stays(recipe: Path, standin: StandIn) -> None:
    text = recipe.read_text()
    recipe.write_text(text.replace(f"  permissions_boundary: {BOUNDARY}\n", ""))
    toolkit.deploy(recipe, progress=Silent())
    recipe.write_text(text)
    planned = toolkit.plan(recipe)
    (change,) = planned.changes
    assert (change.kind, change.verb) == ("Role", "update")
    assert [call["operation"] for call in change.calls] == ["PutRolePermissionsBoundary"]
    standin.account.iam.caller = Rights.of(
        item.statement() for item in permissions(load(recipe), Account(ACCOUNT, "us-west-2"))
    )
    toolkit.deploy(recipe, progress=Silent())
    (put,) = requests(standin, "PutRolePermissionsBoundary")
    assert put["PermissionsBoundary"] == BOUNDARY
    assert toolkit.plan(recipe).changes == []
    recipe.write_text(text.replace(f"  permissions_boundary: {BOUNDARY}\n", ""))
    (role,) = (action for action in toolkit.plan(recipe).actions if action.kind == "Role")
    assert (role.verb, "it stays" in role.reason) == ("reuse", True)


def test_the_key_encrypts_the_repository_of_built_images(recipe: Path) -> None:
    recipe.write_text(recipe.read_text() + "container: {wheels: [example==1.0]}\n")
    (made,) = (action.request for action in toolkit.plan(recipe).actions if action.kind == "Repository")
    assert made["encryptionConfiguration"]["encryptionType"] == "KMS"
    assert made["encryptionConfiguration"]["kmsKey"].endswith("key/1234abcd-12ab-34cd-56ef-1234567890ab")


def test_a_profile_with_a_role_works_in_that_roles_account(
    recipe: Path, standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore takes the role; nothing of ours is needed."""
    config = tmp_path / "config"
    config.write_text(
        "[profile team]\nrole_arn = arn:aws:iam::123456789012:role/deployer\nsource_profile = me\n"
        "[profile me]\naws_access_key_id = AKIAMINE\naws_secret_access_key = mine\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert toolkit.plan(recipe).account == ACCOUNT
    (taken,) = requests(standin, "AssumeRole")
    assert taken["RoleArn"] == "arn:aws:iam::123456789012:role/deployer"
