"""The toolkit's bucket: one for all endpoints of an account and region, deleted with the last of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.planning.resources import Account, Existing, Resource
from toolkit.platforms.sagemaker.aws_errors import code_of, unless_missing
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look, Work
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX, USES_PREFIX, bucket_name
from toolkit.platforms.sagemaker.staging import object_sizes

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import (
        PublicAccessBlockConfigurationTypeDef,
        ServerSideEncryptionByDefaultTypeDef,
        ServerSideEncryptionConfigurationTypeDef,
    )

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

# S3 does both by default today, for new buckets; an account may have other defaults.
_PUBLIC_ACCESS_BLOCK: PublicAccessBlockConfigurationTypeDef = {
    "BlockPublicAcls": True,
    "BlockPublicPolicy": True,
    "IgnorePublicAcls": True,
    "RestrictPublicBuckets": True,
}
_BY_DEFAULT: ServerSideEncryptionByDefaultTypeDef = {"SSEAlgorithm": "AES256"}
_ENCRYPTION: ServerSideEncryptionConfigurationTypeDef = {"Rules": [{"ApplyServerSideEncryptionByDefault": _BY_DEFAULT}]}

_PARAMETER, _CONDITION = "MakeBucket", "MakesBucket"

Uses = Mapping[str, tuple[str, ...]]


class BucketKind(AwsKind):
    """Nothing in it can become public, all is encrypted, and it is reached over TLS only."""

    kind = "Bucket"
    resource_type = "AWS::S3::Bucket"

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [bucket(deployment.account)]

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {"Bucket": existing.name, "Lease": f"{LEASES_PREFIX}{endpoint}"}

    def observe(self, look: Look) -> Iterator[Existing]:
        name = bucket_name(look.account)
        uses = look.once(read_uses, name)
        if uses is not None:
            everyone = sorted({user for users in uses.values() for user in users})
            yield Existing("Bucket", name, True, tuple(everyone), {"Bucket": name})

    def create(self, work: Work, request: Any) -> None:
        """Does nothing: the bucket was created by `make_bucket` before, because the lease is stored in it."""

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        """Delete it with our own lease. A bucket with somebody else's lease or weights is kept."""
        clients.s3.delete_object(Bucket=request["Bucket"], Key=request["Lease"])
        try:
            clients.s3.delete_bucket(Bucket=request["Bucket"])
        except clients.refusal as error:
            if code_of(error) != "BucketNotEmpty":
                raise

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Any) -> dict[str, Any]:
        return {
            "BucketName": item.name,
            "BucketEncryption": {"ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": _BY_DEFAULT}]},
            "PublicAccessBlockConfiguration": dict(_PUBLIC_ACCESS_BLOCK),
        }

    def companions(self, item: Resource, logical_id: str) -> dict[str, Any]:
        arn = {"Fn::GetAtt": [logical_id, "Arn"]}
        document = _tls_only([arn, {"Fn::Join": ["/", [arn, "*"]]}])
        properties = {"Bucket": {"Ref": logical_id}, "PolicyDocument": document}
        policy = {"Type": "AWS::S3::BucketPolicy", "Properties": properties}
        return {f"{logical_id}Policy": {**policy, **self.attributes(item)}}

    def attributes(self, item: Resource) -> dict[str, Any]:
        return {"Condition": _CONDITION, "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}

    def sections(self, item: Resource) -> dict[str, Any]:
        """A parameter for whether to create it: the bucket is shared, and weights must be in it before the stack."""
        description = "yes: the stack creates the bucket, and keeps it; no: the bucket exists already"
        parameter = {"Type": "String", "AllowedValues": ["yes", "no"], "Default": "no", "Description": description}
        return {
            "Parameters": {_PARAMETER: parameter},
            "Conditions": {_CONDITION: {"Fn::Equals": [{"Ref": _PARAMETER}, "yes"]}},
        }

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        region = item.request.get("CreateBucketConfiguration", {}).get("LocationConstraint", "us-east-1")
        command = shlex.join(["aws", "s3", "mb", f"s3://{item.name}", "--region", region])
        yield {"what": f"bucket {item.name}, if it does not exist", "command": command}


def bucket(account: Account) -> Resource:
    """The toolkit's bucket in an account and region."""
    name = bucket_name(account)
    # S3 refuses a LocationConstraint that names us-east-1, and needs one everywhere else.
    elsewhere = account.region != "us-east-1"
    location = {"CreateBucketConfiguration": {"LocationConstraint": account.region}} if elsewhere else {}
    return Resource("Bucket", name, {"Bucket": name, **location})


def make_bucket(clients: Clients, request: Any, partition: str) -> None:
    """Create the bucket, unless it exists, and close it.

    A caller without TLS, as on the local platform, gets no TLS policy: it would lock the caller out.
    """
    s3, name, owner = clients.s3, request["Bucket"], clients.account_id
    try:
        s3.create_bucket(**request)
    except clients.refusal as error:
        if code_of(error) != "BucketAlreadyOwnedByYou":
            raise
    block, rules = _PUBLIC_ACCESS_BLOCK, _ENCRYPTION
    s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=block, ExpectedBucketOwner=owner)
    s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration=rules, ExpectedBucketOwner=owner)
    if s3.meta.endpoint_url.startswith("https:"):
        arn = f"arn:{partition}:s3:::{name}"
        policy = json.dumps(_tls_only([arn, f"{arn}/*"]))
        s3.put_bucket_policy(Bucket=name, Policy=policy, ExpectedBucketOwner=owner)


def _tls_only(resources: Sequence[Any]) -> dict[str, Any]:
    """A policy of the bucket with these ARNs that refuses whatever comes without TLS."""
    statement = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": list(resources),
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def read_uses(look: Look, bucket: str) -> Uses | None:
    """The endpoints that use each weights, from the marks in S3; None if the bucket does not exist."""
    clients = look.clients

    def read() -> Uses:
        clients.s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=look.account.id)
        uses: dict[str, tuple[str, ...]] = {}
        for key in object_sizes(clients, bucket, USES_PREFIX):
            weights, _, endpoint = key.removeprefix(USES_PREFIX).partition("/")
            uses[weights] = (*uses.get(weights, ()), endpoint)
        return uses

    return unless_missing(clients, read)  # somebody may delete it at this moment, with their last endpoint
