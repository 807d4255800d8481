"""An image at an address of this machine's loopback, for as long as a container engine takes to pull it.

So podman and docker get the very layers that a push would send, and of the base only those that they have not.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from toolkit.errors import BuildError
from toolkit.images.copy import Part
from toolkit.images.manifest import Manifest

_USER, _REPOSITORY, _POLL_SECONDS = "toolkit", "image", 0.05


class Loan:
    """Where the image can be pulled: `reference`, with `credentials`; `failure` is why a layer could not be read."""

    def __init__(self, manifest: Manifest, parts: Sequence[Part]) -> None:
        self.manifest = manifest
        self.parts = {part.blob.digest: part for part in parts}
        self.password = secrets.token_urlsafe(32)
        self.reference = ""
        self.failure: BuildError | None = None

    def credentials(self, _registry: str) -> tuple[str, str]:
        return _USER, self.password


@contextmanager
def lend(manifest: Manifest, parts: Sequence[Part]) -> Iterator[Loan]:
    """Lend the image until the block ends, to nobody but who has the credentials."""
    loan = Loan(manifest, parts)

    class Handler(_Handler):
        lent = loan

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        loan.reference = f"127.0.0.1:{server.server_port}/{_REPOSITORY}@{manifest.digest}"
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield loan
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """What of the registry's API a pull takes."""

    protocol_version = "HTTP/1.1"
    lent: Loan

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        login = base64.b64encode(f"{_USER}:{self.lent.password}".encode()).decode()
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), f"Basic {login}".encode()):
            self._begin(HTTPStatus.UNAUTHORIZED, 0, ("WWW-Authenticate", 'Basic realm="toolkit"'))
            return
        manifest, name = self.lent.manifest, self.path.rpartition("/")[2]
        if self.path == "/v2/":
            self._begin(HTTPStatus.OK, 0)
        elif name == manifest.digest:
            self._begin(HTTPStatus.OK, len(manifest.body), ("Content-Type", manifest.media_type))
            self.wfile.write(manifest.body if with_body else b"")
        elif part := self.lent.parts.get(name):
            self._begin(HTTPStatus.OK, part.blob.size, ("Content-Type", "application/octet-stream"))
            if with_body:
                self._send(part)
        else:
            self._begin(HTTPStatus.NOT_FOUND, 0)

    def _begin(self, status: HTTPStatus, size: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(size)), *headers):
            self.send_header(name, value)
        self.end_headers()

    def _send(self, part: Part) -> None:
        try:
            for piece in part.read(0):
                self.wfile.write(piece)
        except BuildError as error:
            self.lent.failure = error
            self.close_connection = True
        except ConnectionError:  # who asked has what he wanted, or has ended
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""
