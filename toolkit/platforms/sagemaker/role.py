"""The execution role of an endpoint: the recipe's, the environment's, or the one that this notebook runs under."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit import documents
from toolkit.errors import PlatformError, UsageError
from toolkit.platforms.sagemaker.aws_errors import is_denied, is_missing, unless
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.rules.access import PRINCIPAL, ROLE_VARIABLE

if TYPE_CHECKING:
    from types_boto3_iam.type_defs import RoleTypeDef

"""Environment variable that names the execution role, as an ARN or a role name."""

STUDIO_METADATA = Path("/opt/ml/metadata/resource-metadata.json")
"""Where Studio spaces and notebook instances say which ones they are."""

# SageMaker's RoleArn (botocore 1.44.5), with the partition to be told apart.
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_ASSUMED_ROLE = re.compile(r"arn:aws[a-z-]*:sts::\d{12}:assumed-role/(?P<name>[^/]+)/.*")


@dataclass(frozen=True)
class FoundRole:
    """An execution role. `source` says whose it is, in words."""

    arn: str
    source: str


@dataclass(frozen=True)
class _Metadata:
    """Who a Studio space or notebook instance is, in its own file.

    In some of these files the role itself stands: sagemaker-python-sdk pull request 5315.
    """

    DomainId: str | None = None
    ExecutionRoleArn: str | None = None
    ResourceName: str | None = None
    SpaceName: str | None = None
    UserProfileName: str | None = None

    def __str__(self) -> str:
        if self.DomainId is None:
            return f"the notebook instance {self.ResourceName}"
        return f"the SageMaker Studio space {self.SpaceName}" if self.SpaceName else f"SageMaker Studio {self.DomainId}"


def find_role(
    clients: Clients, *, written: str | None, environ: Mapping[str, str], studio_metadata: Path = STUDIO_METADATA
) -> FoundRole | None:
    """The execution role, None when one has to be made.

    Looked for in this order: `written`, what the recipe says (an ARN, a role name, or `create` for None);
    $TOOLKIT_EXECUTION_ROLE; the role of this Studio space or notebook instance; the role that the caller has taken, if
    SageMaker may take it too. Raises UsageError for what is no role, PlatformError for one that does not exist.
    """
    if written == "create":
        return None
    if written:
        return FoundRole(_find_named(clients, written, "platform.role"), "the recipe's")
    if value := environ.get(ROLE_VARIABLE):
        return FoundRole(_find_named(clients, value, f"${ROLE_VARIABLE}"), f"that of ${ROLE_VARIABLE}")
    with aws_errors("finding the execution role"):
        return _studio_role(clients, studio_metadata) or _own_role(clients)


def check_trust(document: Mapping[str, Any]) -> bool:
    """Whether a trust policy lets SageMaker take the role. Conditions are not evaluated."""
    statements = [item for item in _as_list(document.get("Statement")) if _is_about_sagemaker(item)]
    effects = {item.get("Effect") for item in statements}
    return "Allow" in effects and "Deny" not in effects


def assumed_role(clients: Clients, caller: str) -> RoleTypeDef | None:
    """The IAM role behind the caller's ARN, which lacks the role's path; None for others, or where nobody may look."""
    session = _ASSUMED_ROLE.fullmatch(caller)
    if session is None:
        return None
    answer = unless(clients, partial(clients.iam.get_role, RoleName=session["name"]), is_denied, is_missing)
    return answer["Role"] if answer else None


def _find_named(clients: Clients, written: str, key: str) -> str:
    if written.startswith("arn:"):
        if not _ROLE_ARN.fullmatch(written):
            hint = (
                "An ARN looks like arn:aws:iam::123456789012:role/NAME. To find it: aws iam get-role --role-name NAME"
            )
            raise UsageError(f"{key}: {written} is not the ARN of a role", hint=hint)
        return written
    with aws_errors(f"{key}: looking up the role {written}"):
        try:
            return clients.iam.get_role(RoleName=written)["Role"]["Arn"]
        except ClientError as error:
            if is_missing(error):
                hint = (
                    "Correct the name, or write `role: create`. Existing roles: aws iam list-roles --query Roles[].Arn"
                )
                raise PlatformError(f"{key}: role {written} does not exist", hint=hint) from error
            if is_denied(error):
                hint = "Write its ARN instead of its name."
                raise PlatformError(f"{key}: you are not allowed to read the role {written}", hint=hint) from error
            raise


def _own_role(clients: Clients) -> FoundRole | None:
    """The role that the caller has taken, if SageMaker may take it too: not that of a person or of a CI job."""
    role = assumed_role(clients, clients.sts.get_caller_identity()["Arn"])
    trust: Any = role["AssumeRolePolicyDocument"] if role else None  # botocore has parsed it
    return FoundRole(role["Arn"], "your own") if role and check_trust(trust) else None


def _studio_role(clients: Clients, path: Path) -> FoundRole | None:
    """The role of the space or notebook instance that we run in; it is an execution role by what it is for."""
    try:
        metadata = documents.parse(_Metadata, documents.read_file(path))
    except (OSError, ValueError):
        return None
    arn = metadata.ExecutionRoleArn or unless(clients, partial(_described_role, clients, metadata), is_denied)
    return FoundRole(arn, f"that of {metadata}") if arn else None


def _described_role(clients: Clients, metadata: _Metadata) -> str | None:
    if metadata.DomainId:
        return _domain_role(clients, metadata.DomainId, metadata)
    if not metadata.ResourceName:
        return None
    return clients.sagemaker.describe_notebook_instance(NotebookInstanceName=metadata.ResourceName)["RoleArn"]


def _domain_role(clients: Clients, domain: str, metadata: _Metadata) -> str | None:
    """A shared space has the domain's role for spaces, a private one that of its owner, who may have the domain's."""
    profile = metadata.UserProfileName
    described = clients.sagemaker.describe_domain(DomainId=domain)
    if space := metadata.SpaceName:
        found = clients.sagemaker.describe_space(DomainId=domain, SpaceName=space)
        if found.get("SpaceSharingSettings", {}).get("SharingType") != "Private":
            return described.get("DefaultSpaceSettings", {}).get("ExecutionRole")
        profile = found.get("OwnershipSettings", {}).get("OwnerUserProfileName", profile)
    if profile:
        owner = clients.sagemaker.describe_user_profile(DomainId=domain, UserProfileName=profile)
        if own := owner.get("UserSettings", {}).get("ExecutionRole"):
            return own
    return described.get("DefaultUserSettings", {}).get("ExecutionRole")


def _is_about_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    services = _as_list(principal.get("Service")) if isinstance(principal, Mapping) else []
    actions = [str(action).lower() for action in _as_list(statement.get("Action"))]
    return PRINCIPAL in services and any(fnmatchcase("sts:assumerole", action) for action in actions)


def _as_list(value: Any) -> list[Any]:
    """Policies write one thing without its list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
