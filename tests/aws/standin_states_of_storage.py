"""Refusals by state of IAM, S3, ECR and CodeBuild; see standin_states.py."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from moto.codebuild.models import codebuild_backends
from moto.ecr.models import ecr_backends
from moto.iam.models import IAMBackend, iam_backends
from moto.s3.models import FakeBucket, s3_backends
from standin_states import Scope, World, state

from toolkit.platforms.local.aws import ACCOUNT

_MOST_ATTACHED, _MOST_TAGS = 10, 50
_LONGEST_POLICY, _LONGEST_TRUST = 6144, 2048


def _document(text: str) -> Mapping[str, Any] | None:
    """A policy, None where it is no JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _statements(text: str) -> list[Mapping[str, Any]]:
    found = (_document(text) or {}).get("Statement", [])
    return [found] if isinstance(found, dict) else list(found)


def _size(text: str) -> int:
    """IAM user guide, reference_iam-quotas: "IAM doesn't count white space"."""
    return len("".join(text.split()))


# IAM


def _iam() -> IAMBackend:
    found: IAMBackend = iam_backends[ACCOUNT]["aws"]
    return found


def _trust(scope: Scope) -> str:
    text: str = scope.get("AssumeRolePolicyDocument") or scope.get("PolicyDocument", "{}")
    return text


@state
def role_in_another_case(scope: Scope, world: World) -> bool:
    names = [role.name for role in _iam().roles.values()]
    return scope["RoleName"] not in names and scope["RoleName"].lower() in map(str.lower, names)


@state
def trust_not_json(scope: Scope, world: World) -> bool:
    return _document(_trust(scope)) is None


@state
def identity_policy_with_principal(scope: Scope, world: World) -> bool:
    return any({"Principal", "NotPrincipal"} & statement.keys() for statement in _statements(scope["PolicyDocument"]))


@state
def policy_attached(scope: Scope, world: World) -> bool:
    return any(scope["PolicyArn"] in role.managed_policies for role in _iam().roles.values())


@state
def trust_without_principal(scope: Scope, world: World) -> bool:
    return any("Principal" not in statement for statement in _statements(_trust(scope)))


@state
def trust_with_resource(scope: Scope, world: World) -> bool:
    return any("Resource" in statement for statement in _statements(_trust(scope)))


@state
def trust_too_long(scope: Scope, world: World) -> bool:
    return _size(_trust(scope)) > _LONGEST_TRUST


@state
def policy_too_long(scope: Scope, world: World) -> bool:
    return _size(scope["PolicyDocument"]) > _LONGEST_POLICY


@state
def more_than_fifty_tags(scope: Scope, world: World) -> bool:
    role = next((role for role in _iam().roles.values() if role.name == scope["RoleName"]), None)
    keys = {item["Key"] for item in scope["Tags"]}
    if role is None:
        return False
    there = role.tags.keys() if isinstance(role.tags, dict) else {item["Key"] for item in role.tags}
    return len(keys | set(there)) > _MOST_TAGS


@state
def ten_attached(scope: Scope, world: World) -> bool:
    role = next((role for role in _iam().roles.values() if role.name == scope["RoleName"]), None)
    attached = role.managed_policies if role else {}
    return scope["PolicyArn"] not in attached and len(attached) >= _MOST_ATTACHED


@state
def policy_with_versions(scope: Scope, world: World) -> bool:
    policy = _iam().managed_policies.get(scope["PolicyArn"])
    return policy is not None and len(policy.versions) > 1


@state
def service_role_twice(scope: Scope, world: World) -> bool:
    service = scope["AWSServiceName"]
    return any(role.path == f"/aws-service-role/{service}/" for role in _iam().roles.values())


@state
def trust_of_other_actions(scope: Scope, world: World) -> bool:
    actions = [statement.get("Action", []) for statement in _statements(_trust(scope))]
    named = [name for each in actions for name in ([each] if isinstance(each, str) else each)]
    return any(not name.lower().startswith("sts:") for name in named)


@state
def no_such_principal(scope: Scope, world: World) -> bool:
    """Of this account; it is not told whether another's is there."""
    principals = [statement.get("Principal", {}) for statement in _statements(_trust(scope))]
    named = [each.get("AWS", []) for each in principals if isinstance(each, dict)]
    arns = [arn for each in named for arn in ([each] if isinstance(each, str) else each)]
    there = [*(role.arn for role in _iam().roles.values()), *(user.arn for user in _iam().users.values())]
    of_people = (arn for arn in arns if re.fullmatch(rf"arn:aws:iam::{ACCOUNT}:(role|user)/.+", arn))
    return any(arn not in there for arn in of_people)


@state
def role_of_a_service(scope: Scope, world: World) -> bool:
    role = next((role for role in _iam().roles.values() if role.name == scope["RoleName"]), None)
    return role is not None and role.path.startswith("/aws-service-role/")


@state
def second_role_of_profile(scope: Scope, world: World) -> bool:
    profile = next((p for p in _iam().instance_profiles.values() if p.name == scope["InstanceProfileName"]), None)
    return profile is not None and bool(profile.roles)


@state
def no_such_boundary(scope: Scope, world: World) -> bool:
    arn: str = scope.get("PermissionsBoundary", "arn:::::")
    return arn.split(":")[4] == ACCOUNT and arn not in _iam().managed_policies


@state
def nobody_to_simulate(scope: Scope, world: World) -> bool:
    arn: str = scope["PolicySourceArn"]
    return ":role/" in arn and arn not in {role.arn for role in _iam().roles.values()}


# S3


def _bucket(scope: Scope) -> FakeBucket | None:
    found: FakeBucket | None = s3_backends[ACCOUNT]["aws"].buckets.get(scope["Bucket"])
    return found


@state
def policy_not_json(scope: Scope, world: World) -> bool:
    return _document(scope["Policy"]) is None


def _resources(scope: Scope) -> Iterator[str]:
    for statement in _statements(scope["Policy"]):
        found = statement.get("Resource", [])
        yield from [found] if isinstance(found, str) else found


@state
def policy_of_another_bucket(scope: Scope, world: World) -> bool:
    return any(resource.split(":::")[-1].partition("/")[0] != scope["Bucket"] for resource in _resources(scope))


@state
def policy_without_principal(scope: Scope, world: World) -> bool:
    return any(not {"Principal", "NotPrincipal"} & statement.keys() for statement in _statements(scope["Policy"]))


@state
def public_policy_blocked(scope: Scope, world: World) -> bool:
    bucket = _bucket(scope)
    block = bucket.public_access_block if bucket else None
    is_blocked = block is not None and str(block.block_public_policy).lower() == "true"
    everybody = ("*", {"AWS": "*"})
    public = [
        statement
        for statement in _statements(scope["Policy"])
        if statement["Effect"] == "Allow" and statement.get("Principal") in everybody and "Condition" not in statement
    ]
    return is_blocked and bool(public)


def _has_lists(bucket: FakeBucket) -> bool:
    """Without a rule of its own a bucket is BucketOwnerEnforced: API reference of CreateBucket, ObjectOwnership."""
    return "ObjectWriter" in str(bucket.ownership_rule) or "BucketOwnerPreferred" in str(bucket.ownership_rule)


@state
def lists_disabled(scope: Scope, world: World) -> bool:
    bucket = _bucket(scope)
    return bucket is not None and not _has_lists(bucket) and scope.get("ACL", "private") != "private"


@state
def object_list_disabled(scope: Scope, world: World) -> bool:
    bucket = _bucket(scope)
    allowed = ("bucket-owner-full-control", "private")
    return bucket is not None and not _has_lists(bucket) and scope.get("ACL", "private") not in allowed


@state
def key_too_long(scope: Scope, world: World) -> bool:
    return len(scope["Key"].encode()) > 1024


@state
def metadata_too_large(scope: Scope, world: World) -> bool:
    return sum(len(f"{key}{value}".encode()) for key, value in scope.get("Metadata", {}).items()) > 2048


@state
def more_than_ten_tags(scope: Scope, world: World) -> bool:
    return len(parse_qsl(scope.get("Tagging", ""), keep_blank_values=True)) > 10


@state
def no_such_upload(scope: Scope, world: World) -> bool:
    bucket = _bucket(scope)
    return bucket is not None and scope["UploadId"] not in bucket.multiparts


@state
def bucket_of_another_account(scope: Scope, world: World) -> bool:
    return scope.get("ExpectedBucketOwner", ACCOUNT) != ACCOUNT


@state
def checksum_of_another_kind(scope: Scope, world: World) -> bool:
    bucket = _bucket(scope)
    upload = bucket.multiparts.get(scope["UploadId"]) if bucket else None
    wanted = upload.metadata.get("x-amz-checksum-algorithm") if upload else None
    return wanted is not None and scope.get("ChecksumAlgorithm", wanted) != wanted


# ECR


@state
def digest_differs(scope: Scope, world: World) -> bool:
    digest = f"sha256:{hashlib.sha256(scope['imageManifest'].encode()).hexdigest()}"
    return scope.get("imageDigest", digest) != digest


@state
def no_such_repository(scope: Scope, world: World) -> bool:
    return scope["repositoryName"] not in ecr_backends[ACCOUNT][world.call.region].repositories


@state
def tag_is_taken(scope: Scope, world: World) -> bool:
    repository = ecr_backends[ACCOUNT][world.call.region].repositories.get(scope["repositoryName"])
    if repository is None or repository.image_tag_mutability != "IMMUTABLE":
        return False
    others = [image for image in repository.images if image.image_manifest != scope["imageManifest"]]
    return any(scope.get("imageTag") in image.image_tags for image in others)


@state
def manifest_without_kind(scope: Scope, world: World) -> bool:
    kind = (_document(scope["imageManifest"]) or {}).get("mediaType")
    return kind is None and "imageManifestMediaType" not in scope


def _cleanup(scope: Scope) -> list[Mapping[str, Any]]:
    rules = (_document(scope["lifecyclePolicyText"]) or {}).get("rules", [])
    return [rule for rule in rules if "selection" in rule]


@state
def cleanup_prefix_of_untagged(scope: Scope, world: World) -> bool:
    selections = [rule["selection"] for rule in _cleanup(scope)]
    return any("tagPrefixList" in one and one.get("tagStatus") != "tagged" for one in selections)


@state
def cleanup_prefixes_and_patterns(scope: Scope, world: World) -> bool:
    return any({"tagPrefixList", "tagPatternList"} <= rule["selection"].keys() for rule in _cleanup(scope))


@state
def cleanup_priority_twice(scope: Scope, world: World) -> bool:
    priorities = [rule["rulePriority"] for rule in _cleanup(scope)]
    return len(set(priorities)) < len(priorities)


@state
def cleanup_tagged_without_prefix(scope: Scope, world: World) -> bool:
    tagged = [rule["selection"] for rule in _cleanup(scope) if rule["selection"].get("tagStatus") == "tagged"]
    return any(not {"tagPrefixList", "tagPatternList"} & selection.keys() for selection in tagged)


def _counted(scope: Scope, by_age: bool) -> list[Mapping[str, Any]]:
    selections = [rule["selection"] for rule in _cleanup(scope)]
    return [one for one in selections if str(one.get("countType")).startswith("since") is by_age]


@state
def cleanup_age_without_unit(scope: Scope, world: World) -> bool:
    return any("countUnit" not in selection for selection in _counted(scope, by_age=True))


@state
def cleanup_unit_of_count(scope: Scope, world: World) -> bool:
    return any("countUnit" in selection for selection in _counted(scope, by_age=False))


@state
def cleanup_any_not_last(scope: Scope, world: World) -> bool:
    rules = _cleanup(scope)
    last = max((rule["rulePriority"] for rule in rules), default=0)
    return any(rule["selection"].get("tagStatus") == "any" and rule["rulePriority"] != last for rule in rules)


# CodeBuild


@state
def project_twice(scope: Scope, world: World) -> bool:
    return scope["name"] in codebuild_backends[ACCOUNT][world.call.region].codebuild_projects


@state
def layers_without_privileges(scope: Scope, world: World) -> bool:
    modes = scope["cache"]["modes"]
    return "LOCAL_DOCKER_LAYER_CACHE" in modes and not scope["environment"].get("privilegedMode")


@state
def status_override_without_git(scope: Scope, world: World) -> bool:
    if not scope.get("reportBuildStatusOverride"):
        return False
    project = codebuild_backends[ACCOUNT][world.call.region].codebuild_projects.get(scope["projectName"])
    source = scope.get("sourceTypeOverride") or (project.project_metadata["source"]["type"] if project else "")
    return source in ("NO_SOURCE", "S3", "CODECOMMIT", "CODEPIPELINE")
