"""A model under a prefix in S3, read in parts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.errors import HubError
from toolkit.recipe.model_files import LARGEST_DOCUMENT

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


class S3Files:
    """Files directly under `s3://bucket/prefix/`. Raises HubError."""

    revision = ""

    def __init__(self, uri: str, s3: S3Client) -> None:
        parts = urlsplit(uri)
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/") + "/"
        self._s3 = s3
        self.location = uri.rstrip("/")
        self.source = f"S3, {uri}"

    def sizes(self) -> Mapping[str, int]:
        return self._sizes

    def digests(self) -> Mapping[str, str]:
        """S3 may say nothing of what others put there."""
        return {}

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        try:
            wanted = f"bytes={start}-{'' if end is None else end - 1}"
            answer = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + name, Range=wanted)
            return answer["Body"].read(LARGEST_DOCUMENT if end is None else end - start)
        except (BotoCoreError, ClientError) as error:
            raise HubError(f"cannot read {self.location}/{name}: {error}") from error

    @cached_property
    def _sizes(self) -> dict[str, int]:
        pages = self._s3.get_paginator("list_objects_v2")
        try:
            found = {
                item["Key"].removeprefix(self._prefix): item["Size"]
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix, Delimiter="/")
                for item in page.get("Contents", [])
            }
        except (BotoCoreError, ClientError) as error:
            hint = "Correct the address, or your permissions: s3:ListBucket and s3:GetObject are needed."
            raise HubError(f"cannot list {self.location}: {error}", hint=hint) from error
        return found
