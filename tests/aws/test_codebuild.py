"""Images built with CodeBuild: its project and role, its builds and their logs, and every way that they end.

What the builds do is tests/images/test_buildspec.py's affair: here the image is in the registry before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint
from pairs import HUB_RECIPE, write_hub_pair
from small_images import push_base, spec
from standin import ACCOUNT, StandIn
from standin_codebuild import BuildScript
from standin_user import clients_with

from toolkit.apply.progress import Silent
from toolkit.errors import BuildError, PlatformError
from toolkit.images.auth import anonymous
from toolkit.images.buildspec import buildspec
from toolkit.images.manifest import OCI, SCHEMA_2
from toolkit.images.registry import Registry
from toolkit.loading import load
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.build import CodeBuildBuilder, build_image
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import template
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.kinds.image import images
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.recipe.recipe import Recipe

BUCKET = f"toolkit-{ACCOUNT}-us-west-2"
PROJECT = f"arn:aws:codebuild:us-west-2:{ACCOUNT}:project/toolkit-image-build"
ROLE = "toolkit-image-build-us-west-2"
AWS_BASE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:1"
ROLE_UNKNOWN = f"CodeBuild is not authorized to perform: sts:AssumeRole on arn:aws:iam::{ACCOUNT}:role/{ROLE}"
DOCKER_LOG = (
    "[Container] 2026/01/01 10:00:00.000000 Entering phase BUILD",
    "Step 1/2 : FROM base",
    "Step 2/2 : RUN make",
    "make: *** No targets.  Stop.",
    "The command '/bin/sh -c make' returned a non-zero code: 2",
    "[Container] 2026/01/01 10:01:00.000000 Phase complete: BUILD State: FAILED_WITH_ABORT",
)

Make = Callable[..., str]


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return clients_with(standin, BUCKET)


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def build(clients: Clients, host: str, waited: list[float], lines: list[str]) -> Make:
    """Build an image on a base, as which there is one already where the first two builds push; the digest."""
    with Registry(host) as registry:
        for number in (1, 2):
            push_base(registry, "toolkit/image", f"1-staged-{number}")
        push_base(registry, "toolkit/oci", "1-staged-1", media_type=OCI)

    def make(base: str = "base:1", repository: str = "toolkit/image", log: Callable[[str], None] = lines.append) -> str:
        builder = CodeBuildBuilder(clients, anonymous, sleep=waited.append)
        return builder.build(spec(base), f"{host}/{repository}:1", log)

    return make


@pytest.fixture
def recipe(host: str, tmp_path: Path) -> Recipe:
    """A recipe whose image needs a RUN."""
    (tmp_path / "fragment").write_text("RUN make\n")
    custom = f"container: {{base: '{host}/base:1', dockerfile: fragment}}\nplatform: {{role: create, weights: hub, "
    return load(write_hub_pair(tmp_path, HUB_RECIPE.replace("platform: {", custom)))


def operations(standin: StandIn, *services: str) -> list[str]:
    return [call.operation for call in standin.calls if call.service in services]


def statements(clients: Clients) -> list[dict[str, Any]]:
    (name,) = clients.iam.list_role_policies(RoleName=ROLE)["PolicyNames"]
    document: Any = clients.iam.get_role_policy(RoleName=ROLE, PolicyName=name)["PolicyDocument"]
    return list(document["Statement"])


# The project and its role


def test_the_first_build_makes_the_project(build: Make, clients: Clients) -> None:
    build()
    (project,) = clients.codebuild.batch_get_projects(names=["toolkit-image-build"])["projects"]
    assert project["source"]["buildspec"] == buildspec()
    assert project["environment"]["privilegedMode"] is True
    assert project["serviceRole"] == f"arn:aws:iam::{ACCOUNT}:role/{ROLE}"
    assert {tag["key"] for tag in project["tags"]} == {"toolkit:version"}


def test_only_the_project_may_take_the_role(build: Make, clients: Clients) -> None:
    build()
    trust: Any = clients.iam.get_role(RoleName=ROLE)["Role"]["AssumeRolePolicyDocument"]
    (statement,) = trust["Statement"]
    assert statement["Principal"] == {"Service": "codebuild.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": PROJECT}


def test_the_role_may_do_what_a_build_needs_and_no_more(build: Make, clients: Clients) -> None:
    build()
    allowed = {action: item["Resource"] for item in statements(clients) for action in item["Action"]}
    assert not [action for action in allowed if "*" in action]
    assert [action for action, resources in allowed.items() if "*" in resources] == ["ecr:GetAuthorizationToken"]
    assert allowed["s3:GetObject"] == [f"arn:aws:s3:::{BUCKET}/image-build/*"]
    assert allowed["ecr:PutImage"] == [f"arn:aws:ecr:us-west-2:{ACCOUNT}:repository/toolkit/*"]
    assert {action.partition(":")[0] for action in allowed} == {"logs", "s3", "ecr"}


def test_a_project_that_exists_is_used_as_it_is(build: Make, standin: StandIn) -> None:
    build()
    standin.calls.clear()
    standin.account.denied = {"codebuild:CreateProject", "iam:CreateRole", "iam:PutRolePolicy"}
    build()
    assert operations(standin, "iam") == []
    assert "StartBuild" in operations(standin, "codebuild")


@pytest.mark.parametrize("action", ["iam:CreateRole", "iam:PutRolePolicy", "codebuild:CreateProject"])
def test_who_may_not_make_it_is_sent_to_an_admin(build: Make, standin: StandIn, action: str) -> None:
    standin.account.denied = {action}
    with pytest.raises(BuildError, match=f"toolkit-image-build is needed, and {action.partition(':')[2]}") as refused:
        build()
    assert "toolkit build RECIPE --admin-template" in refused.value.hint


def test_the_admins_template_makes_what_the_first_build_makes(build: Make, clients: Clients) -> None:
    build()
    made = template(Account(ACCOUNT, "us-west-2"), IMAGE_PROJECT)["Resources"]
    (project,) = clients.codebuild.batch_get_projects(names=["toolkit-image-build"])["projects"]
    role = clients.iam.get_role(RoleName=ROLE)["Role"]
    assert made["Project"]["Properties"]["Source"]["BuildSpec"] == project["source"]["buildspec"]
    assert made["Project"]["Properties"]["Environment"]["ComputeType"] == project["environment"]["computeType"]
    assert made["Role"]["Properties"]["AssumeRolePolicyDocument"] == role["AssumeRolePolicyDocument"]
    assert made["Role"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"] == statements(clients)


@pytest.mark.parametrize("region", ["us-west-2", "cn-north-1"])
def test_cloudformation_knows_all_that_the_template_says(region: str) -> None:
    text = json.dumps(template(Account(ACCOUNT, region), IMAGE_PROJECT))
    assert [f"{found.rule.id}: {found.message}" for found in lint(text, regions=[region])] == []


def test_a_role_that_is_not_known_everywhere_yet_is_waited_for(
    build: Make, standin: StandIn, waited: list[float]
) -> None:
    standin.faults.fail("CreateProject", "InvalidInputException", ROLE_UNKNOWN, times=2)
    build()
    assert waited[:2] == [5.0, 5.0]


def test_a_role_that_stays_unknown_is_told(build: Make, standin: StandIn) -> None:
    standin.faults.fail("CreateProject", "InvalidInputException", ROLE_UNKNOWN, times=100)
    with pytest.raises(PlatformError, match="sts:AssumeRole"), aws_errors("building"):
        build()


@pytest.mark.parametrize("operation", ["CreateRole", "PutRolePolicy", "CreateProject", "StartBuild"])
def test_a_lost_answer_makes_nothing_twice(build: Make, standin: StandIn, operation: str) -> None:
    standin.faults.drop(operation, when="after")
    build()
    assert len(standin.codebuild.started) == 1


def test_a_role_of_somebody_elses_is_not_taken(build: Make, clients: Clients, standin: StandIn) -> None:
    clients.iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
    with pytest.raises(BuildError, match=f"role {ROLE} exists and was not created by the toolkit"):
        build()
    assert "CreateProject" not in operations(standin, "codebuild")


def test_a_role_that_was_made_half_before_trusts_nobody_else(build: Make, clients: Clients) -> None:
    """One of ours that somebody opened, or that an earlier version made: its one policy is written anew."""
    anybody = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
    }
    tag = [{"Key": "toolkit:version", "Value": "0.1"}]
    clients.iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(anybody), Tags=tag)  # type: ignore[arg-type]
    old = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
    clients.iam.put_role_policy(RoleName=ROLE, PolicyName="image-build", PolicyDocument=json.dumps(old))
    build()
    trust: Any = clients.iam.get_role(RoleName=ROLE)["Role"]["AssumeRolePolicyDocument"]
    assert [item["Principal"] for item in trust["Statement"]] == [{"Service": "codebuild.amazonaws.com"}]
    assert "ecr:PutImage" in [action for item in statements(clients) for action in item["Action"]]


# A build


def test_the_digest_is_the_registrys(build: Make, host: str) -> None:
    digest = build()
    with Registry(host) as registry:
        manifest = registry.find_manifest("toolkit/image", "1")
    assert manifest is not None
    assert digest == manifest.digest


def test_an_image_that_an_engine_pushed_as_oci_gets_its_tag_as_schema_2(build: Make, host: str) -> None:
    digest = build(repository="toolkit/oci")
    with Registry(host) as registry:
        manifest = registry.find_manifest("toolkit/oci", "1")
    assert manifest is not None
    assert (manifest.media_type, manifest.digest) == (SCHEMA_2, digest)


def test_an_image_that_did_not_arrive_is_missed(build: Make) -> None:
    with pytest.raises(BuildError, match=r"image .*/toolkit/nothing:1-staged-1 does not exist"):
        build(repository="toolkit/nothing")


def test_a_build_is_told_its_variables_and_its_source_and_nothing_else(
    build: Make, standin: StandIn, host: str
) -> None:
    build(base=AWS_BASE)
    (request,) = standin.codebuild.started
    variables = {item["name"]: item["value"] for item in request.pop("environmentVariablesOverride")}
    assert variables == {
        "DESTINATION": f"{host}/toolkit/image:1",
        "BASE_IMAGE": AWS_BASE,
        "BASE_REGISTRY": "763104351884.dkr.ecr.us-west-2.amazonaws.com",
        "BASE_REGION": "us-west-2",
    }
    assert request.pop("sourceLocationOverride").startswith(f"{BUCKET}/image-build/")
    assert request.keys() == {"projectName", "idempotencyToken"}


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_the_source_is_removed_after(build: Make, standin: StandIn, status: str) -> None:
    standin.codebuild.script = BuildScript(status)
    try:
        build()
    except BuildError:
        assert status == "FAILED"
    assert "PutObject" in operations(standin, "s3")
    assert not [item for item in standin.leftovers() if "image-build/" in item]


def test_every_line_of_the_log_comes_once(build: Make, standin: StandIn, lines: list[str]) -> None:
    written = [f"line {number}" for number in range(40)]
    standin.codebuild.script = BuildScript(log=written)
    build()
    assert [line for line in lines if line.startswith("line")] == written


def test_the_phases_are_told_before_there_is_a_log(build: Make, lines: list[str]) -> None:
    build()
    phases = [line for line in lines if line.startswith("codebuild: ")]
    assert phases[:2] == ["codebuild: PROVISIONING", "codebuild: DOWNLOAD_SOURCE"]


def test_who_may_not_read_the_log_can_build(build: Make, standin: StandIn, lines: list[str]) -> None:
    standin.account.denied = {"logs:GetLogEvents"}
    build()
    assert lines.count("codebuild: you may not read its log (logs:GetLogEvents)") == 1


@pytest.mark.parametrize("operation", ["BatchGetProjects", "CreateProject", "StartBuild", "BatchGetBuilds"])
def test_throttling_is_outlived(build: Make, standin: StandIn, operation: str) -> None:
    standin.faults.throttle(operation, times=3)
    assert build().startswith("sha256:")


def test_throttling_loses_no_line(build: Make, standin: StandIn, lines: list[str]) -> None:
    written = [f"line {number}" for number in range(40)]
    standin.codebuild.script = BuildScript(log=written)
    standin.faults.throttle("GetLogEvents", times=3)
    build()
    assert [line for line in lines if line.startswith("line")] == written


# Ends without an image


def test_a_failing_step_is_named_with_the_last_lines(build: Make, standin: StandIn) -> None:
    standin.codebuild.script = BuildScript("FAILED", "BUILD", "exit status 2", DOCKER_LOG)
    with pytest.raises(BuildError, match=r"FAILED in BUILD: step `RUN make` failed: .* non-zero code: 2") as refused:
        build()
    assert "| make: *** No targets.  Stop.\n" in refused.value.message
    assert "container.dockerfile" in refused.value.hint
    assert "[Container]" not in refused.value.message


@pytest.mark.parametrize(
    ("script", "said", "hint"),
    [
        (
            BuildScript("FAILED", "BUILD", "exit status 1", ("Step 1/2 : FROM base", "pull access denied", "")),
            "cannot pull the base image base",
            ROLE,
        ),
        (
            BuildScript("FAILED", "POST_BUILD", "exit status 1", ("denied: not authorized: ecr:PutImage", "")),
            "cannot push .*toolkit/image:1: denied",
            ROLE,
        ),
        (
            BuildScript("FAILED", "PRE_BUILD", "Error while executing: aws ecr", ("AccessDeniedException", "")),
            "FAILED in PRE_BUILD: Error while executing",
            ROLE,
        ),
        (BuildScript("FAILED", "DOWNLOAD_SOURCE", "AccessDenied"), "FAILED in DOWNLOAD_SOURCE: AccessDenied", ROLE),
        (BuildScript("TIMED_OUT", "BUILD", "Too long."), "TIMED_OUT in BUILD: Too long", "timeoutInMinutes"),
        (BuildScript("STOPPED", "BUILD"), "STOPPED in BUILD", "Somebody stopped it"),
        (BuildScript("FAULT", "PROVISIONING", "Internal"), "FAULT in PROVISIONING: Internal", "build again"),
    ],
    ids=["base", "push", "login", "source", "time", "stopped", "fault"],
)
def test_every_end_says_what_to_do(build: Make, standin: StandIn, script: BuildScript, said: str, hint: str) -> None:
    standin.codebuild.script = script
    with pytest.raises(BuildError, match=said) as refused:
        build()
    assert hint in refused.value.hint


def test_ctrl_c_stops_the_build(build: Make, standin: StandIn) -> None:
    def interrupt(line: str) -> None:
        if line == "codebuild: BUILD":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(log=interrupt)
    assert operations(standin, "codebuild")[-1] == "StopBuild"
    assert not [item for item in standin.leftovers() if "image-build/" in item]


def test_ctrl_c_ends_us_even_where_the_build_cannot_be_stopped(build: Make, standin: StandIn, lines: list[str]) -> None:
    def interrupt(line: str) -> None:
        lines.append(line)
        if line == "codebuild: BUILD":
            raise KeyboardInterrupt

    standin.account.denied = {"codebuild:StopBuild"}
    with pytest.raises(KeyboardInterrupt):
        build(log=interrupt)
    assert "may still be running" in lines[-1]


def test_a_build_that_we_lost_sight_of_is_taken_up(build: Make, standin: StandIn) -> None:
    standin.faults.fail("GetLogEvents", "InternalFailure", status=500, times=100)
    with pytest.raises(PlatformError), aws_errors("building"):
        build()
    standin.faults.clear()
    build()
    assert len(standin.codebuild.started) == 1


def test_after_one_that_failed_the_same_command_builds_anew(build: Make, standin: StandIn) -> None:
    standin.codebuild.script = BuildScript("FAULT", "BUILD")
    with pytest.raises(BuildError):
        build()
    standin.codebuild.script = BuildScript()
    assert build().startswith("sha256:")
    assert len(standin.codebuild.started) == 2


# Who builds with it


def test_without_docker_a_project_that_is_there_is_used(
    build: Make,
    clients: Clients,
    recipe: Recipe,
    host: str,
    standin: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build()
    request = images(recipe, Account(ACCOUNT, "us-west-2"))[-1].request
    with Registry(host) as registry:
        push_base(registry, request["Repository"], f"{request['Tag']}-staged-2")
    clients.ecr.create_repository(repositoryName=request["Repository"])
    standin.account.registry.host = host
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_image(clients, request, Silent(), lambda _: None).startswith("sha256:")
    assert len(standin.codebuild.started) == 2


def test_without_docker_no_project_is_made_unasked(
    clients: Clients, recipe: Recipe, host: str, standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = images(recipe, Account(ACCOUNT, "us-west-2"))[-1].request
    standin.account.registry.host = host
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="codebuild: project toolkit-image-build does not exist") as refused:
        build_image(clients, request, Silent(), lambda _: None)
    assert "--with codebuild" in refused.value.hint


def test_a_recipe_that_names_it_asks_for_its_rights(recipe: Recipe) -> None:
    text = recipe.path.read_text()
    recipe.path.write_text(text.replace("dockerfile: fragment", "dockerfile: fragment, builder: codebuild"))
    needed = permissions(load(recipe.path), Account(ACCOUNT, "us-west-2"))
    (starting,) = [item for item in needed if "codebuild:StartBuild" in item.actions]
    assert starting.resources == (PROJECT,)
    assert not [item for item in permissions(recipe, Account(ACCOUNT, "us-west-2")) if "codebuild:" in str(item)]
