"""SageMaker's model registry: groups, versions, their approval. moto keeps neither all fields nor their order.

Rules are those of botocore's documentation of CreateModelPackage; messages are what users report, where not marked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.s3.models import s3_backends
from standin_http import Call, page

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError, now

_SUMMARY = (
    "ModelPackageGroupName",
    "ModelPackageVersion",
    "ModelPackageArn",
    "CreationTime",
    "ModelPackageStatus",
    "ModelApprovalStatus",
)
_CHANGED = ("ModelApprovalStatus", "ApprovalDescription")


@dataclass
class Packages:
    """Groups with their versions, by region and name."""

    _groups: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def operations(self) -> Mapping[str, Callable[[Call], object]]:
        """By their names in the journal."""
        return {
            "sagemaker:CreateModelPackageGroup": self._create_group,
            "sagemaker:DescribeModelPackageGroup": self._describe_group,
            "sagemaker:DeleteModelPackageGroup": self._delete_group,
            "sagemaker:CreateModelPackage": self._create,
            "sagemaker:DescribeModelPackage": self._describe,
            "sagemaker:ListModelPackages": self._list,
            "sagemaker:UpdateModelPackage": self._update,
            "sagemaker:DeleteModelPackage": self._delete,
        }

    def leftovers(self) -> list[str]:
        """What exists, as "service kind name"."""
        return [f"sagemaker model-package-group {name}" for _, name in self._groups]

    def _create_group(self, call: Call) -> object:
        name = call.request["ModelPackageGroupName"]
        if (call.region, name) in self._groups:
            raise ServiceError(f"Model Package Group already exists: {_group_arn(call, name)}")
        self._groups[call.region, name] = []
        return {"ModelPackageGroupArn": _group_arn(call, name)}

    def _describe_group(self, call: Call) -> object:
        name = call.request["ModelPackageGroupName"]
        self._versions(call)
        return {
            "ModelPackageGroupName": name,
            "ModelPackageGroupArn": _group_arn(call, name),
            "CreationTime": now(),
            "CreatedBy": {},
            "ModelPackageGroupStatus": "Completed",
        }

    def _delete_group(self, call: Call) -> object:
        if self._versions(call):  # botocore, DeleteModelPackageGroup of the guide: versions first; unverified wording
            message = "Model Package Group can't be deleted because it has Model Packages in it."
            raise ServiceError(message, code="ConflictException")  # the only error of it in the API reference
        del self._groups[call.region, call.request["ModelPackageGroupName"]]
        return {}

    def _create(self, call: Call) -> object:
        """A version. What its containers name must be there, in the words of CreateModel."""
        request, versions = call.request, self._versions(call)
        if "Tags" in request:  # botocore, CreateModelPackage.Tags: "you cannot supply a tag argument"
            raise ServiceError("Tags cannot be supplied for a model package that belongs to a group.")
        for container in request["InferenceSpecification"]["Containers"]:
            sources = [container.get("ModelDataSource"), *container.get("AdditionalModelDataSources", ())]
            for uri in [source["S3DataSource"]["S3Uri"] for source in sources if source]:
                bucket, _, prefix = uri.removeprefix("s3://").partition("/")
                there = s3_backends[ACCOUNT]["aws"].buckets.get(bucket)
                if there is None or not any(key.startswith(prefix) for key in dict(there.keys)):
                    raise ServiceError(f"Could not find model data at {uri}.")
        number = max((item["ModelPackageVersion"] for item in versions), default=0) + 1
        name = request["ModelPackageGroupName"]
        arn = Region(call.region).arn("model-package", f"{name}/{number}")
        kept = {key: value for key, value in request.items() if key != "ClientToken"}
        status = {"ModelPackageVersion": number, "ModelPackageArn": arn, "ModelPackageStatus": "Completed"}
        details = {"ModelPackageName": name, "ModelPackageStatusDetails": {"ValidationStatuses": []}}
        versions.append(
            {"ModelApprovalStatus": "PendingManualApproval", **kept, **status, **details, "CreationTime": now()}
        )
        return {"ModelPackageArn": arn}

    def _describe(self, call: Call) -> object:
        return self._find(call, call.request["ModelPackageName"])

    def _list(self, call: Call) -> object:
        request = call.request
        if "ModelPackageGroupName" in request:
            found = list(self._versions(call))
        else:
            wanted = request.get("ModelPackageType", "Unversioned") in ("Versioned", "Both")
            found = [item for group in self._groups.values() for item in group] if wanted else []
        if status := request.get("ModelApprovalStatus"):
            found = [item for item in found if item["ModelApprovalStatus"] == status]
        if request.get("SortOrder") == "Descending":
            found.reverse()
        shown = [{key: item[key] for key in _SUMMARY} for item in found]
        return page("ModelPackageSummaryList", shown, call, most=100)

    def _update(self, call: Call) -> object:
        found = self._find(call, call.request["ModelPackageArn"])
        found.update({key: call.request[key] for key in _CHANGED if key in call.request})
        return {"ModelPackageArn": found["ModelPackageArn"]}

    def _delete(self, call: Call) -> object:
        found = self._find(call, call.request["ModelPackageName"])
        self._groups[call.region, found["ModelPackageGroupName"]].remove(found)
        return {}

    def _versions(self, call: Call) -> list[dict[str, Any]]:
        name = call.request["ModelPackageGroupName"]
        if (call.region, name) not in self._groups:
            raise ServiceError(f"Model Package Group {_group_arn(call, name)} does not exist.")
        return self._groups[call.region, name]

    def _find(self, call: Call, arn: str) -> dict[str, Any]:
        for (region, _), versions in self._groups.items():
            for item in versions if region == call.region else ():
                if item["ModelPackageArn"] == arn:
                    return item
        raise ServiceError(f"ModelPackage {re.sub('.*/', '', arn)} does not exist.")


def _group_arn(call: Call, name: str) -> str:
    return Region(call.region).arn("model-package-group", name)
