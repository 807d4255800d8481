"""What lies in S3: captured requests, the heads that training jobs made, the files of a model, and leases."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import HubError, PlatformError, UsageError
from toolkit.platforms.lease import Entry, Holder, Rules, read_holder
from toolkit.platforms.sagemaker.aws_errors import has_code, unless, unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX
from toolkit.platforms.sagemaker.stored import object_sizes, stored_sha256
from toolkit.recipe.content import PART_BYTES, part_bytes
from toolkit.recipe.folder import model_files
from toolkit.recipe.model_files import LARGEST_DOCUMENT

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

_LIMITS = documents.Limits(size=256 * 1024**2, seconds=600)
_CHUNK_BYTES = 1024**2
_LARGEST_LEASE = 64 * 1024
# The object is another than the condition of the write says.
_IS_CHANGED = has_code("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")


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
                    hint = "Name a prefix with smaller files alone."
                    raise PlatformError(f"s3://{parts.netloc}/{item['Key']}: {error}", hint=hint) from error
                yield item["Key"], content


def fetch_head(clients: Clients, job: Mapping[str, Any], folder: Path) -> None:
    """Download what a completed job wrote to /opt/ml/model/head. Raises PlatformError where nothing is left of it."""
    name = job["TrainingJobName"]
    described = clients.sagemaker.describe_training_job(TrainingJobName=name)
    address = described["ModelArtifacts"]["S3ModelArtifacts"]
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    prefix = prefix.rstrip("/") + "/head/"
    keys = object_sizes(clients, bucket, prefix)
    for key in keys:
        _download(clients, bucket, key, folder, key.removeprefix(prefix))
    if not keys:
        hint = "Remove the recipe's `seed`, or set another one, to train it again."
        raise PlatformError(f"the head of {name} is not in {address} any more", hint=hint)


def put_head(clients: Clients, folder: Path, address: str, progress: Progress) -> None:
    """Upload a head's files to `s3://bucket/prefix/`, config.json last: it makes them a model. Raises UsageError."""
    bucket, prefix = _place(address)
    for file in sorted(model_files(folder), key=lambda file: file.name == "config.json"):
        name, size = file.relative_to(folder).as_posix(), file.stat().st_size
        progress.update(f"{name} ({size / 1e6:.1f} MB)")
        with file.open("rb") as stream:
            clients.upload(stream, bucket, f"{prefix}{name}", PART_BYTES, part_bytes(size))


def head_at(clients: Clients, address: str) -> dict[str, str]:
    """By name, S3's SHA-256 of each file directly under `s3://bucket/prefix/`, empty where it has none of it.

    Raises UsageError.
    """
    bucket, prefix = _place(address)

    def listed() -> list[str]:
        pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
        return [item["Key"] for page in pages for item in page.get("Contents", []) if item["Key"] != prefix]

    keys = unless_missing(clients, listed) or []  # there may be no bucket yet
    known = stored_sha256(clients, bucket, keys)
    return {key.removeprefix(prefix): known.get(key, "") for key in keys}


def _place(address: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix/`. Raises UsageError."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not address.startswith("s3://") or not prefix.strip("/"):
        raise UsageError(f"a head cannot be copied to {address}", hint="Name a folder, or s3://bucket/prefix/.")
    return bucket, prefix.rstrip("/") + "/"


def _download(clients: Clients, bucket: str, key: str, folder: Path, name: str) -> None:
    """Save an object below the folder. Raises PlatformError for a name that leads out of it."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        hint = "It was not written by a training job: remove it, or see who else writes there."
        raise PlatformError(f"s3://{bucket}/{key} is not a file of a head", hint=hint)
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    clients.s3.download_file(bucket, key, str(path))


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
            hint = "Check that it is there, and that you have s3:GetObject for it."
            raise HubError(f"cannot read {self.location}/{name}: {error}", hint=hint) from error

    @cached_property
    def _sizes(self) -> dict[str, int]:
        pages = self._s3.get_paginator("list_objects_v2")
        try:
            sizes = {
                item["Key"].removeprefix(self._prefix): item["Size"]
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix, Delimiter="/")
                for item in page.get("Contents", [])
            }
        except (BotoCoreError, ClientError) as error:
            hint = "Correct the address, or your permissions: s3:ListBucket and s3:GetObject are needed."
            raise HubError(f"cannot list {self.location}: {error}", hint=hint) from error
        return sizes


class BucketLease:
    """A lease in the toolkit's bucket, of an endpoint or of weights; a LeaseStore. Raises ClientError without it."""

    # S3's clock counts: nobody would wait for five minutes to see whether a lease is renewed.
    rules = Rules(seconds=300.0, renewal_seconds=60.0, poll_seconds=None)
    errors: tuple[type[Exception], ...] = (ClientError, BotoCoreError)

    def __init__(self, clients: Clients, bucket: str, what: str) -> None:
        self._clients = clients
        self._bucket = bucket
        self._name = f"{LEASES_PREFIX}{what}"
        self.key = f"s3://{bucket}/{self._name}"

    def create(self, holder: Holder) -> str:
        return self._put(holder, IfNoneMatch="*")

    def read(self) -> Entry | None:
        ask = partial(self._clients.s3.get_object, Bucket=self._bucket, Key=self._name)
        answer = unless_missing(self._clients, ask)
        if answer is None:
            return None
        try:
            holder = read_holder(answer["Body"].read(_LARGEST_LEASE))
        except ValueError:
            return Entry(answer["ETag"], None, self.rules.seconds)
        return Entry(answer["ETag"], None if self._is_stale(answer) else holder, self.rules.seconds)

    def _is_stale(self, answer: GetObjectOutputTypeDef) -> bool:
        """Whether nobody has renewed it for its time, by S3's own clock alone: those of two machines may differ."""
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date", "")
        try:
            now = parsedate_to_datetime(date)
        except ValueError:
            return False
        # Without a zone it is none of S3's: a proxy has added a second one.
        return bool(now.tzinfo) and (now - answer["LastModified"]).total_seconds() > self.rules.seconds

    def replace(self, holder: Holder, version: str) -> str:
        return self._put(holder, IfMatch=version)

    def delete(self, version: str) -> bool:
        ask = partial(self._clients.s3.delete_object, Bucket=self._bucket, Key=self._name, IfMatch=version)
        return unless(self._clients, ask, _IS_CHANGED) is not None

    def _put(self, holder: Holder, **condition: Any) -> str:
        # An ETag is that of the content: without another one each time, who read the lease before a renewal could
        # still take it over.
        body = json.dumps({**asdict(holder), "write": uuid.uuid4().hex}).encode()
        # The bucket's name can be guessed: weights shall not go to one that somebody else made.
        owner = self._clients.account_id
        ask = partial(self._clients.s3.put_object, Bucket=self._bucket, Key=self._name, Body=body)
        written = unless(self._clients, partial(ask, ExpectedBucketOwner=owner, **condition), _IS_CHANGED)
        return written["ETag"] if written else ""
