"""Which staged files S3 holds, by their content: S3's own SHA-256 of an object, never its size alone."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolkit.platforms.sagemaker.aws_errors import unless_missing

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

_THREADS = 8
# A model has tens of files, with about 200 bytes of each in the mark.
_MOST_MARK_BYTES = 4 * 1024**2

_Sha256 = Field(pattern=r"^[0-9a-f]{64}$")


class StagedFile(BaseModel):
    """A file that arrived from the hub: the hub's digest of it, and S3's SHA-256 of what it got."""

    model_config = ConfigDict(frozen=True)

    hub: str = Field(max_length=80)
    sha256: str = _Sha256


class Mark(BaseModel):
    """The object beside weights from the hub: which of their files arrived, and whether these are all."""

    model_config = ConfigDict(frozen=True)

    complete: bool = False
    files: dict[str, StagedFile] = {}

    def is_whole(self, clients: Clients, bucket: str, prefix: str) -> bool:
        """Whether all files are in S3, and are what arrived."""
        wanted = {prefix + name: file.sha256 for name, file in self.files.items()}
        return self.complete and stored_sha256(clients, bucket, wanted) == wanted


def read_mark(clients: Clients, bucket: str, key: str) -> Mark:
    """The mark, an empty one where there is none that can be read: the files are then sent again."""
    answer = unless_missing(clients, partial(clients.s3.get_object, Bucket=bucket, Key=key))
    if answer is None:
        return Mark()
    try:
        return Mark.model_validate_json(answer["Body"].read(_MOST_MARK_BYTES))
    except ValidationError:
        return Mark()


def stored_sha256(clients: Clients, bucket: str, keys: Iterable[str]) -> dict[str, str]:
    """By key, S3's SHA-256 of each object as ContentHash computes it; without those that it has none of."""

    def look(key: str) -> tuple[str, str]:
        head = partial(clients.s3.head_object, Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        answer: Any = unless_missing(clients, head) or {}
        return key, _hexadecimal(answer.get("ChecksumSHA256", ""))

    with ThreadPoolExecutor(_THREADS) as threads:
        return {key: sha256 for key, sha256 in threads.map(look, keys) if sha256}


def _hexadecimal(checksum: str) -> str:
    """Of S3's base64; that of an object in parts ends in their number: `…-12`."""
    try:
        return base64.b64decode(checksum.partition("-")[0], validate=True).hex()
    except binascii.Error:
        return ""
