"""Weights on their way to S3: from a folder, the hub, or the plan. What is there already is not sent again.

What S3 holds is told by its own SHA-256 of an object, never by its size alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError, UnreadableModel
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.recipe.content import PART_BYTES, ContentHash, part_bytes
from toolkit.recipe.model_files import ModelFiles, staged_names
from toolkit.recipe.source import ModelSource

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.recipe.lock import OpenFiles

# DeleteObjects takes at most 1000 keys.
_DELETE_BATCH = 1000
_PIECE_BYTES = 32 * 1024**2
_TIMEOUT_SECONDS = 30.0
_THREADS = 8
# A model has tens of files, with about 200 bytes of each in the mark.
_MOST_MARK_BYTES = 4 * 1024**2

_Sha256 = Field(pattern=r"^[0-9a-f]{64}$")


def stage_weights(clients: Clients, request: Mapping[str, Any], progress: Progress, open_files: OpenFiles) -> None:
    """Upload the files that S3 lacks, or holds with another content, and see that they arrived as they were.

    Of weights from the hub a mark beside them says which of them arrived. Raises PlatformError when a file is not what
    was planned, or the hub cannot be read or sends something else than it says.
    """
    bucket, prefix = request["Bucket"], request["Prefix"]
    mark = read_mark(clients, bucket, request["Mark"]) if "Mark" in request else Mark()
    files = _files(request, _with_token(clients, request, open_files))
    sizes = object_sizes(clients, bucket, prefix)
    same_size = [prefix + file.name for file in files if sizes.get(prefix + file.name) == file.size]
    stored = stored_sha256(clients, bucket, same_size)
    arrived: dict[str, StagedFile] = {}
    for file in files:
        before = mark.files.get(file.name)
        known = file.sha256 or (before.sha256 if before and before.hub == file.hub else None)
        if known is None or stored.get(prefix + file.name) != known:
            progress.update(f"{file.name} ({file.size / 1e6:.1f} MB)")
            known = _send(clients, request, file)
            if "Mark" in request:
                arrived[file.name] = StagedFile(hub=file.hub, sha256=known)
                _write_mark(clients, request, Mark(files={**mark.files, **arrived}))
        elif before:
            arrived[file.name] = before
    if "Mark" in request:
        _write_mark(clients, request, Mark(complete=True, files=arrived))


def _write_mark(clients: Clients, request: Mapping[str, Any], mark: Mark) -> None:
    clients.s3.put_object(Bucket=request["Bucket"], Key=request["Mark"], Body=mark.model_dump_json().encode())


def _send(clients: Clients, request: Mapping[str, Any], file: _File) -> str:
    """Upload the file; S3's SHA-256 of it. An object that is something else is removed again. Raises PlatformError."""
    bucket, key = request["Bucket"], request["Prefix"] + file.name
    encryption = (
        {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": request["KmsKeyId"]} if "KmsKeyId" in request else {}
    )
    with file.open() as stream:
        clients.upload(stream, bucket, key, PART_BYTES, part_bytes(file.size), encryption)
        stored = stored_sha256(clients, bucket, [key]).get(key)
        try:
            sent = file.sha256 or _digest(stream)
            if stored != sent:
                what = f"{file.name} changed after it was planned, or on its way"
                raise PlatformError(f"{what}: S3 has SHA-256 {stored}, not {sent}", hint="Plan and deploy again.")
        except PlatformError:
            clients.s3.delete_object(Bucket=bucket, Key=key)
            raise
    return sent


def delete_prefix(clients: Clients, bucket: str, prefix: str) -> None:
    """Delete every object under a prefix, and the pieces of those that never arrived whole, which cost as much."""
    keys: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in object_sizes(clients, bucket, prefix)]
    for start in range(0, len(keys), _DELETE_BATCH):
        clients.s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[start : start + _DELETE_BATCH]})
    pages = clients.s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
        if upload["Key"].startswith(prefix):
            clients.s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def _with_token(clients: Clients, request: Mapping[str, Any], open_files: OpenFiles) -> OpenFiles:
    """The hub as the token in the request's secret sees it; it is neither written nor shown anywhere."""
    if "HubTokenSecret" not in request:
        return open_files
    from toolkit.recipe.hub import HubFiles, hub_client  # imports httpx

    token = clients.secretsmanager.get_secret_value(SecretId=request["HubTokenSecret"])["SecretString"].strip()
    return lambda source: HubFiles(source.model, source.revision, hub_client(token=token))


@dataclass(frozen=True)
class _File:
    """A file to send: its name under the prefix, its size in bytes, how to open it.

    `sha256` is its ContentHash, None for one of the hub, where only sending it tells; `hub` is the hub's digest of it.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    sha256: str | None = None
    hub: str = ""


def _files(request: Mapping[str, Any], open_files: OpenFiles) -> list[_File]:
    if "Hub" in request:
        files = open_files(ModelSource(model=request["Hub"], revision=request["Revision"]))
        return _on_the_hub(files, code=request.get("Code", False))
    if "Url" in request:
        return [_from_request(file, partial(_download, request["Url"], file)) for file in request["Files"]]
    texts, folder = request.get("Content", {}), Path(request.get("Source", ""))
    return [
        _from_request(
            file,
            partial(io.BytesIO, texts[file["path"]].encode()) if texts else partial((folder / file["path"]).open, "rb"),
        )
        for file in request["Files"]
    ]


def _download(url: str, file: Mapping[str, Any]) -> IO[bytes]:
    """The content of a small file. Raises PlatformError."""
    import httpx

    try:
        with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
            limits = documents.Limits(file["size"])
            return io.BytesIO(documents.request(client, "GET", url, limits).raise_for_status().content)
    except (httpx.HTTPError, documents.Unfit) as error:
        message = f"{file['path']}, which the containers need to start, cannot be downloaded from {url}: {error}"
        hint = "Deploy from a machine that reaches that address, or use an engine.version that does not need the file."
        raise PlatformError(message, hint=hint) from error


def _from_request(file: Mapping[str, Any], opened: Callable[[], IO[bytes]]) -> _File:
    """A file that the request lists with its content."""
    return _File(file["path"], file["size"], opened, file["sha256"])


def _on_the_hub(files: ModelFiles, *, code: bool) -> list[_File]:
    try:
        sizes, digests = files.sizes(), files.digests()
    except UnreadableModel as error:
        raise PlatformError(error.message, hint=error.hint) from error
    return [
        _File(name, sizes[name], partial(_open_on_the_hub, files, name, sizes[name]), hub=digests.get(name, ""))
        for name in staged_names(sizes, code=code)
    ]


def _open_on_the_hub(files: ModelFiles, name: str, size: int) -> IO[bytes]:
    return io.BufferedReader(_HubFile(files, name, size), _PIECE_BYTES)


def _digest(stream: IO[bytes]) -> str:
    """The ContentHash of what was read of a file of the hub. Raises PlatformError."""
    raw = cast(io.BufferedReader, stream).raw
    assert isinstance(raw, _HubFile)
    return raw.verified()


class _HubFile(io.RawIOBase):
    """A file of the hub that is read from its beginning to its end, in pieces, hashed, and never kept."""

    def __init__(self, files: ModelFiles, name: str, size: int) -> None:
        self._files, self._name, self._size, self._position = files, name, size, 0
        self._content = ContentHash(size)
        self._kind, _, self._digest = files.digests().get(name, "").partition(":")
        blob = b"blob %d\0" % size
        self._whole = hashlib.sha256() if self._kind == "sha256" else hashlib.sha1(blob, usedforsecurity=False)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._position + len(buffer))
        if end == self._position:
            return 0
        try:
            piece = self._files.read(self._name, self._position, end)
        except UnreadableModel as error:
            raise PlatformError(error.message, hint=error.hint) from error
        if not piece:
            raise PlatformError(
                f"{self._files.location}/{self._name} ends after {self._position} of {self._size} bytes"
            )
        self._content.update(piece)
        self._whole.update(piece)
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def verified(self) -> str:
        """The ContentHash of what was read. Raises PlatformError when it is not what the hub says it is."""
        if self._digest and self._whole.hexdigest() != self._digest:
            what = f"{self._files.location}/{self._name}"
            message = f"{what} arrived with another {self._kind} digest than the hub says: {self._whole.hexdigest()}"
            raise PlatformError(message, hint="Try again; if it stays so, what lies in between changes files.")
        return self._content.hexdigest()


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


def object_sizes(clients: Clients, bucket: str, prefix: str) -> dict[str, int]:
    """Sizes of all objects under a prefix, by key."""
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}
