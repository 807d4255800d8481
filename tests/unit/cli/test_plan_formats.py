"""`toolkit plan --format`: a table, JSON, or a CloudFormation template and nothing else on stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pairs import HUB_RECIPE, write_hub_pair, write_pair

from toolkit.cli.main import run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path) -> str:
    """A recipe of the local platform."""
    return str(write_pair(tmp_path))


@pytest.fixture
def on_aws(tmp_path: Path) -> str:
    """A recipe that runs on AWS, whose containers download the models themselves."""
    return str(write_hub_pair(tmp_path, HUB_RECIPE.replace("{name: sagemaker,", "{name: sagemaker, weights: hub,")))


def test_json_is_the_document_of_the_flag(here: str, capsys: Captured) -> None:
    assert run(["plan", here, "--format", "json"]) == 0
    formatted = capsys.readouterr()
    assert run(["plan", here, "--json"]) == 0
    assert formatted == capsys.readouterr()


def test_a_template_is_all_that_is_on_stdout(on_aws: str, capsys: Captured) -> None:
    assert run(["plan", on_aws, "--format", "cloudformation"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["Resources"]["EndpointHub"]["Type"] == "AWS::SageMaker::Endpoint"


def test_a_template_with_the_baseline(on_aws: str, capsys: Captured) -> None:
    assert run(["plan", on_aws, "--baseline", "--format", "cloudformation"]) == 0
    assert {"EndpointHub", "EndpointHubBaseline"} <= json.loads(capsys.readouterr().out)["Resources"].keys()


def test_a_template_in_a_file(on_aws: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "stack.json"
    assert run(["plan", on_aws, "--format", "cloudformation", "--out", str(path)]) == 0
    ended = capsys.readouterr()
    assert ended.out == ""
    assert json.loads(path.read_text())["Outputs"].keys() == {"EndpointHubName"}
    assert ended.err.splitlines()[-1].startswith(
        f"then create the stack: aws cloudformation deploy --template-file {path} "
    )


def test_what_the_stack_will_lack_and_what_comes_before_it_is_said(tmp_path: Path, capsys: Captured) -> None:
    drafter = "method: p-eagle\n  model: org/drafter\n  num_speculative_tokens: 7"
    assert drafter in HUB_RECIPE
    plain = write_hub_pair(tmp_path)
    plain.write_text(HUB_RECIPE.replace(drafter, "method: none"))
    assert run(["plan", str(plain), "--format", "cloudformation"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "warning: the template has 000000000000 in place of your account number: log in to AWS and run this again"
    )
    assert any("CloudFormation has no PrimaryContainer.ContainerMetricsConfig" in line for line in lines)
    assert any(line.startswith("before you create the stack, provide weights target-") for line in lines)


def test_a_pair_that_is_staged_has_a_template_that_works(tmp_path: Path, capsys: Captured) -> None:
    assert run(["plan", str(write_hub_pair(tmp_path)), "--format", "cloudformation"]) == 0
    ended = capsys.readouterr()
    assert "AdditionalModelDataSources" not in ended.out + ended.err
    assert "one S3 prefix brings all, because AWS::SageMaker::Model has one model data source" in ended.err


def test_roles_for_ci_and_the_command_that_makes_them(on_aws: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "roles.json"
    assert run(["plan", on_aws, "--format", "ci-roles", "--out", str(path)]) == 0
    ended = capsys.readouterr()
    assert ended.out == ""
    assert json.loads(path.read_text())["Outputs"].keys() == {"PlanRole", "DeployRole"}
    lines = ended.err.splitlines()
    assert lines[0].startswith("warning: the template has 000000000000 in place of your account number")
    assert lines[1] == (
        f"then create the stack: aws cloudformation deploy --template-file {path} --stack-name NAME "
        "--capabilities CAPABILITY_IAM --parameter-overrides Repository=OWNER/NAME"
    )


def test_a_recipe_of_this_machine_has_no_template(here: str, capsys: Captured) -> None:
    assert run(["plan", here, "--format", "cloudformation"]) == 2
    ended = capsys.readouterr()
    assert ended.out == ""
    assert "tiny runs on platform `local`" in ended.err


def test_two_formats_at_once(here: str, capsys: Captured) -> None:
    assert run(["plan", here, "--json", "--format", "cloudformation"]) == 2
    assert "--json cannot be combined with --format cloudformation" in capsys.readouterr().err


def test_an_error_is_json_too_where_json_was_asked_for(capsys: Captured) -> None:
    assert run(["plan", "no/such", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "RecipeNotFound"
