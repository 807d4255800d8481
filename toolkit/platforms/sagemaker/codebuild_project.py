"""The CodeBuild project that builds images, one in each account and region, and the role that its builds run under.

It is made by the first build that asks for it, or before by an admin, with `template`: then nobody else needs rights on
IAM. One that exists is used as it is. What the role may do is what a recipe's Dockerfile may do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from toolkit.catalog import lookup
from toolkit.errors import BuildError
from toolkit.images.buildspec import buildspec
from toolkit.planning.names import VERSION_TAG
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.aws_errors import is_denied
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.role import IMAGE_ACTIONS
from toolkit.platforms.sagemaker.rules.access import allow, policy
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.version import __version__

if TYPE_CHECKING:
    from types_boto3_codebuild.type_defs import CreateProjectInputTypeDef, ProjectEnvironmentTypeDef
    from types_boto3_iam.type_defs import TagTypeDef

PROJECT = "toolkit-image-build"
LOG_GROUP = f"/aws/codebuild/{PROJECT}"
SOURCES = "image-build/"
"""In our bucket: what is being built from."""

PROJECT_PRINCIPAL = "codebuild.amazonaws.com"
"""The service that takes the project's role."""

_POLICY = "image-build"
_TAG: TagTypeDef = {"Key": VERSION_TAG, "Value": __version__}
# Curated by AWS, with Docker 28.5 (aws-codebuild-docker-images); that CodeBuild runs this very state is unverified.
_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
_COMPUTE: Final = "BUILD_GENERAL1_LARGE"  # AWS's vLLM images take more disk than the smaller ones have to spare
_TIMEOUT_MINUTES = 60
_PUSH = ["ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage"]
# A role that was just made is not known everywhere at once.
_ROLE_ATTEMPTS = 12
_ROLE_PAUSE_SECONDS = 5.0
_ROLE_UNKNOWN = "not authorized to perform: sts:AssumeRole"


def unavailable(clients: Clients) -> str | None:
    """Why nothing is built with CodeBuild unless that is asked for, None when there is a project."""
    try:
        return None if _exists(clients) else f"project {PROJECT} does not exist"
    except ClientError as error:
        if is_denied(error):
            return f"you are not allowed to check whether project {PROJECT} exists"
        raise


def ensure_project(clients: Clients, log: Callable[[str], None], sleep: Callable[[float], None]) -> None:
    """See that the project is there. Raises BuildError when it is not and may not be made."""
    account = clients.account
    try:
        if _exists(clients):
            return
        log(f"creating the CodeBuild project {PROJECT}")
        _make_role(clients, account)
        _make_project(clients, account, log, sleep)
    except ClientError as error:
        if is_denied(error):
            message = f"codebuild: the project {PROJECT} is needed, and {error.operation_name} is denied"
            hint = (
                "Give an admin what `toolkit build RECIPE --admin-template` prints: a CloudFormation template of "
                "project and role. Using them takes no rights on IAM."
            )
            raise BuildError(message, hint=hint) from error
        raise


def template(account: Account) -> dict[str, Any]:
    """Project and role for CloudFormation, just as a build would make them. Whether AWS takes it is unverified."""
    inline = {"PolicyName": _POLICY, "PolicyDocument": policy(*_statements(account))}
    role = {
        "RoleName": project_role(account),
        "AssumeRolePolicyDocument": policy(_trust(account)),
        "Policies": [inline],
        "Tags": [_TAG],
    }
    project = {**_in_cloudformation(_project(account)), "ServiceRole": {"Fn::GetAtt": ["Role", "Arn"]}}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"What toolkit build --with codebuild needs in {account.id}, {account.region}",
        "Resources": {
            "Role": {"Type": "AWS::IAM::Role", "Properties": role},
            "Project": {"Type": "AWS::CodeBuild::Project", "Properties": project},
        },
    }


def project_arn(account: Account) -> str:
    """The project's name in policies."""
    return f"arn:{account.partition}:codebuild:{account.region}:{account.id}:project/{PROJECT}"


def _exists(clients: Clients) -> bool:
    return bool(clients.codebuild.batch_get_projects(names=[PROJECT])["projects"])


def project_role(account: Account) -> str:
    """IAM has one list of names for all regions."""
    return f"{PROJECT}-{account.region}"


def _make_role(clients: Clients, account: Account) -> None:
    name, trust, tag = project_role(account), json.dumps(policy(_trust(account))), _TAG
    try:
        clients.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, Tags=[tag])
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityAlreadyExists":
            raise
        if VERSION_TAG not in {tag["Key"] for tag in clients.iam.list_role_tags(RoleName=name)["Tags"]}:
            message = f"codebuild: role {name} exists and was not created by the toolkit"
            raise BuildError(message, hint=f"Remove that role, or create the project {PROJECT} yourself.") from error
    document = json.dumps(policy(*_statements(account)))
    clients.iam.put_role_policy(RoleName=name, PolicyName=_POLICY, PolicyDocument=document)


def _trust(account: Account) -> dict[str, Any]:
    """Only this project may take the role, and no other account's through CodeBuild (confused deputy)."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": PROJECT_PRINCIPAL},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": account.id, "aws:SourceArn": project_arn(account)}},
    }


def _statements(account: Account) -> list[dict[str, Any]]:
    """Read the source, write the log, pull from this account and from AWS's registry, push where the toolkit pushes."""
    owner = f"{account.region}:{account.id}"
    arn = f"arn:{account.partition}"
    group = f"{arn}:logs:{owner}:log-group:{LOG_GROUP}"
    registries = [account.id, *filter(None, [lookup.registries().get(account.region)])]
    bases = [f"{arn}:ecr:{account.region}:{number}:repository/*" for number in registries]
    return [
        allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], [group, f"{group}:*"]),
        allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{arn}:s3:::{bucket_name(account)}/{SOURCES}*"]),
        allow(["ecr:GetAuthorizationToken"], ["*"]),  # which no resource limits
        allow(IMAGE_ACTIONS, bases),
        allow(_PUSH, [f"{arn}:ecr:{owner}:repository/toolkit/*"]),
    ]


def _project(account: Account) -> CreateProjectInputTypeDef:
    environment: ProjectEnvironmentTypeDef = {
        "type": "LINUX_CONTAINER",
        "image": _IMAGE,
        "computeType": _COMPUTE,
        "privilegedMode": True,  # there is no Docker engine without
    }
    return {
        "name": PROJECT,
        "description": "Builds container images for endpoints (toolkit build)",
        # Each build names its own source.
        "source": {
            "type": "S3",
            "location": f"{bucket_name(account)}/{SOURCES}none.zip",
            "buildspec": buildspec(),
        },
        "artifacts": {"type": "NO_ARTIFACTS"},
        "environment": environment,
        "serviceRole": f"arn:{account.partition}:iam::{account.id}:role/{project_role(account)}",
        "timeoutInMinutes": _TIMEOUT_MINUTES,
        "logsConfig": {"cloudWatchLogs": {"status": "ENABLED", "groupName": LOG_GROUP}},
        "tags": [{"key": VERSION_TAG, "value": __version__}],
    }


def _in_cloudformation(value: Any) -> Any:
    """With CloudFormation's names, which begin with capitals."""
    if isinstance(value, list):
        return [_in_cloudformation(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {"buildspec": "BuildSpec"}
    return {names.get(key, key[0].upper() + key[1:]): _in_cloudformation(item) for key, item in value.items()}


def _make_project(
    clients: Clients, account: Account, log: Callable[[str], None], sleep: Callable[[float], None]
) -> None:
    request = _project(account)
    for attempt in range(1, _ROLE_ATTEMPTS + 1):
        try:
            clients.codebuild.create_project(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceAlreadyExistsException":
                return  # somebody else's build was faster, or an answer of ours was lost
            if attempt == _ROLE_ATTEMPTS or _ROLE_UNKNOWN not in error.response["Error"]["Message"]:
                raise
            log("waiting until the new role is available")
            sleep(_ROLE_PAUSE_SECONDS)
        else:
            return
