"""Images in ECR: what a tag means now, so that an endpoint runs the very image that was planned; and their scans."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from toolkit.errors import BuildError, PlatformError, UsageError
from toolkit.images.docker_config import docker_credentials
from toolkit.images.manifest import ACCEPTED, INDEXES, Manifest, for_our_platform, parts
from toolkit.images.publish import STAGED
from toolkit.images.reference import Reference, parse
from toolkit.planning.resources import PARTITIONS
from toolkit.platforms.sagemaker.aws_errors import has_code, is_denied, unless, unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors

if TYPE_CHECKING:
    from types_boto3_ecr import ECRClient
    from types_boto3_ecr.type_defs import (
        BatchGetImageResponseTypeDef,
        DescribeImageScanFindingsResponseTypeDef,
        ImageIdentifierTypeDef,
    )

_DOMAINS = "|".join(re.escape(domain) for _, domain in PARTITIONS.values())
ECR_HOST = re.compile(rf"\d{{12}}\.dkr\.ecr\.([a-z0-9-]+)\.({_DOMAINS})")
"""A registry in ECR; its first group is the region."""

_IMAGE = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.[^/]+/(?P<repository>[^:@]+):(?P<tag>[\w.-]+)")
SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW", "INFORMATIONAL", "UNDEFINED")
"""ECR's words for how bad a finding of its scan is, the worst first."""

_MOST_DELETED = 100  # in one call, by the service model of ECR


def digests(clients: Clients, uris: Sequence[str]) -> dict[str, str]:
    """`repository@sha256:…` by image URI, as far as the registry returns digests; other images keep what they have."""
    by_address = {}
    for uri in uris:
        with suppress(BuildError, UsageError):  # not allowed, or no such image: CreateModel, or the build, will say so
            reference = parse(uri)
            if reference.digest is None:
                in_ecr = ECR_HOST.fullmatch(reference.registry)
                digest = ecr_digest(clients, uri) if in_ecr else registry_digest(uri)
                by_address[uri] = str(replace(reference, tag=None, digest=digest))
    return by_address


def registry_digest(image: str) -> str:
    """The digest of an image elsewhere than in ECR, with the login of `docker login` or none. Raises BuildError."""
    from toolkit.images.registry import Registry  # imports httpx

    reference = parse(image)
    with Registry(reference.registry, docker_credentials, awaited=False) as registry:
        manifest = registry.find_manifest(reference.repository, reference.selector)
    if manifest is None:
        raise BuildError(f"{reference.registry} has no image {image}", hint="Correct the engine's version or the base.")
    return manifest.digest


def layer_bytes(clients: Clients, image: str) -> int | None:
    """What the layers of an image take in its registry; None for a tag, and where the registry does not tell."""
    reference = parse(image)
    if reference.digest is None:
        return None
    from toolkit.images.registry import Registry  # imports httpx

    try:
        if ECR_HOST.fullmatch(reference.registry):
            return _layer_bytes(reference, partial(_manifest, clients, reference))
        with Registry(reference.registry, docker_credentials, awaited=False) as registry:
            return _layer_bytes(reference, partial(registry.find_manifest, reference.repository))
    except (BuildError, ClientError, BotoCoreError):  # not allowed, or not there: the build will say so
        return None


def is_missing_image(clients: Clients, uri: str) -> bool:
    """Whether the registry says that it has no such image; False for an image elsewhere than in ECR."""
    named = _IMAGE.fullmatch(uri)
    if named is None:
        return False
    ask = partial(_ask, clients, named["account"], named["repository"], {"imageTag": named["tag"]})
    answer = unless(clients, ask, has_code("RepositoryNotFoundException"))
    if answer is None:
        return True
    # What fails for another reason is not known to be missing.
    return not answer["images"] and all(item.get("failureCode") == "ImageNotFound" for item in answer["failures"])


def ecr_digest(clients: Clients, uri: str) -> str:
    """The digest of an image in ECR. Raises BuildError where AWS does not tell it."""
    named = _IMAGE.fullmatch(uri)
    if named is None:
        hint = "Write ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY:TAG."
        raise BuildError(f"{uri} is not the address of an image in ECR with its tag", hint=hint)
    try:
        images = _ask(clients, named["account"], named["repository"], {"imageTag": named["tag"]})["images"]
    except (ClientError, BotoCoreError) as error:
        raise BuildError(f"{uri}: {error}", hint="It takes AWS credentials, and ecr:BatchGetImage.") from error
    if not images or "imageDigest" not in images[0]["imageId"]:
        raise BuildError(f"{uri}: there is no such image", hint="Correct its tag, or push it first.")
    return images[0]["imageId"]["imageDigest"]


def _layer_bytes(image: Reference, find: Callable[[str], Manifest | None]) -> int | None:
    manifest = find(image.selector)
    if manifest and manifest.media_type in INDEXES:
        manifest = find(for_our_platform(manifest, str(image)))
    return sum(layer.size for layer in parts(manifest, str(image)).layers) if manifest else None


def _manifest(clients: Clients, image: Reference, digest: str) -> Manifest | None:
    account = image.registry.partition(".")[0]
    answered = _ask(clients, account, image.repository, {"imageDigest": digest})["images"]
    return (
        Manifest(answered[0].get("imageManifestMediaType", ""), answered[0]["imageManifest"].encode())
        if answered
        else None
    )


def _ask(
    clients: Clients, account: str, repository: str, image: ImageIdentifierTypeDef
) -> BatchGetImageResponseTypeDef:
    return clients.ecr.batch_get_image(
        registryId=account, repositoryName=repository, imageIds=[image], acceptedMediaTypes=list(ACCEPTED)
    )


def image_digest(clients: Clients, repository: str, tag: str) -> str | None:
    """The digest of an image of the account's registry, None when it is not there."""
    ask = partial(clients.ecr.describe_images, repositoryName=repository, imageIds=[{"imageTag": tag}])
    described = unless_missing(clients, ask)
    return described["imageDetails"][0]["imageDigest"] if described else None


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
            hint = (
                "The image is there; ask ECR again with: aws ecr start-image-scan, or see its findings in the console."
            )
            raise PlatformError(f"ECR's scan of {repository}:{tag} has no result: {why}", hint=hint) from error
        scanned = clients.ecr.describe_image_scan_findings(repositoryName=repository, imageId=image)
    counts = scanned["imageScanFindings"].get("findingSeverityCounts", {})
    return {severity: counts[severity] for severity in SEVERITIES if severity in counts}


def registry_access(clients: Clients, region: str | None = None) -> tuple[str, str, str]:
    """Host of the account's registry, user and password; good for twelve hours, and for all accounts of the region."""
    ecr: ECRClient = clients.session.client("ecr", region_name=region) if region else clients.ecr
    (access,) = ecr.get_authorization_token()["authorizationData"]
    user, _, password = base64.b64decode(access["authorizationToken"]).decode().partition(":")
    return urlsplit(access["proxyEndpoint"]).netloc, user, password
