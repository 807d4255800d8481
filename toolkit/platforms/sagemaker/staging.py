"""Weights on their way to S3: from a folder, the hub, or the plan. What is there already is not sent again.

What S3 holds is told by its own SHA-256 of an object, never by its size alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.stored import object_sizes, stored_sha256
from toolkit.platforms.sagemaker.transfer import CONNECTIONS, Transfer
from toolkit.platforms.sagemaker.upload import RANGE_BYTES, File, Target, Upload
from toolkit.recipe.content import PART_BYTES
from toolkit.recipe.model_files import ModelFiles, staged_names
from toolkit.recipe.source import ModelSource

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.recipe.lock import OpenFiles

# DeleteObjects takes at most 1000 keys.
_DELETE_BATCH = 1000
_PIECE_BYTES = 1024**2
_TIMEOUT_SECONDS = 30.0
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
    missing = []
    for file in files:
        before = mark.files.get(file.name)
        known = file.sha256 or (before.sha256 if before and before.hub == file.hub else None)
        if known is None or stored.get(prefix + file.name) != known:
            missing.append(file)
        elif before:
            arrived[file.name] = before

    def note(file: File, sha256: str) -> None:
        if "Mark" in request:
            arrived[file.name] = StagedFile(hub=file.hub, sha256=sha256)
            _write_mark(clients, request, Mark(files={**mark.files, **arrived}))

    _send(clients, request, missing, progress, note)
    if "Mark" in request:
        _write_mark(clients, request, Mark(complete=True, files=arrived))


def _write_mark(clients: Clients, request: Mapping[str, Any], mark: Mark) -> None:
    clients.s3.put_object(Bucket=request["Bucket"], Key=request["Mark"], Body=mark.model_dump_json().encode())


def _send(
    clients: Clients,
    request: Mapping[str, Any],
    files: Sequence[File],
    progress: Progress,
    note: Callable[[File, str], None],
) -> None:
    encryption = (
        {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": request["KmsKeyId"]} if "KmsKeyId" in request else {}
    )
    target = Target(clients, request["Bucket"], request["Prefix"], encryption)
    unfinished = target.unfinished() if any(file.size >= PART_BYTES for file in files) else {}
    uploads = [Upload(target, file, unfinished.get(target.prefix + file.name, "")) for file in files]
    if uploads:
        Transfer(uploads, progress, note).run()


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


def _files(request: Mapping[str, Any], open_files: OpenFiles) -> list[File]:
    if "Hub" in request:
        files = open_files(ModelSource(model=request["Hub"], revision=request["Revision"]))
        return _on_the_hub(files, code=request.get("Code", False))
    if "Url" in request:
        return [_from_request(file, partial(_download, request["Url"], file)) for file in request["Files"]]
    texts, folder = request.get("Content", {}), Path(request.get("Source", ""))
    return [
        _from_request(
            file, partial(_cut, texts[file["path"]].encode()) if texts else partial(_read, folder / file["path"])
        )
        for file in request["Files"]
    ]


def _cut(content: bytes, start: int, end: int) -> Iterator[bytes]:
    yield content[start:end]


def _read(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        while start < end and (piece := stream.read(min(end - start, _PIECE_BYTES))):
            start += len(piece)
            yield piece


def _download(url: str, file: Mapping[str, Any], start: int, end: int) -> Iterator[bytes]:
    """The content of a small file. Raises PlatformError."""
    import httpx

    try:
        with documents.making_client():
            made = httpx.Client(timeout=_TIMEOUT_SECONDS)
        with made as client:
            limits = documents.Limits(file["size"])
            yield documents.request(client, "GET", url, limits).raise_for_status().content[start:end]
    except (httpx.HTTPError, documents.Unfit) as error:
        message = f"{file['path']}, which the containers need to start, cannot be downloaded from {url}: {error}"
        hint = "Deploy from a machine that reaches that address, or use an engine.version that does not need the file."
        raise PlatformError(message, hint=hint) from error


def _from_request(file: Mapping[str, Any], read: Callable[[int, int], Iterator[bytes]]) -> File:
    """A file that the request lists with its content."""
    return File(file["path"], file["size"], read, file["path"], file["sha256"])


def _on_the_hub(files: ModelFiles, *, code: bool) -> list[File]:
    from toolkit.recipe.hub import HubFiles  # imports httpx
    from toolkit.recipe.hub_ranges import HubRanges

    assert isinstance(files, HubFiles)
    ranges = HubRanges(files, CONNECTIONS)
    sizes, digests = files.sizes(), files.digests()
    names = staged_names(sizes, code=code)
    large = next((name for name in names if sizes[name] > RANGE_BYTES), None)
    in_ranges = large is None or ranges.has_ranges(large)
    return [
        File(
            name,
            sizes[name],
            partial(ranges.read, name),
            f"{files.location}/{name}",
            hub=digests.get(name, ""),
            in_ranges=in_ranges,
        )
        for name in names
    ]


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
