"""A hub whose connections are slow, and an S3 that keeps nothing but checksums: `slow_hub(...)` runs both in a process.

The hub's one repository, org/model, has files of any size, as one block of bytes over and over.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3

from toolkit.recipe.hub import HubFiles, hub_client

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_BLOCK = random.Random(3).randbytes(1024**2 + 1)  # no two parts of a file are the same
_PIECE = 64 * 1024
_NO_OBJECT = b"<Error><Code>NoSuchKey</Code></Error>"


@dataclass(frozen=True)
class Speed:
    """What each connection carries, and how long each answer is on its way.

    The first range of the first file comes only when `late` bytes of others have gone.
    """

    bytes_per_second: float
    seconds: float
    late: int = 0


@dataclass(frozen=True)
class Servers:
    hub_url: str
    s3_url: str

    @contextmanager
    def files(self) -> Iterator[HubFiles]:
        with hub_client(self.hub_url) as client:
            yield HubFiles("org/model", COMMIT, client)

    def session(self) -> boto3.Session:
        return _Session(self.s3_url)


class _Session(boto3.Session):
    def __init__(self, url: str) -> None:
        super().__init__("testing", "testing", region_name="us-west-2")
        self._url = url

    def client(self, *args: Any, **options: Any) -> Any:
        return super().client(*args, endpoint_url=self._url, **options)  # type: ignore[call-overload]  # 300 of them


@contextmanager
def slow_hub(speed: Speed, sizes: list[int]) -> Iterator[Servers]:
    """Both servers, in a process of their own."""
    arguments = json.dumps([asdict(speed), sizes])
    command = [sys.executable, str(Path(__file__)), arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Servers(*json.loads(process.stdout.readline()))
        finally:
            process.kill()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Hub(_Server):
    def __init__(self, speed: Speed, sizes: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _HubHandler)
        self.speed = speed
        self.sizes = {f"model-{number}.safetensors": size for number, size in enumerate(sizes)}
        self.listing = json.dumps(
            {"sha": COMMIT, "siblings": [_sibling(*item) for item in self.sizes.items()]}
        ).encode()
        self.gone = 0
        self.lock = threading.Lock()


class _HubHandler(_Handler):
    server: _Hub

    def do_GET(self) -> None:
        time.sleep(self.server.speed.seconds)
        name = self.path.rpartition("/")[2]
        if name not in self.server.sizes:
            self.answer(200, self.server.listing)
            return
        first, last = (int(number) for number in self.headers["Range"].removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        while first == 0 and last > 0 and self.server.gone < self.server.speed.late and name.startswith("model-0"):
            time.sleep(0.01)
        self._send(first, last + 1)

    def _send(self, start: int, end: int) -> None:
        began, sent = time.monotonic(), 0
        while start < end:
            at = start % len(_BLOCK)
            piece = memoryview(_BLOCK)[at : at + min(_PIECE, end - start)]
            self.wfile.write(piece)
            start, sent = start + len(piece), sent + len(piece)
            time.sleep(max(0.0, began + sent / self.server.speed.bytes_per_second - time.monotonic()))
        with self.server.lock:
            self.server.gone += sent


def _sibling(name: str, size: int) -> dict[str, object]:
    digest, whole = hashlib.sha256(), size // len(_BLOCK)
    for _ in range(whole):
        digest.update(_BLOCK)
    digest.update(_BLOCK[: size - whole * len(_BLOCK)])
    return {"rfilename": name, "size": size, "lfs": {"sha256": digest.hexdigest()}}


class _S3(_Server):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _S3Handler)
        self.checksums: dict[str, str] = {}
        self.parts: dict[str, dict[int, str]] = {}


class _S3Handler(_Handler):
    server: _S3

    def do_GET(self) -> None:
        is_list = urlsplit(self.path).path.count("/") == 1
        self.answer(200 if is_list else 404, b"<Result/>" if is_list else _NO_OBJECT)

    def do_HEAD(self) -> None:
        checksum = self.server.checksums.get(urlsplit(self.path).path)
        self.answer(200 if checksum else 404, headers={"x-amz-checksum-sha256": checksum} if checksum else {})

    def do_POST(self) -> None:
        key = urlsplit(self.path).path
        self._body()
        if "uploadId" in self.path:
            parts = self.server.parts.pop(key)
            whole = hashlib.sha256(b"".join(base64.b64decode(parts[number]) for number in sorted(parts))).digest()
            self.server.checksums[key] = f"{base64.b64encode(whole).decode()}-{len(parts)}"
            self.answer(200, b"<CompleteMultipartUploadResult/>")
        else:
            self.server.parts[key] = {}
            self.answer(200, b"<Result><UploadId>1</UploadId></Result>")

    def do_PUT(self) -> None:
        address = urlsplit(self.path)
        self._body()
        checksum = self.headers.get("x-amz-checksum-sha256", "")
        if number := parse_qs(address.query).get("partNumber"):
            self.server.parts[address.path][int(number[0])] = checksum
        else:
            self.server.checksums[address.path] = checksum
        self.answer(200, headers={"ETag": '"1"'})

    def _body(self) -> None:
        left, buffer = int(self.headers["Content-Length"] or 0), memoryview(bytearray(_PIECE * 4))
        while left:
            left -= self.rfile.readinto(buffer[: min(left, len(buffer))])


def _main() -> None:
    speed, sizes = json.loads(sys.argv[1])
    servers = [_Hub(Speed(**speed), sizes), _S3()]
    for server in servers:
        threading.Thread(target=server.serve_forever).start()
    print(json.dumps([f"http://127.0.0.1:{server.server_port}" for server in servers]), flush=True)


if __name__ == "__main__":
    _main()
