"""What S3 says of the objects that it holds: their sizes, and its own SHA-256 of each."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.platforms.sagemaker.aws_errors import unless_missing

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

_THREADS = 8


def stored_sha256(clients: Clients, bucket: str, keys: Iterable[str]) -> dict[str, str]:
    """By key, S3's SHA-256 of each object as ContentHash computes it; without those that it has none of."""
    look = partial(sha256_of, clients, bucket)
    with ThreadPoolExecutor(_THREADS) as threads:
        return {key: sha256 for key, sha256 in threads.map(lambda key: (key, look(key)), keys) if sha256}


def sha256_of(clients: Clients, bucket: str, key: str) -> str:
    """The same of one object, empty where S3 has none."""
    head = partial(clients.s3.head_object, Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    answer: Any = unless_missing(clients, head) or {}
    return _hexadecimal(answer.get("ChecksumSHA256", ""))


def _hexadecimal(checksum: str) -> str:
    """Of S3's base64; that of an object in parts ends in their number: `…-12`."""
    try:
        return base64.b64decode(checksum.partition("-")[0], validate=True).hex()
    except binascii.Error:
        return ""


def object_sizes(clients: Clients, bucket: str, prefix: str) -> dict[str, int]:
    """Sizes of all objects under a prefix, by key."""
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}
