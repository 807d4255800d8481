"""Images by digest: what a tag means now, so that an endpoint runs the very image that was planned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.platforms.sagemaker.clients import Clients

if TYPE_CHECKING:
    from types_boto3_ecr.type_defs import BatchGetImageResponseTypeDef

_IMAGE = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.[^/]+/(?P<repository>[^:@]+):(?P<tag>[\w.-]+)")
_ACCEPTED = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)


def digests(clients: Clients, uris: Sequence[str]) -> dict[str, str]:
    """`repository@sha256:…` by image URI; what the registry does not tell us is left out, and stays a tag."""
    found = {}
    for uri in uris:
        parts = _IMAGE.fullmatch(uri)
        if parts and (digest := _digest(clients, parts["account"], parts["repository"], parts["tag"])):
            found[uri] = f"{uri.rpartition(':')[0]}@{digest}"
    return found


def is_missing_image(clients: Clients, uri: str) -> bool:
    """Whether the registry says that it has no such image; False for an image elsewhere than in ECR."""
    parts = _IMAGE.fullmatch(uri)
    if parts is None:
        return False
    try:
        answer = _ask(clients, parts["account"], parts["repository"], parts["tag"])
    except ClientError as error:
        if error.response["Error"]["Code"] == "RepositoryNotFoundException":
            return True
        raise
    # What fails for another reason is not known to be missing.
    return not answer["images"] and all(item.get("failureCode") == "ImageNotFound" for item in answer["failures"])


def _digest(clients: Clients, account: str, repository: str, tag: str) -> str | None:
    try:
        images = _ask(clients, account, repository, tag)["images"]
    except (ClientError, BotoCoreError):  # not allowed, or no such repository: CreateModel will say so
        return None
    return images[0]["imageId"].get("imageDigest") if images else None


def _ask(clients: Clients, account: str, repository: str, tag: str) -> BatchGetImageResponseTypeDef:
    return clients.ecr.batch_get_image(
        registryId=account,
        repositoryName=repository,
        imageIds=[{"imageTag": tag}],
        acceptedMediaTypes=list(_ACCEPTED),
    )
