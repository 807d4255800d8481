"""In front of the control plane, without a server."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from toolkit.platforms.local.credentials import Credentials
from toolkit.platforms.local.front import guarded
from toolkit.platforms.local.sigv4 import Guard

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

KEY = Credentials("LOCALKEY", "secret")


def environ(body: bytes) -> dict[str, Any]:
    """A signed PUT of an object."""
    request = AWSRequest("PUT", "http://127.0.0.1:80/models/key", {"Host": "127.0.0.1:80"}, data=body)
    boto = BotoCredentials(KEY.access_key_id, KEY.secret_access_key)
    S3SigV4Auth(boto, "s3", "us-west-2").add_auth(request)
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    return {
        **headers,
        "REQUEST_METHOD": "PUT",
        "RAW_URI": "/models/key",
        "PATH_INFO": "/models/key",
        "SERVER_PORT": "80",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }


def size(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [b"%d bytes" % len(environ["wsgi.input"].read())]


def ask(folder: Path, body: bytes, **more: str) -> tuple[str, bytes]:
    said: list[str] = []

    def start_response(status: str, headers: Sequence[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], Any]:
        said.append(status)
        return lambda _: None

    answer = guarded(size, Guard(KEY), folder)({**environ(body), **more}, start_response)
    return said[0], b"".join(answer)


def test_a_large_body_waits_on_the_disk(tmp_path: Path) -> None:
    assert ask(tmp_path, b"x" * 2_000_000) == ("200 OK", b"2000000 bytes")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_does_not_take_it_is_said(tmp_path: Path) -> None:
    status, answer = ask(tmp_path / "gone", b"x" * 2_000_000)
    assert status.startswith("400")
    assert b"<Code>InsufficientStorage</Code>" in answer
    assert b"does not get into" in answer


def test_a_web_page_gets_nothing_though_what_it_asks_is_signed(tmp_path: Path) -> None:
    """Such as by a presigned address that a user has opened."""
    status, answer = ask(tmp_path, b"x", HTTP_ORIGIN="https://evil.example")
    assert status.startswith("403")
    assert b"<Code>AccessDenied</Code>" in answer
