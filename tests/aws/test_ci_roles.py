"""The roles of `toolkit plan --format ci-roles`, held against the calls that planning makes and against cfn-lint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.decode.decode import decode_str
from cfnlint.runner import Runner
from pairs import HUB_RECIPE, write_pair, write_recipe
from rights import action_of, not_allowed
from standin import ACCOUNT, StandIn

import toolkit
from toolkit.api.export import ci_roles
from toolkit.apply.progress import Silent
from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.ci_roles import reading, template
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.recipe.known import catalogue

PLAIN = HUB_RECIPE.replace("name: sagemaker,", "name: sagemaker, role: create,").replace("org/", "./")
COMPONENT = PLAIN.replace("role: create", "inference_component: {}, role: create")
SCALED = "scaling: {max_instances: 3}\n"
HERE = Account(ACCOUNT, "us-west-2")
ON_AWS = [name for name in catalogue() if load(name).platform.name == "sagemaker"]
LONGEST_POLICY = 10_240
"""What IAM takes as the policies within a role, of all of them together."""


@pytest.fixture(autouse=True)
def _at_the_stand_in(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def cfn_lint() -> Runner:
    return Runner(ConfigMixIn(regions=["us-west-2"]))


def recipe_of(root: Path, text: str) -> Path:
    return write_recipe(write_pair(root).parent, text)


def plan_twice(recipe: Path, standin: StandIn) -> None:
    """Where there is nothing, and where it runs: of what was called, only the planning is left."""
    toolkit.plan(recipe, baseline=True)
    before = list(standin.calls)
    toolkit.deploy(recipe, baseline=True, progress=Silent())
    standin.calls.clear()
    toolkit.plan(recipe, baseline=True)
    standin.calls[:0] = before


@pytest.mark.parametrize("text", [PLAIN, PLAIN + SCALED, COMPONENT + SCALED], ids=["plain", "scaled", "component"])
def test_a_pull_requests_role_may_do_all_that_planning_does(standin: StandIn, tmp_path: Path, text: str) -> None:
    recipe = recipe_of(tmp_path, text)
    plan_twice(recipe, standin)
    assert not_allowed(standin, load(recipe), reading) == set()


def test_it_may_do_no_more(standin: StandIn, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, COMPONENT + SCALED)
    plan_twice(recipe, standin)
    called = {action_of(call) for call in standin.calls}
    allowed = {action for item in reading(load(recipe), HERE) for action in item.actions}
    assert allowed - called == {"sagemaker:ListTrainingJobs"}  # of recipes that compile ahead


@pytest.mark.parametrize("name", ON_AWS)
def test_it_changes_nothing_and_reads_nothing_that_was_said(name: str) -> None:
    recipe = load(name)
    verbs = {action.partition(":")[2] for item in reading(recipe, HERE) for action in item.actions}
    assert {verb for verb in verbs if not verb.startswith(("Describe", "Get", "List", "Decrypt"))} == set()
    assert verbs.isdisjoint({"GetLogEvents", "GetSecretValue", "GetMetricData", "GetDownloadUrlForLayer"})
    objects = {arn for item in reading(recipe, HERE) if "s3:GetObject" in item.actions for arn in item.resources}
    assert {arn.partition("/")[2] for arn in objects} == {"weights/*", "neuron/*"}


@pytest.mark.parametrize("name", ON_AWS)
def test_iam_and_cloudformation_take_them(name: str, cfn_lint: Runner) -> None:
    recipe = load(name)
    document = template(recipe, HERE)
    for role in document["Resources"].values():
        (held,) = role["Properties"]["Policies"]
        assert len(json.dumps(held["PolicyDocument"], separators=(",", ":"))) <= LONGEST_POLICY
    decoded, mistakes = decode_str(json.dumps(document))
    assert not mistakes
    assert decoded is not None
    found = [f"{match.rule.id}: {match.message}" for match in cfn_lint.validate_template(decoded)]
    assert found == []


def test_a_pull_request_cannot_take_the_role_that_deploys(tmp_path: Path) -> None:
    made = ci_roles(recipe_of(tmp_path, PLAIN))
    assert subject(made, "PlanRole") == {"Fn::Sub": "repo:${Repository}:pull_request"}
    assert subject(made, "DeployRole") == {"Fn::Sub": "repo:${Repository}:environment:${Environment}"}


def test_the_role_that_deploys_may_do_all_that_deploying_takes(tmp_path: Path) -> None:
    recipe = load(recipe_of(tmp_path, PLAIN))
    statements = ci_roles(recipe)["Resources"]["DeployRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    assert statements == [item.statement() for item in permissions(recipe, HERE)]


@pytest.mark.parametrize(
    ("region", "through"),
    [("us-west-2", "s3.us-west-2.amazonaws.com"), ("cn-north-1", "s3.cn-north-1.amazonaws.com.cn")],
)
def test_a_key_opens_what_comes_from_s3_only(tmp_path: Path, region: str, through: str) -> None:
    recipe = load(recipe_of(tmp_path, PLAIN.replace("role: create", "kms_key: 1234abcd, role: create")))
    (found,) = [item for item in reading(recipe, Account(ACCOUNT, region)) if "kms:Decrypt" in item.actions]
    assert (found.actions, found.given) == (("kms:Decrypt",), {"kms:ViaService": through})


def test_a_recipe_of_this_machine_has_no_such_roles() -> None:
    with pytest.raises(UsageError, match="runs on platform `local`"):
        ci_roles("tiny/p-eagle")


def subject(made: dict[str, Any], role: str) -> Any:
    (statement,) = made["Resources"][role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    conditions = statement["Condition"]["StringEquals"]
    assert conditions["token.actions.githubusercontent.com:aud"] == "sts.amazonaws.com"
    return conditions["token.actions.githubusercontent.com:sub"]
