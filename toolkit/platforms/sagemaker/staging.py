"""Weights on their way to S3: from a folder, from the hub, or from the plan. What arrived whole is not sent again."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError, UnreadableModel
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.lock import OpenFiles
from toolkit.recipe.model_files import ModelFiles
from toolkit.recipe.source import ModelSource

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from toolkit.platforms.sagemaker.clients import Clients

# DeleteObjects takes at most 1000 keys.
_DELETE_BATCH = 1000
_PIECE_BYTES = 32 * 1024**2
# The same weights once more, in a format that the engine does not read where there are safetensors.
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".onnx")


def stage_weights(clients: Clients, request: Mapping[str, Any], progress: Progress, open_files: OpenFiles) -> None:
    """Upload the files that S3 lacks. The prefix says their content, so a file there of that size is that file.

    Raises PlatformError when the hub cannot be read.
    """
    bucket, prefix = request["Bucket"], request["Prefix"]
    key = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": request["KmsKeyId"]} if "KmsKeyId" in request else {}
    stored = _sizes(clients, bucket, prefix)
    for file in _files(request, _with_token(clients, request, open_files)):
        if stored.get(prefix + file.name) != file.size:
            progress.update(f"{file.name} ({file.size / 1e6:.1f} MB)")
            with file.open() as stream:
                clients.s3.upload_fileobj(stream, bucket, prefix + file.name, ExtraArgs=key)
    if "Mark" in request:
        clients.s3.put_object(Bucket=bucket, Key=request["Mark"], Body=b"")


def delete_prefix(clients: Clients, bucket: str, prefix: str) -> None:
    """Delete every object under a prefix, and the pieces of those that never arrived whole, which cost as much."""
    keys: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in _sizes(clients, bucket, prefix)]
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
    token = clients.secretsmanager.get_secret_value(SecretId=request["HubTokenSecret"])["SecretString"].strip()
    return lambda source: HubFiles(source.written, source.revision, hub_client(token=token))


@dataclass(frozen=True)
class _File:
    """A file to send: its name under the prefix, its size in bytes, how to open it."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def _files(request: Mapping[str, Any], open_files: OpenFiles) -> list[_File]:
    if "Hub" in request:
        return _on_the_hub(open_files(ModelSource("hub", request["Hub"], request["Revision"])))
    if "Content" in request:
        texts = {name: text.encode() for name, text in request["Content"].items()}
        return [_File(name, len(text), partial(io.BytesIO, text)) for name, text in texts.items()]
    folder = Path(request["Source"])
    return [_File(file["path"], file["size"], partial((folder / file["path"]).open, "rb")) for file in request["Files"]]


def _on_the_hub(files: ModelFiles) -> list[_File]:
    try:
        sizes = files.sizes()
    except UnreadableModel as error:
        raise PlatformError(error.message, hint=error.hint) from error
    safe = any(name.endswith(".safetensors") for name in sizes)
    return [
        _File(name, size, partial(_open_on_the_hub, files, name, size))
        for name, size in sizes.items()
        if not name.startswith(".") and not (safe and name.endswith(_OTHER_WEIGHTS))
    ]


def _open_on_the_hub(files: ModelFiles, name: str, size: int) -> IO[bytes]:
    return io.BufferedReader(_HubFile(files, name, size), _PIECE_BYTES)


class _HubFile(io.RawIOBase):
    """A file of the hub that is read from its beginning to its end, in pieces, and never kept."""

    def __init__(self, files: ModelFiles, name: str, size: int) -> None:
        self._files, self._name, self._size, self._position = files, name, size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes. Raises PlatformError."""
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
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)


def _sizes(clients: Clients, bucket: str, prefix: str) -> dict[str, int]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}
