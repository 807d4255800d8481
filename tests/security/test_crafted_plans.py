"""A saved plan can do only what its recipe says: one that somebody has changed is refused, and nothing happens."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from aws_in_memory import ON_AWS, AwsInMemory, Terminal, aws_in_memory
from pairs import write_pair

from toolkit.cli.main import run
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account

Document = dict[str, Any]


@pytest.fixture
def aws() -> Iterator[AwsInMemory]:
    with aws_in_memory() as platform:
        yield platform


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = write_pair(tmp_path)
    path.write_text(ON_AWS)
    return path


@pytest.fixture
def saved(aws: AwsInMemory, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "plan.json"
    assert run(["plan", str(recipe), "--out", str(path)]) == 0
    capsys.readouterr()
    return path


def request(plan: Document, kind: str) -> Document:
    found: Document = next(action["request"] for action in plan["actions"] if action["kind"] == kind)
    return found


def added(kind: str, name: str, verb: str, request: Document) -> Callable[[Document], None]:
    def add(plan: Document) -> None:
        plan["actions"].insert(0, asdict(Action(kind, name, verb, "is fine", request)))  # type: ignore[arg-type]

    return add


def credentials_to_another_bucket(plan: Document) -> None:
    files = [{"path": ".aws/credentials", "size": 116, "sha256": "0" * 64}]
    request(plan, "Weights").update({"Bucket": "attackers", "Source": str(Path.home()), "Files": files})


def a_path_out_of_the_folder(plan: Document) -> None:
    request(plan, "Weights")["Files"][0]["path"] = "../../../etc/passwd"


def a_role_for_another_account(plan: Document) -> None:
    trust = json.loads(request(plan, "Role")["AssumeRolePolicyDocument"])
    trust["Statement"][0]["Principal"] = {"AWS": "arn:aws:iam::999999999999:root"}
    request(plan, "Role")["AssumeRolePolicyDocument"] = json.dumps(trust)


def a_policy_for_everything(plan: Document) -> None:
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*:*", "Resource": "*"}]}
    request(plan, "RolePolicy")["PolicyDocument"] = json.dumps(policy)


def another_image(plan: Document) -> None:
    request(plan, "Model")["PrimaryContainer"]["Image"] = "999999999999.dkr.ecr.us-west-2.amazonaws.com/miner:1"


def another_variable(plan: Document) -> None:
    request(plan, "Model")["PrimaryContainer"]["Environment"]["LD_PRELOAD"] = "/opt/ml/model/x.so"


def the_same_action_twice(plan: Document) -> None:
    plan["actions"].append(plan["actions"][0])


def another_verb(plan: Document) -> None:
    plan["actions"][-1]["verb"] = "delete"


CRAFTED: dict[str, tuple[Callable[[Document], None], str]] = {
    "credentials": (credentials_to_another_bucket, ', request.Bucket: saved "attackers" / derived "toolkit-1234'),
    "path": (a_path_out_of_the_folder, 'request.Files.0.path: saved "../../../etc/passwd" / derived "config.json"'),
    "trust": (
        a_role_for_another_account,
        'request.AssumeRolePolicyDocument.Statement.0.Principal.Service: saved nothing / derived "sagemaker.',
    ),
    "policy": (a_policy_for_everything, "RolePolicy toolkit-tiny-us-west-2/tiny, request.PolicyDocument.Statement"),
    "image": (another_image, 'request.PrimaryContainer.Image: saved "999999999999.dkr.ecr'),
    "variable": (another_variable, 'LD_PRELOAD: saved "/opt/ml/model/x.so" / derived nothing'),
    "empties a bucket": (
        added("Weights", "w", "delete", {"Bucket": "toolkit-123456789012-us-west-2", "Prefix": ""}),
        'Weights w: saved {"name": "w", "verb": "delete", "request": {"Bucket": "toolkit-123456789012-us-west-2", "Pre',
    ),
    "deletes another's": (added("Endpoint", "theirs", "delete", {}), 'Endpoint theirs: saved {"name": "theirs"'),
    "twice": (the_same_action_twice, 'Bucket toolkit-123456789012-us-west-2: saved {"name"'),
    "verb": (another_verb, 'Endpoint tiny, verb: saved "delete" / derived "create"'),
    "account": (lambda plan: plan.update(account="999999999999"), 'account: saved "999999999999" / derived "123'),
    "region": (lambda plan: plan.update(region="eu-west-1"), 'region: saved "eu-west-1" / derived "us-west-2"'),
    "endpoints": (lambda plan: plan.update(endpoints=["theirs"]), 'endpoints: saved "theirs" / derived "tiny"'),
    "what runs": (lambda plan: plan.update(fingerprint="0" * 64), "what runs now is not what"),
}  # fmt: skip


@pytest.mark.parametrize(("craft", "said"), CRAFTED.values(), ids=CRAFTED)
def test_a_crafted_plan_is_refused_with_what_differs_in_it(
    aws: AwsInMemory, saved: Path, capsys: pytest.CaptureFixture[str], craft: Callable[[Document], None], said: str
) -> None:
    plan = json.loads(saved.read_text())
    craft(plan)
    saved.write_text(json.dumps(plan))

    ended = run(["deploy", "--plan", str(saved), "--yes", "--no-wait"])

    assert aws.done == []
    err = capsys.readouterr().err
    assert said in err
    assert f"Plan again: toolkit plan {saved.parent}/recipe.yaml --out {saved}\n" in err
    assert ended == (3 if "what runs" in said else 2)


def test_a_plan_for_another_platform_is_refused(
    aws: AwsInMemory, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "platform": "local"}))
    assert run(["deploy", "--plan", str(saved), "--yes"]) == 2
    assert "is for platform `local`, and" in capsys.readouterr().err
    assert aws.done == []


def test_a_plan_that_was_made_elsewhere_is_refused(
    aws: AwsInMemory, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aws, "account", lambda recipe=None: Account("210987654321", "us-west-2"))
    assert run(["deploy", "--plan", str(saved), "--yes"]) == 2
    assert 'account: saved "123456789012" / derived "210987654321"' in capsys.readouterr().err
    assert aws.done == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("max_model_len: 1024", "max_model_len: 512", 'SM_VLLM_MAX_MODEL_LEN: saved "1024" / derived "512"'),
        ("name: tiny", "name: other", 'endpoints: saved "tiny" / derived "other"'),
        ("instance_types: [ml.g6.xlarge]", "instance_types: [ml.g6.nope]", "ml.g6.nope"),
    ],
)
def test_a_plan_of_a_recipe_that_has_changed_is_refused(
    aws: AwsInMemory, saved: Path, recipe: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    recipe.write_text(recipe.read_text().replace(old, new))
    assert run(["deploy", "--plan", str(saved), "--yes"]) in (1, 2)
    assert said in capsys.readouterr().err
    assert aws.done == []


def test_a_plan_whose_recipe_is_missing_is_refused_until_it_is_named(
    aws: AwsInMemory, saved: Path, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = recipe.rename(recipe.with_name("moved.yaml"))
    assert run(["deploy", "--plan", str(saved), "--yes"]) == 2
    assert (
        f"{recipe}, which is not a file on this machine\n  Name the recipe: toolkit deploy" in capsys.readouterr().err
    )
    assert aws.done == []
    assert run(["deploy", str(moved), "--plan", str(saved), "--yes", "--no-wait"]) == 0
    assert aws.done != []


def test_it_is_shown_before_anybody_is_asked(
    aws: AwsInMemory, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run(["deploy", "--plan", str(saved), "--no-wait"]) == 1
    assert aws.done == []
    err = capsys.readouterr().err
    assert "create  Role" in err.split("Do this on sagemaker (123456789012 us-west-2), as ")[0]

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run(["deploy", "--plan", str(saved), "--no-wait"]) == 0
    assert [str(action) for action in aws.done][-1] == "create Endpoint tiny"
    assert "wait until in service" not in capsys.readouterr().err


def test_where_nobody_can_be_asked_it_needs_a_yes(
    aws: AwsInMemory, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run(["deploy", "--plan", str(saved), "--no-wait"]) == 2
    assert "Cannot ask: stdin is not a terminal.\n  Add --yes." in capsys.readouterr().err
    assert aws.done == []
    assert run(["deploy", "--plan", str(saved), "--no-wait", "--yes"]) == 0
