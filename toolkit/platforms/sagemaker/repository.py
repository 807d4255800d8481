"""Images of ours in ECR, what its scan found in them, and the way into it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, WaiterError

from toolkit.errors import PlatformError
from toolkit.images.publish import STAGED
from toolkit.platforms.sagemaker.aws_errors import is_denied, is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors

if TYPE_CHECKING:
    from types_boto3_ecr import ECRClient
    from types_boto3_ecr.type_defs import DescribeImageScanFindingsResponseTypeDef, ImageIdentifierTypeDef

SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW", "INFORMATIONAL", "UNDEFINED")
"""ECR's words for how bad a finding of its scan is, the worst first."""

_MOST_DELETED = 100  # in one call, by the service model of ECR


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
            raise PlatformError(f"ECR's scan of {repository}:{tag} has no result: {why}") from error
        found = clients.ecr.describe_image_scan_findings(repositoryName=repository, imageId=image)
    counts = found["imageScanFindings"].get("findingSeverityCounts", {})
    return {severity: counts[severity] for severity in SEVERITIES if severity in counts}


def registry_access(clients: Clients, region: str | None = None) -> tuple[str, str, str]:
    """Host of the account's registry, user and password; good for twelve hours, and for all accounts of the region."""
    ecr: ECRClient = clients.session.client("ecr", region_name=region) if region else clients.ecr
    (access,) = ecr.get_authorization_token()["authorizationData"]
    user, _, password = base64.b64decode(access["authorizationToken"]).decode().partition(":")
    return urlsplit(access["proxyEndpoint"]).netloc, user, password
