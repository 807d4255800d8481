"""Large objects of moto's S3: moto keeps what is known about them, their bytes go past it, from and to files.

moto itself holds a body several times in memory: 600 MiB that were uploaded took 1.2 GB.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import parse_qs, unquote, urlencode
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.s3.exceptions import EntityTooSmall, InvalidPart, InvalidPartOrder, MalformedXML, S3ClientError
from moto.s3.models import FakeKey, FakeMultipart, MultipartChecksumBuilder, S3Backend, s3_backends
from moto.settings import S3_UPLOAD_PART_MIN_SIZE

from toolkit.platforms.local.aws import ACCOUNT
from toolkit.platforms.local.front import SIGNATURE, is_content, received, refuse
from toolkit.platforms.local.sigv4 import AccessError

LARGE = 1024**2
"""Bytes from which an object goes past moto."""
_PIECE = 1024**2
_DOWNLOADED = {"versionId", "x-id"}
_PART, _TOKEN = "partNumber", "continuation-token"

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class _Asked:
    bucket: str
    key: str
    parameters: dict[str, str]

    @property
    def is_for_content(self) -> bool:
        """Whether a GET is for the object's content, and not for its tags or such."""
        return all(name in _DOWNLOADED or name.startswith(("X-Amz-", "response-")) for name in self.parameters)


def with_large_objects(moto: WSGIApplication, folder: Path) -> WSGIApplication:
    """moto's S3, whose large objects are files without a name in `folder`."""

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ[SIGNATURE].service != "s3":
            return moto(environ, start_response)
        asked, method = _parse(environ), environ["REQUEST_METHOD"]
        if method in ("PUT", "POST") and not _has_upload(asked):
            # Asked for an upload that it does not know, moto fails; asked to abort it, it says NoSuchUpload.
            return moto({**_without_body(environ), "REQUEST_METHOD": "DELETE"}, start_response)
        if is_content(received(environ), environ[SIGNATURE]) and int(environ["CONTENT_LENGTH"]) > LARGE:
            return _put(moto, asked, environ, start_response)
        if method == "POST" and "uploadId" in asked.parameters:
            return _complete(moto, asked, environ, start_response, folder)
        if method == "GET" and asked.parameters.get(_TOKEN, "") not in {"", *_s3()._pagination_tokens}:
            # moto would begin again.
            error = AccessError("InvalidArgument", "The continuation token provided is incorrect")
            return refuse(received(environ), error, start_response)
        if method == "GET" and _PART in asked.parameters and "uploadId" not in asked.parameters:
            return _get_part(application, asked, environ, start_response)
        if method == "GET" and asked.is_for_content and (key := _large_object(asked)):
            return _get(moto, key, environ, start_response)
        return moto(environ, start_response)

    return application


def _parse(environ: WSGIEnvironment) -> _Asked:
    path, _, query = str(environ["RAW_URI"]).partition("?")
    bucket, _, key = path.lstrip("/").partition("/")
    return _Asked(bucket, unquote(key), {name: values[0] for name, values in parse_qs(query, True).items()})


def _has_upload(asked: _Asked) -> bool:
    """Whether the request needs no upload, or the one that it names is under way, or has made the object."""
    identity, bucket = asked.parameters.get("uploadId"), _s3().buckets.get(asked.bucket)
    if identity is None or (bucket and identity in bucket.multiparts):
        return True
    made = _s3().get_object(asked.bucket, asked.key) if bucket and "partNumber" not in asked.parameters else None
    return made is not None and made.multipart is not None and made.multipart.id == identity


def _without_body(environ: WSGIEnvironment) -> WSGIEnvironment:
    return {**environ, "wsgi.input": io.BytesIO(), "CONTENT_LENGTH": "0"}


def _put(
    moto: WSGIApplication, asked: _Asked, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """PutObject and UploadPart: moto is given nothing, and the file afterwards."""
    file: IO[bytes] = environ["wsgi.input"]
    size = int(environ["CONTENT_LENGTH"])
    status, headers, body = _answer(moto, _without_body(environ))
    if status.startswith("200"):
        etag = hashlib.file_digest(file, "md5").hexdigest()  # type: ignore[arg-type]  # a file is enough
        if "uploadId" in asked.parameters:
            upload = _s3().get_bucket(asked.bucket).multiparts[asked.parameters["uploadId"]]
            key = upload.parts[int(asked.parameters["partNumber"])]
        else:
            key = _object(asked)
        _give(key, file, size)
        key._etag = etag
        headers = [(name, value) for name, value in headers if name.lower() != "etag"]
        headers.append(("ETag", f'"{etag}"'))
    start_response(status, headers)
    return [body]


def _complete(
    moto: WSGIApplication, asked: _Asked, environ: WSGIEnvironment, start_response: StartResponse, folder: Path
) -> Iterable[bytes]:
    """CompleteMultipartUpload: the parts are joined in a file."""
    bucket = _s3().buckets.get(asked.bucket)
    upload = bucket.multiparts.get(asked.parameters["uploadId"]) if bucket else None
    if bucket is None or upload is None:
        return moto(environ, start_response)
    with tempfile.TemporaryFile(dir=folder) as whole:
        bucket.multiparts[upload.id] = _Upload(upload, whole, environ.get("HTTP_X_AMZ_MP_OBJECT_SIZE"))
        status, headers, body = _answer(moto, environ)
        if status.startswith("200"):
            _give(_object(asked), whole, whole.seek(0, io.SEEK_END))
        else:
            bucket.multiparts[upload.id] = upload
    start_response(status, headers)
    return [body]


class _Upload(FakeMultipart):
    """An upload in parts, whose parts are joined in a file. `size` is that of the whole, if the request says it."""

    def __init__(self, upload: FakeMultipart, whole: IO[bytes], size: str | None) -> None:
        self.__dict__.update(vars(upload))
        self._whole, self._size = whole, size
        self.sizes: list[int] = []
        """Of the parts that were joined."""

    def complete(self, body: Iterator[tuple[int, str]]) -> tuple[bytes, str, tuple[str, str, int] | None]:
        """Content, ETag and checksum, as moto's own method, but that the content stays in the file."""
        named = (self.metadata.get(f"x-amz-checksum-{name}") for name in ("algorithm", "type"))
        checksum, digests = MultipartChecksumBuilder(*named), b""
        last: FakeKey | None = None
        before = 0
        for number, etag in body:
            if number <= before:  # which moto means to refuse, too
                raise InvalidPartOrder
            before, part = number, self.parts.get(number)
            if part is None or part.etag.strip('"') != etag.strip('"'):
                raise InvalidPart
            if last is not None and last.contentsize < S3_UPLOAD_PART_MIN_SIZE:
                raise EntityTooSmall
            digests += bytes.fromhex(part.etag.strip('"'))
            part._value_buffer.seek(0)
            shutil.copyfileobj(part._value_buffer, self._whole, _PIECE)
            # Of a whole object moto takes the checksum in memory, and no client asks for it where there are parts.
            if checksum.checksum_type == "COMPOSITE" and part.contentsize:
                with mmap.mmap(part._value_buffer.fileno(), 0, prot=mmap.PROT_READ) as content:
                    checksum.addPart(cast(bytes, content))
            self.sizes.append(part.contentsize)
            last = part
        if last is None:
            raise MalformedXML
        if self._size is not None and self._size != str(sum(self.sizes)):
            raise S3ClientError("InvalidRequest", f"The object has {sum(self.sizes)} bytes, and not {self._size}.")
        self._whole.flush()
        etag = f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(digests) // 16}"
        return b"", etag, checksum.build() if checksum.checksum_type == "COMPOSITE" else None


def _s3() -> S3Backend:
    return s3_backends[ACCOUNT]["aws"]


def _object(asked: _Asked) -> FakeKey:
    """An object that moto has just made."""
    key = _s3().get_object(asked.bucket, asked.key)
    assert key is not None
    return key


def _find(asked: _Asked) -> FakeKey | None:
    if asked.bucket not in _s3().buckets:
        return None
    return _s3().get_object(asked.bucket, asked.key, version_id=asked.parameters.get("versionId"))


def _large_object(asked: _Asked) -> FakeKey | None:
    key = _find(asked)
    return key if key is not None and key.contentsize > LARGE else None


def _get(
    moto: WSGIApplication, key: FakeKey, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """GetObject: the headers are those that moto answers HEAD with."""
    status, headers, _ = _answer(moto, {**environ, "REQUEST_METHOD": "HEAD"})
    if not status.startswith(("200", "206")):
        return moto(environ, start_response)
    if key.multipart:  # moto's HEAD gives the checksum of the parts as if it were that of the object
        headers = [(name, value) for name, value in headers if not name.lower().startswith("x-amz-checksum-")]
    named = {name.lower(): value for name, value in headers}
    start = int(named.get("content-range", "bytes 0-").removeprefix("bytes ").partition("-")[0])
    start_response(status, headers)
    return _Content(key._value_buffer.fileno(), start, int(named["content-length"]))


def _get_part(
    application: WSGIApplication, asked: _Asked, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """GetObject of a part, which moto does not know: the range of it."""
    number, rest = asked.parameters[_PART], {**asked.parameters}
    del rest[_PART]
    query = urlencode(rest)
    path = str(environ["RAW_URI"]).partition("?")[0]
    whole = {**environ, "QUERY_STRING": query, "RAW_URI": f"{path}?{query}"}
    key = _find(asked)
    if key is None:
        return application(whole, start_response)
    sizes = key.multipart.sizes if isinstance(key.multipart, _Upload) else [key.contentsize]
    if "HTTP_RANGE" in environ:
        why = AccessError("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
        return refuse(received(environ), why, start_response)
    if not number.isdecimal() or not 1 <= int(number) <= len(sizes):
        why = AccessError("InvalidPartNumber", "The requested partnumber is not satisfiable")
        return refuse(received(environ), why, start_response)
    start, size = sum(sizes[: int(number) - 1]), sizes[int(number) - 1]
    if size:
        whole["HTTP_RANGE"] = f"bytes={start}-{start + size - 1}"

    def counted(status: str, headers: Headers, *more: Any) -> Any:
        return start_response(status, [*headers, ("x-amz-mp-parts-count", str(len(sizes)))], *more)

    return application(whole, counted if key.multipart else start_response)


class _Content:
    """Bytes of a file, piece by piece. The file may be closed meanwhile, as when the object is deleted."""

    def __init__(self, file: int, start: int, size: int) -> None:
        self._file, self._position, self._end = os.dup(file), start, start + size

    def __iter__(self) -> Iterator[bytes]:
        while piece := os.pread(self._file, min(_PIECE, self._end - self._position), self._position):
            self._position += len(piece)
            yield piece

    def close(self) -> None:
        """The server calls this at the end, whatever happened."""
        os.close(self._file)


def _give(key: FakeKey, file: IO[bytes], size: int) -> None:
    """Make the file, which its owner may close, the content of a moto object."""
    key._value_buffer.close()
    key._value_buffer = cast(Any, os.fdopen(os.dup(file.fileno()), "r+b"))
    key.contentsize = size
    key.__class__ = _InFile


class _InFile(FakeKey):
    """An object whose content is in a file. To list versions moto copies each object, with its content in memory."""

    def __deepcopy__(self, _memo: Any) -> _Listed:
        copied: _Listed = object.__new__(_Listed)
        copied.__dict__.update(vars(self))
        return copied


class _Listed(FakeKey):
    """What a list of versions says of an object, whose file it does not close."""

    def dispose(self, garbage: bool = False) -> None:
        """It is the object's."""


def _answer(application: WSGIApplication, environ: WSGIEnvironment) -> tuple[str, Headers, bytes]:
    head: list[Any] = []

    def start_response(status: str, headers: Headers, *_: Any) -> Any:
        head[:] = [status, headers]

    body = b"".join(application(environ, start_response))
    return head[0], head[1], body
