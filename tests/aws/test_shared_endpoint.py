"""Many recipes on one endpoint, as inference components: each has its own rights, and takes only these with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_pair, write_recipe
from standin import StandIn
from standin_user import TRUST

import toolkit
from toolkit.apply.progress import Silent

SHARED = HUB_RECIPE.replace(
    "platform: {name: sagemaker,", "platform: {name: sagemaker, role: create, inference_component: {endpoint: shared},"
).replace("org/", "./")


@pytest.fixture(autouse=True)
def environment(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)


def deploy(root: Path, name: str, endpoint: str = "shared") -> Path:
    folder = root / name
    folder.mkdir()
    text = SHARED.replace("name: hub", f"name: {name}").replace("endpoint: shared", f"endpoint: {endpoint}")
    path = write_recipe(write_pair(folder).parent, text)
    toolkit.deploy(path, progress=Silent())
    return path


def roles(standin: StandIn) -> dict[str, list[str]]:
    """All roles with the names of their policies."""
    iam: Any = standin.session().client("iam")
    names = [role["RoleName"] for role in iam.list_roles(MaxItems=1000)["Roles"]]
    return {name: iam.list_role_policies(RoleName=name)["PolicyNames"] for name in names}


def test_thirty_recipes_share_an_endpoint(standin: StandIn, tmp_path: Path) -> None:
    """IAM user guide, reference_iam-quotas: a role's inline policies have 10,240 characters at most."""
    standin.account.iam.late = 0.0
    names = [f"llm-{number}" for number in range(30)]
    recipes = [deploy(tmp_path, name) for name in names]
    components: Any = standin.session().client("sagemaker").list_inference_components(MaxResults=100)
    assert {item["InferenceComponentName"] for item in components["InferenceComponents"]} == set(names)

    before = roles(standin)
    toolkit.destroy(recipes[3], progress=Silent())
    assert roles(standin) == {name: held for name, held in before.items() if name != "toolkit-llm-3-us-west-2"}
    assert toolkit.plan(recipes[4]).changes == []


def test_the_last_recipe_takes_the_shared_role_with_it(standin: StandIn, tmp_path: Path) -> None:
    first, second = deploy(tmp_path, "first"), deploy(tmp_path, "second")
    toolkit.destroy(second, progress=Silent())
    assert roles(standin) == {
        "toolkit-shared-us-west-2": ["all.components"],
        "toolkit-first-us-west-2": ["first"],
    }
    toolkit.destroy(first, progress=Silent())
    assert roles(standin) == {}


def test_a_recipe_whose_endpoint_has_its_own_name_is_joined_by_another(standin: StandIn, tmp_path: Path) -> None:
    first, second = deploy(tmp_path, "first", "first"), deploy(tmp_path, "second", "first")
    assert toolkit.plan(first).changes == toolkit.plan(second).changes == []
    toolkit.destroy(first, progress=Silent())
    assert roles(standin) == {"toolkit-first-us-west-2": ["all.components"], "toolkit-second-us-west-2": ["second"]}
    toolkit.destroy(second, progress=Silent())
    assert roles(standin) == {}


def test_a_policy_of_an_earlier_version_in_the_shared_role_goes(standin: StandIn, tmp_path: Path) -> None:
    recipe = deploy(tmp_path, "first")
    iam: Any = standin.session().client("iam")
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::weights/*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName="toolkit-shared-us-west-2", PolicyName="first", PolicyDocument=document)
    iam.put_role_policy(RoleName="toolkit-shared-us-west-2", PolicyName="second", PolicyDocument=document)
    toolkit.deploy(recipe, progress=Silent())
    assert sorted(roles(standin)["toolkit-shared-us-west-2"]) == ["all.components", "second"]


def test_more_inline_policies_than_a_role_may_have(standin: StandIn) -> None:
    iam: Any = standin.session().client("iam")
    iam.create_role(RoleName="full", AssumeRolePolicyDocument=json.dumps(TRUST))
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": ["arn:aws:s3:::" + "x" * 4900]}
    half = json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=40)
    for name in ("a", "b", "b"):
        iam.put_role_policy(RoleName="full", PolicyName=name, PolicyDocument=half)
    with pytest.raises(iam.exceptions.LimitExceededException, match="Maximum policy size of 10240 bytes exceeded"):
        iam.put_role_policy(RoleName="full", PolicyName="c", PolicyDocument=half)
