"""In front of the control plane: lets its owner in, bounds the size of requests, hides what moto has of its own."""

from __future__ import annotations

import hashlib
import json
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from xml.sax.saxutils import escape

from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY

from toolkit.platforms.local import sigv4
from toolkit.platforms.local.digests import must_match
from toolkit.platforms.local.sigv4 import AccessError, Guard, Received, Signature, must_be_a_program

SIGNATURE = "toolkit.signature"
"""Where a request that was let in has its signature."""
LARGEST_BODY = 8 * 1024**2
"""Bytes of any request but an object for S3; CompleteMultipartUpload with 10,000 parts takes 3 MB."""
LARGEST_OBJECT = 5 * 1024**3
"""Bytes of an object or of a part of one: S3's own limit."""
_IN_MEMORY = 1024**2
_PIECE = 1024**2
_UNSIGNED = (sigv4.UNSIGNED_PAYLOAD, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
# What a PUT of an object's content may have in its query, besides a signature.
_CONTENT_PARAMETERS = {"partNumber", "uploadId", "x-id"}
# moto's own: its switches, and an instance's metadata, which no service of AWS answers.
_CLOSED = ("/moto-api", "/favicon.ico", "/latest/meta-data/", "/latest/api/")
_BAD_REQUESTS = (
    "BadDigest",
    "EntityTooLarge",
    "InsufficientStorage",
    "InvalidArgument",
    "InvalidDigest",
    "InvalidRequest",
    "MissingContentLength",
    "RequestTimeout",
    "XAmzContentSHA256Mismatch",
)
_STATUSES = {
    **dict.fromkeys(_BAD_REQUESTS, "400 Bad Request"),
    "InvalidPartNumber": "416 Requested Range Not Satisfiable",
}


@dataclass(frozen=True)
class Body:
    file: IO[bytes]
    size: int
    sha256: str


def guarded(application: WSGIApplication, guard: Guard, folder: Path) -> WSGIApplication:
    """The application behind the guard. Large bodies wait in files without a name in `folder`."""

    def front(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = received(environ)
        try:
            must_be_a_program(request.headers, int(environ["SERVER_PORT"]))
            if environ["PATH_INFO"].startswith(_CLOSED):
                raise AccessError("AccessDenied", "The local platform keeps that to itself.")
            _must_have_a_length(environ)
            signature = sigv4.signature_of(request)
            body = _admit(request, signature, environ, guard, folder)
        except AccessError as error:
            return refuse(request, error, start_response)
        environ[SIGNATURE] = signature
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = body.file, str(body.size)
        with body.file:
            return application(environ, start_response)

    return front


def received(environ: WSGIEnvironment) -> Received:
    """The request as it came over the wire."""
    kept: dict[str, str] = environ.get(PRESERVED_HEADER_NAMES_ENVIRON_KEY, {})  # names that have underscores
    headers = {
        kept.get(key, key[5:].replace("_", "-")).lower(): value
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    for key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(key):
            headers[key.replace("_", "-").lower()] = environ[key]
    path, _, query = environ["RAW_URI"].partition("?")
    return Received(environ["REQUEST_METHOD"], path, query, headers)


def _must_have_a_length(environ: WSGIEnvironment) -> None:
    """Raise AccessError for a body in chunks, as S3 does; it may have no end, and the server would wait for it."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RD)
        raise AccessError("MissingContentLength", "The request must have a Content-Length.")


def _admit(request: Received, signature: Signature, environ: WSGIEnvironment, guard: Guard, folder: Path) -> Body:
    """The body of a request that is let in; it is read after the signature was checked, wherever that is possible."""
    if signature.payload is None:
        guard.must_know(request, signature)
        body = _read(environ, LARGEST_BODY, folder)
        guard.admit_signed(request, signature, body.sha256)
        return body
    guard.admit_signed(request, signature, signature.payload)
    body = _read(environ, LARGEST_OBJECT if is_content(request, signature) else LARGEST_BODY, folder)
    if signature.payload not in (*_UNSIGNED, body.sha256):
        raise AccessError("XAmzContentSHA256Mismatch", "The body is not the one that x-amz-content-sha256 describes.")
    if signature.service == "s3" and not signature.payload.startswith("STREAMING-"):
        must_match(request.headers, body.file, is_content=is_content(request, signature))
    return body


def is_content(request: Received, signature: Signature) -> bool:
    """Whether the body is the content of an object in S3, or of a part of one, as it is."""
    parameters = {pair.partition("=")[0] for pair in request.query.split("&") if pair}
    return (
        (request.method, signature.service) == ("PUT", "s3")
        and "/" in request.path.strip("/")
        and not {name for name in parameters - _CONTENT_PARAMETERS if not name.startswith("X-Amz-")}
        and "x-amz-copy-source" not in request.headers
        and not (signature.payload or "").startswith("STREAMING-")
    )


def _read(environ: WSGIEnvironment, most: int, folder: Path) -> Body:
    """What comes with the request. Raises AccessError when it is more than `most` bytes, or than the disk takes."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > most:
        raise AccessError("EntityTooLarge", f"The body of this request must be at most {most} bytes.")
    file = cast(IO[bytes], tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder)))  # noqa: SIM115 - the caller closes it
    digest, size = hashlib.sha256(), 0
    try:
        while piece := environ["wsgi.input"].read(min(_PIECE, int(length) - size)):
            size += len(piece)
            digest.update(piece)
            file.write(piece)
    except TimeoutError as error:
        file.close()
        raise AccessError("RequestTimeout", "The rest of the body did not come in time.") from error
    except OSError as error:
        file.close()
        raise AccessError("InsufficientStorage", f"The body does not get into {folder}: {error}.") from error
    file.seek(0)
    return Body(file, size, digest.hexdigest())


def refuse(request: Received, error: AccessError, start_response: StartResponse) -> Iterable[bytes]:
    """An error in the words of the protocol that the request is in."""
    code, message = error.code, str(error)
    if "x-amz-target" in request.headers:
        kind, content = "application/x-amz-json-1.1", json.dumps({"__type": code, "message": message})
    else:
        text = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
        is_query = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        kind = "text/xml"
        content = f"<ErrorResponse><Error>{text}</Error></ErrorResponse>" if is_query else f"<Error>{text}</Error>"
    answer = b"" if request.method == "HEAD" else content.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(answer))), ("x-amzn-ErrorType", code)]
    start_response(_STATUSES.get(code, "403 Forbidden"), headers)
    return [answer]
