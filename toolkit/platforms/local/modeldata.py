"""Model data: from S3 to the folder that a container sees as /opt/ml."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from toolkit.platforms.local.aws import ServiceError

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_SPARE_BYTES = 256 * 1024**2  # left free on the disk: the container writes too


def exists(s3: S3Client, uri: str) -> bool:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    try:
        return s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)["KeyCount"] > 0
    except ClientError as exc:
        if exc.response["Error"]["Code"] == "NoSuchBucket":
            return False
        raise


def fetch(s3: S3Client, uri: str, folder: Path) -> None:
    """Copy every object under that S3 prefix into `folder`.

    Raises ServiceError when the objects are gone, the disk is too small (nothing is copied then), or a key cannot be
    a path; OSError when the disk runs full all the same.
    """
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    objects = dict(_objects(s3, bucket, prefix))
    if not objects:
        raise ServiceError(f"Could not find model data at {uri}.")
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = sum(objects.values()) + _SPARE_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise ServiceError(
            f"The disk is too full for {uri}: it takes {_gib(needed)}, {_gib(free)} are free at {folder}."
        )
    for key in objects:
        _copy(s3, bucket, key, folder / _relative(key, prefix))


def _objects(s3: S3Client, bucket: str, prefix: str) -> Iterator[tuple[str, int]]:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for item in page.get("Contents", []):
            yield item["Key"], item["Size"]


def _relative(key: str, prefix: str) -> PurePosixPath:
    """Path of the object below its folder, by SageMaker's rule: the key without the prefix, split at the slashes."""
    parts = key.removeprefix(prefix).split("/")
    if any(part.strip() in ("", ".", "..") for part in parts):
        raise ServiceError(f"The S3 key {key!r} cannot become a file: it has an empty, '.' or '..' part.")
    return PurePosixPath(*parts)


def _copy(s3: S3Client, bucket: str, key: str, file: Path) -> None:
    """One request per object: moto reads the whole object for each range that is asked of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as target:
        shutil.copyfileobj(s3.get_object(Bucket=bucket, Key=key)["Body"], target, 1024**2)


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"
