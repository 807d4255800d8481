"""What the account has: roles, buckets, images, alarms, quotas. SageMaker asks here before it takes a request.

Other services' things are in moto. Messages whose wording could not be verified are marked so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.ecr.models import ecr_backends
from moto.iam.models import Role
from moto.s3.models import s3_backends
from standin_caller import iam_action
from standin_hosting import model_data
from standin_iam import Iam, role_of
from standin_plans import TrainingPlans
from standin_registry import OwnRegistry
from standin_startup import AsRole

from toolkit.catalog import lookup
from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError
from toolkit.platforms.local.host import Request

_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<repository>[a-z0-9._/-]+?)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# AWS's documents name them too: aws/deep-learning-containers, docs of the vLLM and SGLang images.
_MORE_IMAGES = {"vllm:server-sagemaker-cuda-v2", "sglang:server-sagemaker-cuda-v1.4"}


class AccountRules:
    """Rules over what exists, and what tests say of the account.

    `images` are those of AWS's registries, as "repository:tag", by default all of images.json. `quotas` are instances
    by type, {"ml.g6e.xlarge": 4}; a type that is not there has no limit. `denied` are actions that the caller may not
    take, "sagemaker:CreateModel": SimulatePrincipalPolicy says so, and the calls get AccessDenied. `iam` is what roles
    and the caller may do by their policies. `plans` are reserved machines.
    """

    def __init__(self) -> None:
        self.images: set[str] = set()
        self.registry = OwnRegistry()
        self.registries = frozenset(lookup.registries().values())
        self.quotas: dict[str, int] = {}
        self.denied: set[str] = set()
        self.iam = Iam()
        self.plans = TrainingPlans()
        self.reset()

    def reset(self) -> None:
        """As a new account: AWS has all it has, nothing is denied, and there is no quota."""
        self.registry.host, self.registry.findings = None, {}
        images = json.loads((lookup.FOLDER / "images.json").read_text())["images"]
        self.images = {f"{image['repository']}:{image['tag']}" for image in images} | _MORE_IMAGES
        self.quotas, self.denied = {}, set()
        self.iam = Iam()
        self.plans = TrainingPlans()

    def examine(self, region: Region, operation: str, request: Request) -> None:
        """Raise ServiceError when the account does not have what the request names."""
        if "ExecutionRoleArn" in request:
            self._examine_role(request["ExecutionRoleArn"])
        for container in _containers(request):
            if "Image" in container:
                self._examine_image(region, container)
            for uri in model_data(container):
                if "ExecutionRoleArn" in request:
                    self._must_be_readable(region, request["ExecutionRoleArn"], uri)
                self._examine_model_data(region, uri)
        for alarm in request.get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {}).get("Alarms", []):
            if alarm["AlarmName"] not in cloudwatch_backends[ACCOUNT][region.name].alarms:
                raise ServiceError(f"Could not find CloudWatch alarm {alarm['AlarmName']}.")  # unverified wording

    def examine_job(self, region: Region, role: str, container: Mapping[str, Any], inputs: Sequence[str]) -> None:
        """The same for a training job. The words on its data are those of aws/amazon-sagemaker-examples#2267."""
        self._examine_role(role)
        self._examine_image(region, container)
        for uri in inputs:
            if not AsRole(self.iam, region, role).lists(uri):
                bucket = uri.removeprefix("s3://").partition("/")[0]
                raise ServiceError(
                    f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the '
                    f"bucket exists in the selected region ({region.name}), that objects exist under that S3 prefix, "
                    f'and that the role "{role}" has "s3:ListBucket" permissions on bucket "{bucket}".'
                )
            self._examine_model_data(region, uri)

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
        """The words are those of philschmid/llm-sagemaker-sample#2."""
        if not AsRole(self.iam, region, role).reads(uri):
            raise ServiceError(
                f'Could not access model data at {uri}. Please ensure that the role "{role}" exists and that its trust '
                'relationship policy allows the action "sts:AssumeRole" for the service principal '
                '"sagemaker.amazonaws.com". Also ensure that the role has "s3:GetObject" permissions and that the '
                f"object is located in {region.name}. If your Model uses multiple models or uncompressed models, "
                'please ensure that the role has "s3:ListBucket" permission.'
            )

    def _examine_role(self, arn: str) -> None:
        role = role_of(arn)
        if role is None or not trusts_sagemaker(role) or not self.iam.exists(arn):
            raise ServiceError(
                f"Could not assume role {arn}. Please ensure that the role exists and allows principal "
                "'sagemaker.amazonaws.com' to assume the role."
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
