"""Uploads only: a registry that keeps what came of a request that broke off, and says so in one of two ways.

`oci` does as the OCI distribution specification says. `ecr` does as users of Amazon ECR report
(aws/containers-roadmap#2831, apple/containerization#790, dotnet/sdk#33019): pieces are answered with 201, the range
stands still after the first, the state of an upload cannot be asked for, and a piece at a wrong place is refused with
words that name the right one. Both refuse a piece that is not as long as its Content-Range says, as Docker's registry 3
does (its blobupload.go).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from toolkit.images.manifest import digest_of

_READ_BYTES = 4096


class Store:
    """What the registry has."""

    def __init__(self, manner: str) -> None:
        self.manner = manner
        self.received = bytearray()
        self.first_piece = 0
        self.blobs: dict[str, bytes] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def do_POST(self) -> None:
        self._answer(202)

    def do_GET(self) -> None:
        self._answer(204 if self.store.manner == "oci" else 404)

    def do_PATCH(self) -> None:
        if self._receive():
            self._answer(202 if self.store.manner == "oci" else 201)

    def do_PUT(self) -> None:
        if not self._receive():
            return
        digest = parse_qs(urlsplit(self.path).query)["digest"][0]
        if digest != digest_of(bytes(self.store.received)):
            self._answer(400)
            return
        self.store.blobs[digest] = bytes(self.store.received)
        self._answer(201)

    def _receive(self) -> bool:
        """Keep what comes. False when there is nothing to answer any more, or the answer was no."""
        left = int(self.headers["Content-Length"])
        told = re.fullmatch(r"(\d+)-(\d+)", self.headers.get("Content-Range", ""))
        start, have = int(told[1]) if told else 0, len(self.store.received)
        if told and int(told[2]) - start + 1 != left:
            self.rfile.read(left)
            self._answer(400, f"{told[0]} are not {left} bytes", "SIZE_INVALID")
            return False
        if start != have:
            self.rfile.read(left)
            words = f"First byte of the layer part is {start} instead of {have}"
            self._answer(416, words if self.store.manner == "ecr" else "")
            return False
        while left:
            piece = self.rfile.read1(min(left, _READ_BYTES))
            if not piece:
                self.close_connection = True
                return False
            self.store.received += piece
            left -= len(piece)
        self.store.first_piece = self.store.first_piece or len(self.store.received)
        return True

    def _answer(self, status: int, words: str = "", code: str = "BLOB_UPLOAD_INVALID") -> None:
        body = json.dumps({"errors": [{"code": code, "message": words}]}).encode() if words else b""
        known = len(self.store.received) if self.store.manner == "oci" else self.store.first_piece
        self.send_response(status)
        self.send_header("Location", "/v2/large/blobs/uploads/1")
        self.send_header("Range", f"0-{max(0, known - 1)}")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


class _Server(ThreadingHTTPServer):
    """One connection at a time: a question after a broken request waits until that is over."""

    last: threading.Thread | None = None

    def process_request(self, request: Any, client_address: Any) -> None:
        before = self.last

        def serve() -> None:
            if before:
                before.join()
            self.process_request_thread(request, client_address)

        self.last = threading.Thread(target=serve, daemon=True)
        self.last.start()


@contextmanager
def telling(manner: str) -> Iterator[tuple[str, Store]]:
    """Host and store, while the block runs."""

    class Handler(_Handler):
        store = Store(manner)

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", Handler.store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
