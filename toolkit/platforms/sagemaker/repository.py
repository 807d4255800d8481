"""Repositories and images of ours in ECR, and the way into it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, WaiterError

from toolkit.errors import PlatformError
from toolkit.images.publish import STAGED
from toolkit.planning.image import SEVERITIES, repository_name
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Existing, Resource
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors, is_denied, is_missing
from toolkit.platforms.sagemaker.images import layer_bytes
from toolkit.platforms.sagemaker.tags import by_key

if TYPE_CHECKING:
    from types_boto3_ecr import ECRClient
    from types_boto3_ecr.type_defs import (
        DescribeImageScanFindingsResponseTypeDef,
        ImageIdentifierTypeDef,
        RepositoryTypeDef,
    )

_MOST_DELETED = 100  # in one call, by the service model of ECR


def observe(clients: Clients, desired: Sequence[Resource], endpoints: Sequence[str]) -> Iterator[Existing]:
    """Which of the desired repositories and images exist; where nothing is desired, the endpoints' repositories.

    Of an image that does not exist, what it is to be built on, with its `Bytes` if its registry tells them.
    """
    wanted = [item for item in desired if item.kind == "Repository"]
    names = {item.name for item in wanted} if desired else {repository_name(name) for name in endpoints}
    for name in sorted(names):
        if found := _repository(clients, name):
            owner = _owner(clients, found["repositoryArn"])
            yield Existing("Repository", name, owner is not None, (owner or "",), {})
    for item in desired:
        if item.kind != "Image":
            continue
        if image_digest(clients, item.request["Repository"], item.request["Tag"]):
            yield Existing("Image", item.name, True, tuple(endpoints[:1]), {})
        elif "BaseBytes" not in item.request and (size := layer_bytes(clients, item.request["Base"])):
            yield Existing("Image", item.request["Base"], False, (), {"Bytes": size})


def create_repository(clients: Clients, request: Mapping[str, Any]) -> None:
    """Make a repository with its rule for old images. Doing it again sets the rule only."""
    rest = {key: value for key, value in request.items() if key != "lifecyclePolicyText"}
    name = request["repositoryName"]
    try:
        clients.ecr.create_repository(**rest)
    except ClientError as error:
        if error.response["Error"]["Code"] != "RepositoryAlreadyExistsException" or not _is_ours(clients, request):
            raise
    clients.ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=request["lifecyclePolicyText"])


def image_digest(clients: Clients, repository: str, tag: str) -> str | None:
    """The digest of an image of the account's registry, None when it is not there."""
    try:
        found = clients.ecr.describe_images(repositoryName=repository, imageIds=[{"imageTag": tag}])
        return found["imageDetails"][0]["imageDigest"]
    except ClientError as error:
        if is_missing(error):
            return None
        raise


def remove_staged(clients: Clients, repository: str, tag: str, log: Callable[[str], None]) -> None:
    """Remove what builds pushed before the image got its tag, also earlier ones that ended between the two."""
    try:
        pages = clients.ecr.get_paginator("list_images").paginate(
            repositoryName=repository, filter={"tagStatus": "TAGGED"}
        )
        tags = [item["imageTag"] for page in pages for item in page["imageIds"]]
        ours = [name for name in tags if name.startswith(f"{tag}{STAGED}")]
        if ours:
            images: list[ImageIdentifierTypeDef] = [{"imageTag": name} for name in ours[:_MOST_DELETED]]
            clients.ecr.batch_delete_image(repositoryName=repository, imageIds=images)
    except ClientError as error:
        if not is_denied(error):
            raise
        log(f"tags {tag}{STAGED}… stay in {repository}: {error.operation_name} is denied")


def scan_findings(clients: Clients, repository: str, tag: str) -> dict[str, int]:
    """How many weaknesses ECR's scan found, by severity, the worst first. Waits until the scan is done.

    Raises PlatformError when it failed, or does not know the image's system.
    """
    image: ImageIdentifierTypeDef = {"imageTag": tag}
    with aws_errors(f"scanning {repository}:{tag}"):
        try:
            clients.ecr.get_waiter("image_scan_complete").wait(repositoryName=repository, imageId=image)
        except WaiterError as error:
            last = cast("DescribeImageScanFindingsResponseTypeDef", error.last_response)
            status = last.get("imageScanStatus", {})
            why = status.get("description") or status.get("status") or str(error)
            raise PlatformError(f"ECR's scan of {repository}:{tag} gave no result: {why}") from error
        found = clients.ecr.describe_image_scan_findings(repositoryName=repository, imageId=image)
    counts = found["imageScanFindings"].get("findingSeverityCounts", {})
    return {severity: counts[severity] for severity in SEVERITIES if severity in counts}


def registry_access(clients: Clients, region: str | None = None) -> tuple[str, str, str]:
    """Host of the account's registry, user and password; good for twelve hours, and for all accounts of the region."""
    ecr: ECRClient = clients.session.client("ecr", region_name=region) if region else clients.ecr
    (access,) = ecr.get_authorization_token()["authorizationData"]
    user, _, password = base64.b64decode(access["authorizationToken"]).decode().partition(":")
    return urlsplit(access["proxyEndpoint"]).netloc, user, password


def _repository(clients: Clients, name: str) -> RepositoryTypeDef | None:
    """None too where we may not look: most endpoints have no repository, and who may make none need not look."""
    try:
        return clients.ecr.describe_repositories(repositoryNames=[name])["repositories"][0]
    except ClientError as error:
        if is_missing(error) or is_denied(error):
            return None
        raise


def _is_ours(clients: Clients, request: Mapping[str, Any]) -> bool:
    found = _repository(clients, request["repositoryName"])
    return found is not None and _owner(clients, found["repositoryArn"]) == by_key(request["tags"])[ENDPOINT_TAG]


def _owner(clients: Clients, arn: str) -> str | None:
    return by_key(clients.ecr.list_tags_for_resource(resourceArn=arn)["tags"]).get(ENDPOINT_TAG)
