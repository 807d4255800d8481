"""Projects of CodeBuild, one of a name in each account and region, and the role that its builds run under.

One is made by the first build that asks for it, or before by an admin, with `template`: then nobody else needs rights
on IAM. One that exists is used as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from toolkit.errors import BuildError
from toolkit.planning.names import VERSION_TAG
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.aws_errors import is_denied
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.rules.access import allow, policy
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.version import __version__

if TYPE_CHECKING:
    from types_boto3_codebuild.type_defs import CreateProjectInputTypeDef, ProjectEnvironmentTypeDef
    from types_boto3_iam.type_defs import TagTypeDef

PROJECT_PRINCIPAL = "codebuild.amazonaws.com"
"""The service that takes a project's role."""

# Curated by AWS, with Docker 28.5 and Python 3.12 (aws-codebuild-docker-images); that CodeBuild runs this very state is
# unverified.
_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
# Of images: AWS's of vLLM take more disk than the smaller ones have to spare. Of weights: eight cores hash.
_COMPUTE: Final = "BUILD_GENERAL1_LARGE"
# A role that was just made is not known everywhere at once.
_ROLE_ATTEMPTS = 12
_ROLE_PAUSE_SECONDS = 5.0
_ROLE_UNKNOWN = "not authorized to perform: sts:AssumeRole"


@dataclass(frozen=True)
class Project:
    """One such project. `sources` is the prefix in our bucket of what its builds work on.

    `statements` are what its role may do, beside reading that and writing its log, in the inline policy `role_policy`.
    `template_command` prints what an admin makes it with. `tags` are on both; `boundary` bounds the role.
    """

    name: str
    description: str
    buildspec: str
    sources: str
    minutes: int
    role_policy: str
    statements: Callable[[Account], list[dict[str, Any]]]
    template_command: str
    privileged: bool = False
    role_path: str = "/"
    boundary: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    by_admin: bool = False
    """Whether only an admin makes it."""

    @property
    def log_group(self) -> str:
        """Where its builds write."""
        return f"/aws/codebuild/{self.name}"

    def arn(self, account: Account) -> str:
        """The project's name in policies."""
        return f"arn:{account.partition}:codebuild:{account.region}:{account.id}:project/{self.name}"

    def role(self, account: Account) -> str:
        """Its role's name: IAM has one list of names for all regions."""
        return f"{self.name}-{account.region}"

    def role_arn(self, account: Account) -> str:
        """With its path."""
        return f"arn:{account.partition}:iam::{account.id}:role{self.role_path}{self.role(account)}"

    def all_tags(self) -> dict[str, str]:
        """Those that are asked for and the toolkit's, of project and role."""
        return {**self.tags, VERSION_TAG: __version__}


def unavailable(clients: Clients, project: Project) -> str | None:
    """Why nothing is built with CodeBuild unless that is asked for, None when there is a project."""
    try:
        return None if _exists(clients, project) else f"project {project.name} does not exist"
    except ClientError as error:
        if is_denied(error):
            return f"you are not allowed to check whether project {project.name} exists"
        raise


def ensure_project(
    clients: Clients, project: Project, log: Callable[[str], None], sleep: Callable[[float], None]
) -> None:
    """See that the project is there. Raises BuildError when it is not and may not be made."""
    account = clients.account
    try:
        if _exists(clients, project):
            return
        if project.by_admin:
            message = f"codebuild: the project {project.name} does not exist, and with `platform.role` no role is made"
            raise BuildError(message, hint=_admin_hint(project))
        log(f"creating the CodeBuild project {project.name}")
        _make_role(clients, project, account)
        _make_project(clients, project, account, log, sleep)
    except ClientError as error:
        if is_denied(error):
            message = f"codebuild: the project {project.name} is needed, and {error.operation_name} is denied"
            raise BuildError(message, hint=_admin_hint(project)) from error
        raise


def _admin_hint(project: Project) -> str:
    return (
        f"Give an admin what `{project.template_command}` prints: a CloudFormation template of project and role. Using "
        "them takes no rights on IAM."
    )


def template(account: Account, project: Project) -> dict[str, Any]:
    """Project and role for CloudFormation, just as a build would make them. Whether AWS takes it is unverified."""
    inline = {"PolicyName": project.role_policy, "PolicyDocument": policy(*_statements(project, account))}
    role = {
        "RoleName": project.role(account),
        "Path": project.role_path,
        **({"PermissionsBoundary": project.boundary} if project.boundary else {}),
        "AssumeRolePolicyDocument": policy(_trust(project, account)),
        "Policies": [inline],
        "Tags": _role_tags(project),
    }
    made = {**_in_cloudformation(_request(project, account)), "ServiceRole": {"Fn::GetAtt": ["Role", "Arn"]}}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"{project.description}, in {account.id}, {account.region}",
        "Resources": {
            "Role": {"Type": "AWS::IAM::Role", "Properties": role},
            "Project": {"Type": "AWS::CodeBuild::Project", "Properties": made},
        },
    }


def _exists(clients: Clients, project: Project) -> bool:
    return bool(clients.codebuild.batch_get_projects(names=[project.name])["projects"])


def _make_role(clients: Clients, project: Project, account: Account) -> None:
    name, trust = project.role(account), json.dumps(policy(_trust(project, account)))
    bounded: dict[str, Any] = {"PermissionsBoundary": project.boundary} if project.boundary else {}
    tags = _role_tags(project)
    try:
        clients.iam.create_role(
            RoleName=name, Path=project.role_path, AssumeRolePolicyDocument=trust, Tags=tags, **bounded
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityAlreadyExists":
            raise
        if VERSION_TAG not in {tag["Key"] for tag in clients.iam.list_role_tags(RoleName=name)["Tags"]}:
            message = f"codebuild: role {name} exists and was not created by the toolkit"
            hint = f"Remove that role, or create the project {project.name} yourself."
            raise BuildError(message, hint=hint) from error
        clients.iam.update_assume_role_policy(RoleName=name, PolicyDocument=trust)  # it may have trusted others
        if project.boundary:
            clients.iam.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=project.boundary)
    document = json.dumps(policy(*_statements(project, account)))
    clients.iam.put_role_policy(RoleName=name, PolicyName=project.role_policy, PolicyDocument=document)


def _role_tags(project: Project) -> list[TagTypeDef]:
    return [{"Key": key, "Value": value} for key, value in project.all_tags().items()]


def _trust(project: Project, account: Account) -> dict[str, Any]:
    """Only this project may take the role, and no other account's through CodeBuild (confused deputy)."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": PROJECT_PRINCIPAL},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": account.id, "aws:SourceArn": project.arn(account)}},
    }


def _statements(project: Project, account: Account) -> list[dict[str, Any]]:
    """Write the log, read the source, and what the project is for."""
    arn = f"arn:{account.partition}"
    group = f"{arn}:logs:{account.region}:{account.id}:log-group:{project.log_group}"
    return [
        allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], [group, f"{group}:*"]),
        allow(["s3:GetObject", "s3:GetObjectVersion"], [f"{arn}:s3:::{bucket_name(account)}/{project.sources}*"]),
        *project.statements(account),
    ]


def _request(project: Project, account: Account) -> CreateProjectInputTypeDef:
    environment: ProjectEnvironmentTypeDef = {
        "type": "LINUX_CONTAINER",
        "image": _IMAGE,
        "computeType": _COMPUTE,
        "privilegedMode": project.privileged,
    }
    return {
        "name": project.name,
        "description": project.description,
        # Each build names its own source.
        "source": {
            "type": "S3",
            "location": f"{bucket_name(account)}/{project.sources}none.zip",
            "buildspec": project.buildspec,
        },
        "artifacts": {"type": "NO_ARTIFACTS"},
        "environment": environment,
        "serviceRole": project.role_arn(account),
        "timeoutInMinutes": project.minutes,
        "logsConfig": {"cloudWatchLogs": {"status": "ENABLED", "groupName": project.log_group}},
        "tags": [{"key": key, "value": value} for key, value in project.all_tags().items()],
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
    clients: Clients,
    project: Project,
    account: Account,
    log: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    request = _request(project, account)
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
