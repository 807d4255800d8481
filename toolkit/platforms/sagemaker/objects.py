"""Objects below a prefix in S3, such as the requests that SageMaker captured."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from toolkit import documents
from toolkit.errors import PlatformError, UsageError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors

_LIMITS = documents.Limits(size=256 * 1024**2, seconds=600)
_CHUNK_BYTES = 1024**2


def read_objects(clients: Clients, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Key and content of each object below `s3://bucket/…`, in the order of their keys; read one by one as asked for.

    Raises UsageError for another address, PlatformError for what cannot be read.
    """
    parts = urlsplit(prefix)
    if parts.scheme != "s3" or not parts.netloc:
        raise UsageError(f"not an address in S3: {prefix}", hint="Write it like s3://bucket/data-capture/.")
    with aws_errors(f"reading {prefix}"):
        pages = clients.s3.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=parts.netloc, Prefix=parts.path.lstrip("/")):
            for item in page.get("Contents", []):
                body = clients.s3.get_object(Bucket=parts.netloc, Key=item["Key"])["Body"]
                try:
                    content = documents.collect(body.iter_chunks(_CHUNK_BYTES), _LIMITS)
                except documents.Unfit as error:
                    raise PlatformError(f"s3://{parts.netloc}/{item['Key']}: {error}") from error
                yield item["Key"], content
