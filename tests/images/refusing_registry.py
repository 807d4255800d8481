"""A real registry behind an address that refuses as a cloud's does: a stand-in for ECR, Google's and Harbor.

What each refuses is what their users report (the sources stand in `upload.py` and the tests of refused pushes); none of
it was held against the real ones.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSALS: dict[str, Sequence[tuple[str, str, int]]] = {
    # No mounts, no questions about an upload, and a tag stays what it was.
    "ecr": [("POST", r"[?&]mount=", 405), ("GET", r"/blobs/uploads/.", 404), ("PUT", r"/manifests/(?!sha256)", 400)],
    # Nothing from another project, and blobs whole only.
    "google": [("POST", r"[?&]mount=", 403), ("PATCH", r"/blobs/uploads/", 415)],
    # It does not say what it has, nor mounts what a robot may only read.
    "harbor": [("POST", r"[?&]mount=", 401), ("HEAD", r"/blobs/", 405)],
}
"""What is answered with a status instead: method, what the path matches, status."""

_READ_BYTES = 1024**2
_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend: str
    refusals: Sequence[tuple[str, str, int]]
    tags: set[str]
    refused: list[str]

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def _answer(self) -> None:
        for method, path, status in self.refusals:
            if self.command == method and re.search(path, self.path) and not self._is_new_tag():
                self.refused.append(f"{method} {path}")
                for _ in self._body():
                    pass
                self.send_response(status)
                self.send_header("Content-Length", "0")
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.end_headers()
                return
        self._forward()

    def _is_new_tag(self) -> bool:
        is_new = self.command == "PUT" and "/manifests/" in self.path and self.path not in self.tags
        self.tags.update([self.path] if is_new else [])
        return is_new

    def _forward(self) -> None:
        connection = HTTPConnection(self.backend)
        try:
            headers = dict(self.headers.items())
            length = "Content-Length" in headers
            connection.request(self.command, self.path, self._body() if length else None, headers)
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", answer.headers.get("Content-Length", "0"))
            self.end_headers()
            while piece := answer.read(_READ_BYTES):
                self.wfile.write(piece)
        finally:
            connection.close()

    def _body(self) -> Iterator[bytes]:
        left = int(self.headers.get("Content-Length", 0))
        while left and (piece := self.rfile.read1(min(left, _READ_BYTES))):
            left -= len(piece)
            yield piece

    def log_message(self, *_: object) -> None: ...


@contextmanager
def refusing(manner: str, registry: str) -> Iterator[tuple[str, list[str]]]:
    """Host and port, and what was refused so far, until the block ends."""

    class Handler(_Handler):
        backend, refusals, tags, refused = registry, REFUSALS[manner], set(), []

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", Handler.refused
        finally:
            server.shutdown()
            thread.join()
