"""What the account has: roles, buckets, images, alarms, quotas. SageMaker asks here before it takes a request.

Other services' things are in moto. Messages whose wording could not be verified are marked so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.ecr.models import ecr_backends
from moto.iam.models import Role
from moto.s3.models import s3_backends
from standin_registry import OwnRegistry
from standin_roles import role_of

from toolkit.catalog import lookup
from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError
from toolkit.platforms.local.host import Request

_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<repository>[a-z0-9._/-]+?)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# AWS's documents name them too: aws/deep-learning-containers, docs of the vLLM and SGLang images.
_MORE_IMAGES = {"vllm:server-sagemaker-cuda-v2", "sglang:server-sagemaker-cuda-v1.4"}
# Where the name in policies is not botocore's.
_PREFIXES = {
    "service-quotas": "servicequotas",
    "resourcegroupstaggingapi": "tag",
    "sagemaker-runtime": "sagemaker",
}
_ACTIONS = {
    ("s3", "HeadBucket"): "ListBucket",
    ("s3", "ListObjectsV2"): "ListBucket",
    ("s3", "ListObjects"): "ListBucket",
    ("s3", "ListBuckets"): "ListAllMyBuckets",
    ("s3", "HeadObject"): "GetObject",
    ("s3", "ListMultipartUploads"): "ListBucketMultipartUploads",
    ("s3", "ListParts"): "ListMultipartUploadParts",
    ("s3", "CreateMultipartUpload"): "PutObject",
    ("s3", "UploadPart"): "PutObject",
    ("s3", "CompleteMultipartUpload"): "PutObject",
    ("s3", "DeleteObjects"): "DeleteObject",
    ("s3", "PutBucketEncryption"): "PutEncryptionConfiguration",
    ("s3", "PutPublicAccessBlock"): "PutBucketPublicAccessBlock",
    ("s3", "PutBucketLifecycleConfiguration"): "PutLifecycleConfiguration",
    ("sagemaker-runtime", "OpenAI"): "InvokeEndpoint",
    ("cloudwatch", "PromQL"): "GetMetricData",
}


class AccountRules:
    """Rules over what exists, and what tests say of the account.

    `images` are those of AWS's registries, as "repository:tag", by default all of images.json. `quotas` are instances
    by type, {"ml.g6e.xlarge": 4}; a type that is not there has no limit. `denied` are actions that the caller may not
    take, "sagemaker:CreateModel": SimulatePrincipalPolicy says so, and the calls get AccessDenied. `iam_is_late` is how
    often SageMaker does not see yet what a role may read after the role or its policy was changed.
    """

    def __init__(self) -> None:
        self.images: set[str] = set()
        self.registry = OwnRegistry()
        self.registries = frozenset(lookup.registries().values())
        self.quotas: dict[str, int] = {}
        self.denied: set[str] = set()
        self.iam_is_late = 0
        self._late: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """As a new account: AWS has all it has, nothing is denied, and there is no quota."""
        self.registry.host, self.registry.findings = None, {}
        images = json.loads((lookup.FOLDER / "images.json").read_text())["images"]
        self.images = {f"{image['repository']}:{image['tag']}" for image in images} | _MORE_IMAGES
        self.quotas, self.denied = {}, set()
        self.iam_is_late, self._late = 0, {}

    def role_changed(self, name: str) -> None:
        """A role was made, or its policy was put: SageMaker sees it later."""
        self._late[name] = self.iam_is_late

    def examine(self, region: Region, operation: str, request: Request) -> None:
        """Raise ServiceError when the account does not have what the request names."""
        if "ExecutionRoleArn" in request:
            _examine_role(request["ExecutionRoleArn"])
        for container in _containers(request):
            if "Image" in container:
                self._examine_image(region, container)
            for uri in _model_data(container):
                self._must_be_readable(region, request.get("ExecutionRoleArn", ""), uri)
                self._examine_model_data(region, uri)
        for alarm in request.get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {}).get("Alarms", []):
            if alarm["AlarmName"] not in cloudwatch_backends[ACCOUNT][region.name].alarms:
                raise ServiceError(f"Could not find CloudWatch alarm {alarm['AlarmName']}.")  # unverified wording

    def must_be_allowed(self, service: str, operation: str) -> None:
        """Raise AccessDenied when the caller may not do that."""
        action = iam_action(service, operation)
        if action in self.denied:
            raise ServiceError(
                f"User: arn:aws:sts::{ACCOUNT}:user/moto is not authorized to perform: {action} "
                f"because no identity-based policy allows the {action} action",
                code="AccessDeniedException",
            )

    def must_have_quota(self, instance_type: str, used: int, wanted: int) -> None:
        """Raise ResourceLimitExceeded when the quota does not hold these instances."""
        quota = self.quotas.get(instance_type)
        if quota is not None and used + wanted > quota:
            raise ServiceError(
                f"The account-level service limit '{instance_type} for endpoint usage' is {quota} Instances, with "
                f"current utilization of {used} Instances and a request delta of {wanted} Instances. "
                "Please use AWS Service Quotas to request an increase for this quota.",
                code="ResourceLimitExceeded",
            )

    def _examine_image(self, region: Region, container: Mapping[str, Any]) -> None:
        uri = container["Image"]
        found = _ECR.fullmatch(uri)
        if found is None:
            if container.get("ImageConfig", {}).get("RepositoryAccessMode") == "Vpc":
                return
            raise ServiceError(f"Unsupported image {uri}: it must be in Amazon ECR.")  # unverified wording
        if found["region"] != region.name:
            raise ServiceError(f"Image {uri} must be in region {region.name}.")  # unverified wording
        if found["account"] == ACCOUNT:
            own = self.registry
            exists = own.has(found["repository"], found["tag"]) if own.host else _is_in_own_ecr(region, found)
        else:
            in_registry = lookup.registries().get(region.name) == found["account"]
            exists = in_registry and any(_is(found, image) for image in self.images)
        if not exists:
            raise ServiceError(f"Requested image {uri} not found.")

    def _must_be_readable(self, region: Region, role: str, uri: str) -> None:
        """IAM user guide, troubleshoot_general: changes are not always visible at once.

        The words are those of philschmid/llm-sagemaker-sample#2.
        """
        name = role.rpartition("/")[2]
        if self._late.get(name, 0) > 0:
            self._late[name] -= 1
            raise ServiceError(
                f'Could not access model data at {uri}. Please ensure that the role "{role}" exists and that its trust '
                'relationship policy allows the action "sts:AssumeRole" for the service principal '
                '"sagemaker.amazonaws.com". Also ensure that the role has "s3:GetObject" permissions and that the '
                f"object is located in {region.name}. If your Model uses multiple models or uncompressed models, "
                'please ensure that the role has "s3:ListBucket" permission.'
            )

    def _examine_model_data(self, region: Region, uri: str) -> None:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if bucket in (f"jumpstart-cache-prod-{region.name}", f"jumpstart-private-cache-prod-{region.name}"):
            return  # AWS's own
        there = s3_backends[ACCOUNT][region.partition].buckets.get(bucket)
        if there is None or not any(key.startswith(prefix) for key in dict(there.keys)):
            raise ServiceError(f"Could not find model data at {uri}.")
        if there.region_name != region.name:
            raise ServiceError(f"The bucket of {uri} must be in region {region.name}.")  # unverified wording


def iam_action(service: str, operation: str) -> str:
    """What a policy calls an API call, by the Service Authorization Reference."""
    prefix = _PREFIXES.get(service, service)
    return f"{prefix}:{_ACTIONS.get((service, operation), operation)}"


def _examine_role(arn: str) -> None:
    role = role_of(arn)
    if role is None or not trusts_sagemaker(role):
        raise ServiceError(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal "
            "'sagemaker.amazonaws.com' to assume the role."
        )


def trusts_sagemaker(role: Role) -> bool:
    """Whether the role's trust policy lets SageMaker take it."""
    return any(map(_lets_sagemaker, json.loads(role.assume_role_policy_document)["Statement"]))


def _lets_sagemaker(statement: Mapping[str, Any]) -> bool:
    services, actions = statement.get("Principal", {}).get("Service", []), statement["Action"]
    return (
        statement["Effect"] == "Allow"
        and "sagemaker.amazonaws.com" in ([services] if isinstance(services, str) else services)
        and "sts:AssumeRole" in ([actions] if isinstance(actions, str) else actions)
    )


def digest_of(image: str) -> str:
    """Digest of an image of AWS, "repository:tag"."""
    return f"sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _is(found: re.Match[str], image: str) -> bool:
    """Whether an address is that of "repository:tag", by tag or digest."""
    repository, _, tag = image.partition(":")
    wanted = digest_of(image) if found["digest"] else tag
    return (found["repository"], found["digest"] or found["tag"]) == (repository, wanted)


def _is_in_own_ecr(region: Region, image: re.Match[str]) -> bool:
    repository = ecr_backends[ACCOUNT][region.name].repositories.get(image["repository"])
    images = repository.images if repository else []
    if image["digest"]:
        return any(there.get_image_digest() == image["digest"] for there in images)
    return any((image["tag"] or "latest") in there.image_tags for there in images)


def _containers(request: Request) -> list[Mapping[str, Any]]:
    """The containers that a CreateModel or an inference component's request names."""
    one = [request["PrimaryContainer"]] if "PrimaryContainer" in request else []
    specifications = [request.get("Specification", {}), *request.get("Specifications", [])]
    return [
        *one,
        *request.get("Containers", []),
        *(item["Container"] for item in specifications if "Container" in item),
    ]


def _model_data(container: Mapping[str, Any]) -> list[str]:
    """All S3 addresses of a container."""
    sources = [container.get("ModelDataSource", {}), *container.get("AdditionalModelDataSources", [])]
    structured = [source["S3DataSource"]["S3Uri"] for source in sources if "S3DataSource" in source]
    return [*structured, *(container[key] for key in ("ModelDataUrl", "ArtifactUrl") if key in container)]
