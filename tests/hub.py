"""A Hugging Face hub on loopback: model information, and files in whole or in ranges."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_test"


class Hub(ThreadingHTTPServer):
    """Serves `repositories`, folders by id, at one commit; `gated` ones want the token. Notes paths and bytes sent.

    What goes wrong, on demand: `refusals` are statuses and headers of the next answers to requests for files, `cuts`
    the bytes after which the next long ones break off, `lie_at` a byte of every file that is sent as another one. From
    byte `hold_at` on, nothing of a file is sent before `go`. `logins` are those for a proxy that were seen.
    """

    daemon_threads = True

    def __init__(self, repositories: dict[str, Path], gated: set[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.gated = gated
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.sent: dict[str, int] = {}
        self.has_ranges = True
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.cuts: list[int] = []
        self.lie_at: int | None = None
        self.hold_at: int | None = None
        self.go = threading.Event()
        self.logins: set[str] = set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go away."""


@contextmanager
def hub(repositories: dict[str, Path], gated: set[str] | None = None) -> Iterator[Hub]:
    server = Hub(repositories, gated or set())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _asked(path: str) -> tuple[str, str, str | None]:
    """Repository, revision and file of a request; no file for `…/revision/…`. Data sets are `datasets/org/name`."""
    is_file = "/resolve/" in path
    repo, _, rest = path.removeprefix("api/").partition("/resolve/" if is_file else "/revision/")
    revision, _, file = rest.partition("/")
    return repo, revision, file if is_file else None


def _listing(folder: Path) -> bytes:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return json.dumps({"sha": COMMIT, "siblings": [_sibling(path, folder) for path in files]}).encode()


def _sibling(path: Path, folder: Path) -> dict[str, object]:
    """A file as the hub describes it with `blobs=true`: a large one with the SHA-256 by which Git LFS stores it."""
    content = path.read_bytes()
    blob = {
        "rfilename": path.relative_to(folder).as_posix(),
        "size": len(content),
        "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }
    large = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return {**blob, "lfs": large} if path.suffix == ".safetensors" else blob


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.logins.update(self.headers.get_all("Proxy-Authorization", []))
        repo, revision, file = _asked(self.path.partition("?")[0].strip("/").removeprefix("api/models/"))
        folder = self.server.repositories.get(repo)
        if folder is None or revision not in ("main", COMMIT):
            self._answer(404, b"Repository not found")
        elif repo in self.server.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, b"Access to this model is restricted")
        elif file is None:
            self._answer(200, _listing(folder))
        else:
            self._file(folder / file)

    def _file(self, path: Path) -> None:
        if self.server.refusals:
            status, headers = self.server.refusals.pop(0)
            self._answer(status, b"", headers)
            return
        content, status = bytearray(path.read_bytes()), 200
        if self.server.lie_at is not None:
            content[self.server.lie_at] ^= 1
        start = 0
        if (wanted := self.headers.get("Range")) and self.server.has_ranges:
            start, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            content, status = content[start : last + 1], 206
        self.server.sent[path.name] = self.server.sent.get(path.name, 0) + len(content)
        first = len(content) if self.server.hold_at is None else max(0, self.server.hold_at - start)
        self._answer(status, content[:first], length=len(content))
        if first < len(content):
            self.server.go.wait(60)
            self.wfile.write(content[first:])

    def _answer(
        self, status: int, body: bytes | bytearray, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        length = len(body) if length is None else length
        for name, value in {"Content-Length": str(length), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        is_cut = self.server.cuts and len(body) > self.server.cuts[0]
        self.wfile.write(body[: self.server.cuts.pop(0)] if is_cut else body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
