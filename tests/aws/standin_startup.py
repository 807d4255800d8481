"""What SageMaker and CodeBuild do as a role once they have taken a request, and what becomes of it if they may not.

The actions are those of the developer guide (sagemaker-roles: "CreateModel API" and "CreateTrainingJob API: Execution
Role Permissions"), of CodeBuild's user guide (setting-up-service-role) and of ECR's (image-push-iam). Where AWS does
not say which of two roles it takes, both are asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moto.s3.models import s3_backends
from standin_iam import Iam
from standin_policies import Access

from toolkit.platforms.local.aws import ACCOUNT, Region

# So long after the request an instance is there that pulls, downloads and writes.
LATER = 120.0
_ECR = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([a-z0-9._/-]+)")
_PULL = ("BatchGetImage", "GetDownloadUrlForLayer", "BatchCheckLayerAvailability")
_PUSH = ("InitiateLayerUpload", "UploadLayerPart", "CompleteLayerUpload", "PutImage")
_VPC = (
    "CreateNetworkInterface",
    "CreateNetworkInterfacePermission",
    "DeleteNetworkInterface",
    "DeleteNetworkInterfacePermission",
    "DescribeNetworkInterfaces",
    "DescribeVpcs",
    "DescribeDhcpOptions",
    "DescribeSubnets",
    "DescribeSecurityGroups",
)


class AsRole:
    """What is done as one role in a region."""

    def __init__(self, iam: Iam, region: Region, role: str) -> None:
        self._iam, self._region, self._role = iam, region, role

    def reads(self, uri: str) -> bool:
        """Whether it may list a prefix in S3 and read what lies there, at once."""
        allowed = [self._may(access) for access in self._reading(uri)]
        return all(allowed)

    def lists(self, uri: str) -> bool:
        """Whether it may list a prefix in S3, at once."""
        return self._may(next(self._reading(uri)))

    def pull(self, image: str) -> str:
        """Why an image cannot be pulled, in AWS's words (aws/sagemaker-python-sdk#2002)."""
        found = _ECR.match(image)
        if found is None:
            return ""  # a registry of one's own, in a VPC
        repository = f"{self._arn('ecr', found[2], found[1])}:repository/{found[3]}"
        needed = {verb: self._later(f"ecr:{verb}", repository) for verb in _PULL}
        needed["GetAuthorizationToken"] = self._later("ecr:GetAuthorizationToken", "*")
        lacking = next((verb for verb, allowed in needed.items() if not allowed), None)
        permission = f"does not have {lacking} permission for the image: '{image}'."
        return f"The role '{self._role}' {permission}" if lacking else ""

    def push(self, repository: str) -> str:
        """Why nothing can be pushed there."""
        arn = f"{self._arn('ecr', self._region.name, ACCOUNT)}:repository/{repository}"
        allowed = [self._later(f"ecr:{verb}", arn) for verb in (*_PUSH, "BatchCheckLayerAvailability")]
        return "" if all([*allowed, self._later("ecr:GetAuthorizationToken", "*")]) else f"denied: push to {repository}"

    def download(self, uris: Iterable[str]) -> str:
        """Why files cannot be fetched; unverified wording."""
        accesses = [access for uri in uris for access in (*self._reading(uri), *self._decrypting(uri))]
        refused = [access for access in accesses if not self._may(access, LATER)]
        return f"Failed to download: {self._role} may not {refused[0].action}." if refused else ""

    def join(self, vpc: Mapping[str, Any] | None) -> str:
        """Why there is no network interface; unverified wording."""
        allowed = [self._later(f"ec2:{verb}", "*") for verb in _VPC] if vpc else []
        return "" if all(allowed) else f"{self._role} may not create a network interface in the VPC."

    def use_key(self, key: str | None, *verbs: str) -> str:
        """Why something cannot be encrypted; unverified wording."""
        allowed = [self._later(f"kms:{verb}", self._key(key)) for verb in verbs] if key else []
        return "" if all(allowed) else f"{self._role} may not use the KMS key {key}."

    def write(self, uri: str, *names: str) -> bool:
        """Whether it may put objects below a prefix, or that object."""
        allowed = [self._later("s3:PutObject", _object(uri, name)) for name in names]
        return all(allowed)

    def write_log(self, group: str, stream: str, *, lists: bool = True) -> bool:
        """Whether it may write a log: AWS creates group and stream where they are not there."""
        arn = f"{self._arn('logs', self._region.name, ACCOUNT)}:log-group:{group}"
        verbs = ("CreateLogGroup", *(["DescribeLogStreams"] if lists else []))
        return all(
            [
                *(self._later(f"logs:{verb}", arn) for verb in verbs),
                self._later("logs:CreateLogStream", arn),
                self._later("logs:PutLogEvents", f"{arn}:log-stream:{stream}"),
            ]
        )

    def publish(self) -> bool:
        """Whether it may put the container's metrics."""
        return self._later("cloudwatch:PutMetricData", "*")

    def get(self, uri: str, *verbs: str) -> bool:
        """Whether it may do that with one object."""
        allowed = [self._later(f"s3:{verb}", _object(uri, "")) for verb in verbs]
        return all(allowed)

    def _reading(self, uri: str) -> Iterator[Access]:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        yield Access(self._role, "s3:ListBucket", _object(f"s3://{bucket}", ""), {"s3:prefix": prefix})
        for key in self._keys(bucket, prefix) or [prefix]:
            yield Access(self._role, "s3:GetObject", _object(f"s3://{bucket}", key))

    def _decrypting(self, uri: str) -> Iterator[Access]:
        """S3 decrypts in the name of the reader."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        objects = self._keys(bucket, prefix).values()
        keys = {item.kms_key_id for item in objects if item.encryption == "aws:kms" and item.kms_key_id}
        yield from (Access(self._role, "kms:Decrypt", self._key(key)) for key in sorted(keys))

    def _keys(self, bucket: str, prefix: str) -> dict[str, Any]:
        there = s3_backends[ACCOUNT][self._region.partition].buckets.get(bucket)
        return {key.name: key for key in there.keys.values() if key.name.startswith(prefix)} if there else {}

    def _key(self, key: str) -> str:
        return key if key.startswith("arn:") else f"{self._arn('kms', self._region.name, ACCOUNT)}:key/{key}"

    def _arn(self, service: str, region: str, account: str) -> str:
        return f"arn:{self._region.partition}:{service}:{region}:{account}"

    def _later(self, action: str, resource: str) -> bool:
        return self._may(Access(self._role, action, resource), LATER)

    def _may(self, access: Access, after: float = 0.0) -> bool:
        return self._iam.may(access, after)


def _object(uri: str, name: str) -> str:
    path = uri.removeprefix("s3://").rstrip("/")
    return f"arn:aws:s3:::{path}/{name}" if name else f"arn:aws:s3:::{path}"
