"""Model packages, the versions in SageMaker's model registry, and the groups that they are versions of.

Only `toolkit register` makes them. A version is known again by the digest of the files that it was made from. That AWS
takes the requests is unverified: they are made from botocore's descriptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.planning.kinds import Decision
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import is_missing, unless
from toolkit.platforms.sagemaker.kinds.base import Look, SageMakerKind

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

RECIPE_FILE = "recipe.yaml"
"""The recipe's name among the files of a version."""

RECIPE, RECIPE_NAME, RECIPE_DIGEST = "toolkit:recipe", "toolkit:recipe-name", "toolkit:recipe-digest"
TRAINING_JOB, TOOLKIT = "toolkit:training-job", "toolkit:version"
"""Keys of a version's CustomerMetadataProperties: where its recipe lies and what it is, and where its head is from."""

_NEW = "PendingManualApproval"


class ModelPackageGroupKind(SageMakerKind):
    """The versions of one model. One that somebody else made is used as it is."""

    kind = "ModelPackageGroup"
    call = "model_package_group"
    may_be_foreign = True
    seen_when_new = True

    def observe(self, look: Look) -> Iterator[Existing]:
        for item in look.wanted(self.kind):
            ask = partial(self.describe, look.clients, item.name)
            if unless(look.clients, ask, is_missing, is_no_group) is not None:
                yield Existing(self.kind, item.name, False, (), {})


class ModelPackageKind(SageMakerKind):
    """A version. The plan names it by its group: SageMaker counts the versions itself."""

    kind = "ModelPackage"
    may_be_foreign = True
    seen_when_new = True
    updates = ("sagemaker", "UpdateModelPackage")

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return Decision("create", f"a new version, {resource.request['ModelApprovalStatus']}")
        number, status, wanted = existing.state["Version"], existing.state["Status"], resource.update
        if wanted and wanted["ModelApprovalStatus"] != status:
            change = {"ModelPackageArn": existing.state["Arn"], **wanted}
            return Decision("update", f"version {number} has been {status} so far", request=change)
        return Decision("reuse", f"version {number} is this, {status}")

    def observe(self, look: Look) -> Iterator[Existing]:
        for item in look.wanted(self.kind):
            digest = item.request["CustomerMetadataProperties"][RECIPE_DIGEST]
            for found in _versions(look.clients, item.name):
                if found.get("CustomerMetadataProperties", {}).get(RECIPE_DIGEST) == digest:
                    keys = {"Arn": "ModelPackageArn", "Version": "ModelPackageVersion", "Status": "ModelApprovalStatus"}
                    yield Existing(self.kind, item.name, False, (), {name: found[key] for name, key in keys.items()})
                    break


def version_of(name: str, request: Mapping[str, Any], status: str | None) -> Resource:
    """A version of the group `name`. Given a status, one that exists already gets it too."""
    body = {"ModelPackageGroupName": name, **request, "ModelApprovalStatus": status or _NEW}
    return Resource(ModelPackageKind.kind, name, body, {"ModelApprovalStatus": status} if status else {})


def newest(observed: Observed, group: str) -> Existing | None:
    """The version that was asked for, as it was observed."""
    return observed.get(ModelPackageKind.kind, group)


def is_no_group(error: Any) -> bool:
    """Whether AWS says that there is no such group or version, in words that users report (unverified)."""
    return "does not exist" in str(error.response["Error"].get("Message", ""))


def group_versions(clients: Clients, group: str, status: str = "") -> Iterator[Mapping[str, Any]]:
    """Summaries of a group's versions, or those of that status, the newest first; none where there is no such group."""
    wanted = {"ModelApprovalStatus": status} if status else {}
    newest_first = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 100}
    request: dict[str, Any] = {"ModelPackageGroupName": group, **newest_first, **wanted}
    while True:
        page = unless(clients, partial(clients.sagemaker.list_model_packages, **request), is_missing, is_no_group)
        if page is None:
            return
        yield from page["ModelPackageSummaryList"]
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def _versions(clients: Clients, group: str) -> Iterator[Mapping[str, Any]]:
    for item in group_versions(clients, group):
        yield clients.sagemaker.describe_model_package(ModelPackageName=item["ModelPackageArn"])
