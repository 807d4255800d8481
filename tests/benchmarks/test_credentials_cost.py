"""What checking credentials adds to a request of the local platform: the same requests in turn, with and without.

Prints, asserts nothing about time.
"""

from __future__ import annotations

import http.client
import http.server
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import uvicorn
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from toolkit.platforms.local import credentials
from toolkit.platforms.local.control import control_server
from toolkit.platforms.local.front import guarded
from toolkit.platforms.local.gateway import gateway
from toolkit.platforms.local.host import Target
from toolkit.platforms.local.sigv4 import Guard
from toolkit.platforms.sagemaker.runtime import bearer_token

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ROUNDS = 400
BODY = b'{"messages": [{"role": "user", "content": "' + b"x" * 2000 + b'"}]}'


class Open(Guard):
    """Lets everybody in."""

    def admit_signed(self, *_: object) -> None:
        """No check."""

    def admit_bearer(self, *_: object) -> None:
        """No check."""


class Container(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@contextmanager
def gateway_with(guard: Guard, port: int) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = gateway({"e": [Target("v", 1.0, port, "arn")]}.get, guard)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


@contextmanager
def control_with(application: WSGIApplication) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = control_server(application, listener)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.shutdown()
        thread.join()
        server.server_close()


def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    start_response("200 OK", [("Content-Length", "2")])
    return [b"{}"]


@pytest.fixture
def key(tmp_path: Path) -> credentials.Credentials:
    return credentials.create(tmp_path / "credentials")


Headers = Callable[[str], dict[str, str]]


def signed(key: credentials.Credentials) -> Headers:
    def headers(url: str) -> dict[str, str]:
        request = AWSRequest("POST", url, {"Content-Type": "application/json"}, data=BODY)
        boto = BotoCredentials(key.access_key_id, key.secret_access_key)
        SigV4Auth(boto, "sagemaker", "us-west-2").add_auth(request)
        return dict(request.headers.items())

    return headers


def bearer(key: credentials.Credentials) -> Headers:
    boto = BotoCredentials(key.access_key_id, key.secret_access_key)
    return lambda _: {"Authorization": f"Bearer {bearer_token(boto, 'us-west-2')}"}


@pytest.mark.parametrize(("route", "sign"), [("invocations", signed), ("openai/v1/chat/completions", bearer)])
def test_the_gateway(key: credentials.Credentials, route: str, sign: Callable[..., Headers]) -> None:
    with ExitStack() as stack:
        container = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Container))
        threading.Thread(target=container.serve_forever, daemon=True).start()
        stack.callback(container.shutdown)
        checked, free = (
            f"{stack.enter_context(gateway_with(guard(key), container.server_port))}/endpoints/e/{route}"
            for guard in (Guard, Open)
        )
        compare(route, checked, free, sign(key))


def test_the_control_plane(key: credentials.Credentials, tmp_path: Path) -> None:
    """With all that the guard does, which is more than the signature, and with nothing of it."""
    with control_with(guarded(answer, Guard(key), tmp_path)) as checked, control_with(answer) as free:
        compare("control plane", f"{checked}/", f"{free}/", signed(key))


def compare(what: str, checked: str, free: str, headers: Headers) -> None:
    took: dict[str, list[float]] = {checked: [], free: []}
    for turn in range(ROUNDS + 20):
        for url in sorted(took, reverse=turn % 2 == 0):
            seconds = ask(url, headers(url))
            if turn >= 20:
                took[url].append(seconds)
    with_ms, without_ms = (statistics.median(took[url]) * 1000 for url in (checked, free))
    print(f"\n{what}: {with_ms:.3f} ms with, {without_ms:.3f} ms without: {with_ms - without_ms:+.3f} ms")


def ask(url: str, headers: dict[str, str]) -> float:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.connect()
    started = time.perf_counter()
    connection.request("POST", parts.path, BODY, headers)
    status = connection.getresponse().status
    seconds = time.perf_counter() - started
    connection.close()
    assert status == 200
    return seconds
