"""Roles as AWS takes them: policies are evaluated, and arrive late. A whole life takes all of each, and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from pairs import HUB_RECIPE, write_hub_pair, write_pair, write_recipe
from rights import WITHOUT_A_RIGHT, needless, never_allowed, written
from standin import ACCOUNT, StandIn
from standin_caller import CALLER
from standin_iam import Rights
from standin_policies import Access
from standin_user import TRUST

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import ToolkitError
from toolkit.loading import load
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import Project, ensure_project
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.recipe.known import catalogue

RECIPE = HUB_RECIPE.replace("platform: {", "platform: {role: create, ").replace("org/", "./")
COMPONENT = RECIPE.replace("role: create", "role: create, inference_component: {endpoint: shared}")
ENCRYPTED = RECIPE.replace("role: create", "role: create, kms_key: 1234abcd-12ab-34cd-56ef-1234567890ab")
TWO = "scaling: {min_instances: 2, max_instances: 2}\n"
CAPTURES = "observability: {data_capture_percent: 10}\n"
LIVES = {
    "all at once": RECIPE,
    "canary": RECIPE + TWO + "rollout: {update: canary}\n",
    "linear": RECIPE + TWO + "rollout: {update: linear}\n",
    "rolling": RECIPE + TWO + "rollout: {update: rolling}\n",
    "shadow": RECIPE + "rollout: {shadow: true}\n",
    "two variants": RECIPE + "rollout: {speculative_percent: 50}\n",
    "component": COMPONENT,
    "component, rolling": COMPONENT + "rollout: {update: rolling}\n",
    "scaled": RECIPE + "scaling: {max_instances: 3}\n",
    "unwatched": RECIPE + "observability: {alarms: false, dashboard: false}\n",
    "captured": RECIPE + CAPTURES,
    "encrypted": ENCRYPTED,
    "encrypted and captured": ENCRYPTED + CAPTURES,
    "captured component": COMPONENT.replace("role:", "kms_key: 1234abcd, role:") + CAPTURES,
    "in a VPC": RECIPE + "network: {subnets: [subnet-1234abcd, subnet-5678abcd], security_groups: [sg-1234abcd]}\n",
}
MANIFEST = '{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}'
RECIPES = Path(__file__).parents[2] / "recipes"
# Without AWS's catalogue, or a head that is trained first, there is no plan of these.
NOT_PLANNED_ALONE = {"gemma-4-31b-it/p-eagle", "qwen3-8b/train-p-eagle", "tiny/train-p-eagle"}
# The role of an endpoint for components: another component may be one that is updated in steps.
FOR_OTHERS = {("cloudwatch:DescribeAlarms", "*")}


# What a life says without each statement of an endpoint's policy; nothing where AWS goes on without logs or metrics.
STATEMENTS = (
    "Could not access model data",
    "Could not access model data",
    "",
    "",
    "does not have BatchGetImage permission",
    "",
    "DescribeAlarms",
    "Failed to download",
)


def allow(action: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": "*"}


def policy_of(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


@pytest.fixture(autouse=True)
def environment(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.001"}.items():
        monkeypatch.setenv(name, value)


def live(recipe: Path) -> None:
    """Deploy, update, roll back, destroy."""
    toolkit.deploy(recipe, progress=Silent())
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    toolkit.deploy(recipe, progress=Silent())
    if "inference_component" not in recipe.read_text():  # AWS keeps no older one of these
        toolkit.rollback(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())


@pytest.mark.parametrize("text", LIVES.values(), ids=LIVES)
def test_a_whole_life_takes_all_that_its_roles_are_given_and_no_more(
    standin: StandIn, tmp_path: Path, text: str
) -> None:
    live(write_recipe(write_pair(tmp_path).parent, text))
    assert written(standin)
    assert never_allowed(standin) == set()
    assert standin.account.iam.refused  # before its rights were known everywhere
    assert needless(standin) - (FOR_OTHERS if "inference_component" in text else set()) == set()


@pytest.mark.parametrize("name", sorted(name for name in catalogue() if name not in NOT_PLANNED_ALONE))
def test_the_role_of_a_shipped_recipe(standin: StandIn, tmp_path: Path, name: str) -> None:
    """Its plans to deploy and to update, sent call by call; of its weights one file each."""
    text = (RECIPES / f"{name}.yaml").read_text()
    if "name: sagemaker" not in text:
        return
    recipe = write_recipe(tmp_path, re.sub(r"^platform:( \{|\n)", _with_role, text, flags=re.MULTILINE))
    recipe.with_suffix(".lock.json").write_bytes((RECIPES / f"{name}.lock.json").read_bytes())
    send(standin, toolkit.plan(recipe))
    standin.settle()
    other = re.sub(r"(num_speculative_tokens: )(\d+)", lambda k: f"{k[1]}{int(k[2]) - 1 or 2}", recipe.read_text())
    send(standin, toolkit.plan(write_recipe(tmp_path, other)))
    assert [str(call) for call in standin.calls].count("sagemaker:UpdateEndpoint") == 1
    assert never_allowed(standin) == set()
    assert needless(standin) == set()


def _with_role(platform: re.Match[str]) -> str:
    return "platform: {role: create, " if "{" in platform[0] else "platform:\n  role: create\n"


def send(standin: StandIn, plan: Plan) -> None:
    """The calls of a plan, late enough for each role to be known. Its weights, image and compiled code are made up."""
    session = standin.session()
    clients: dict[str, Any] = {
        name: session.client(name)
        for name in {"s3", *(call["service"] for item in plan.changes for call in item.calls)}
    }
    for action in plan.changes:
        if action.kind in ("Weights", "Artifacts"):
            clients["s3"].put_object(Bucket=action.request["Bucket"], Key=f"{action.request['Prefix']}x")
        elif action.kind == "Image":
            repository, tag = action.request["Repository"], action.request["Tag"]
            clients["ecr"].put_image(repositoryName=repository, imageTag=tag, imageManifest=MANIFEST)
        for call in action.calls:
            if call["operation"] != "PutBucketPolicy":
                getattr(clients[call["service"]], xform_name(call["operation"]))(**call["request"])
        standin.account.iam.settle()


def test_a_rollback_decrypts_older_weights_with_their_key(standin: StandIn, tmp_path: Path) -> None:
    """The new recipe has another key, or none, and nothing of its own in S3."""
    recipe = write_recipe(write_pair(tmp_path).parent, ENCRYPTED)
    toolkit.deploy(recipe, progress=Silent())
    other = tmp_path / "other"
    other.mkdir()
    bare = write_hub_pair(other, HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, "))
    toolkit.deploy(bare, progress=Silent())
    assert toolkit.plan(bare).changes == []
    standin.account.iam.settle()
    standin.account.iam.refused.clear()
    standin.account.iam.asked.clear()
    toolkit.rollback(bare, progress=Silent())
    assert "kms:Decrypt" in {access.action for access in standin.account.iam.asked}
    assert standin.account.iam.refused == []


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_without_one_statement_of_its_policy_a_life_fails(standin: StandIn, tmp_path: Path, number: int) -> None:
    """The role of an endpoint whose traffic is captured: what fails is said by AWS, or is a log or a metric that is not
    there."""
    recipe = write_recipe(write_pair(tmp_path).parent, LIVES["encrypted and captured"])
    (document,) = (a.request["PolicyDocument"] for a in toolkit.plan(recipe).actions if a.kind == "RolePolicy")
    policy = json.loads(document)
    assert len(policy["Statement"]) == len(STATEMENTS)
    lost = policy["Statement"].pop(number)
    standin.account.iam.instead[document] = json.dumps(policy)
    said = ""
    try:
        live(recipe)
    except ToolkitError as error:
        said = str(error)
    actions = lost["Action"] if isinstance(lost["Action"], list) else [lost["Action"]]
    assert {action for action, _ in never_allowed(standin)} <= set(actions)
    assert never_allowed(standin)
    assert STATEMENTS[number] in said


def test_a_boundary_takes_away_what_the_policy_gives(standin: StandIn, tmp_path: Path) -> None:
    """IAM user guide, access_policies_boundaries: both have to allow it."""
    iam: Any = standin.session().client("iam")
    document = json.dumps(policy_of(allow("s3:*"), allow("logs:*")))
    boundary = iam.create_policy(PolicyName="boundary", PolicyDocument=document)["Policy"]["Arn"]
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=json.dumps(TRUST), PermissionsBoundary=boundary)
    iam.put_role_policy(RoleName="r", PolicyName="p", PolicyDocument=json.dumps(policy_of(allow("*"))))
    account, role = standin.account.iam, "arn:aws:iam::123456789012:role/r"
    assert not account.may(Access(role, "s3:GetObject", "arn:aws:s3:::b/k"))
    account.settle()
    assert account.may(Access(role, "s3:GetObject", "arn:aws:s3:::b/k"))
    assert not account.may(Access(role, "ecr:BatchGetImage", "*"))
    account.control_policies = [json.dumps(policy_of(allow("*"), {**allow("s3:GetObject"), "Effect": "Deny"}))]
    assert not account.may(Access(role, "s3:GetObject", "arn:aws:s3:::b/k"))


@pytest.mark.parametrize("name", ["scaled", "component", "shadow", "encrypted and captured", "in a VPC"])
def test_whoever_has_the_listed_rights_and_no_others_lives_a_life(standin: StandIn, tmp_path: Path, name: str) -> None:
    """But for what is done without where it is not allowed."""
    path = write_recipe(write_pair(tmp_path).parent, LIVES[name])
    needed = permissions(load(path), Account(ACCOUNT, "us-west-2"), scales_now=True)
    standin.account.iam.caller = Rights.of(item.statement() for item in needed)
    live(path)
    assert {access.action for access in standin.account.iam.refused if access.who == CALLER} <= WITHOUT_A_RIGHT


def test_an_organization_that_wants_a_tag(standin: StandIn, tmp_path: Path) -> None:
    """SCPs hold for whoever may do all: a recipe's tags are on what it makes."""
    tagged = {
        **allow("sagemaker:CreateModel"),
        "Effect": "Deny",
        "Condition": {"Null": {"aws:RequestTag/team": "true"}},
    }
    standin.account.iam.control_policies = [json.dumps(policy_of(allow("*"), tagged))]
    text = RECIPE + "tags: {team: search}\n"
    toolkit.deploy(write_recipe(write_pair(tmp_path).parent, text), progress=Silent())
    with pytest.raises(ToolkitError, match="explicit deny in a service control policy"):
        toolkit.deploy(write_recipe(tmp_path, RECIPE.replace("name: hub", "name: other")), progress=Silent())


def test_the_builds_role_takes_all_that_it_is_given(standin: StandIn) -> None:
    """A build from AWS's own base, pushed to a repository of the toolkit's."""
    clients = Clients(standin.session())
    bucket = make(standin, clients, IMAGE_PROJECT)
    variables = {
        "DESTINATION": f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/toolkit/hub:1",
        "BASE_IMAGE": "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:0.30",
    }
    build: Any = clients.codebuild.start_build(
        projectName=IMAGE_PROJECT.name,
        sourceLocationOverride=f"{bucket}/image-build/1.zip",
        environmentVariablesOverride=[{"name": name, "value": value} for name, value in variables.items()],
    )
    looks = [clients.codebuild.batch_get_builds(ids=[build["build"]["id"]])["builds"][0] for _ in range(9)]
    assert looks[-1]["buildStatus"] == "SUCCEEDED"
    assert never_allowed(standin) == set()
    assert needless(standin) == set()


def make(standin: StandIn, clients: Clients, project: Project) -> str:
    """The project, which CodeBuild takes only when it knows its role; the toolkit's bucket."""
    pauses: list[float] = []
    ensure_project(clients, project, lambda _: None, pauses.append)
    assert pauses
    return bucket_name(Account(ACCOUNT, "us-west-2"))
