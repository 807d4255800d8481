"""An HTTP server on the loopback that answers what it was told to, one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Reply:
    """One answer. `parts` go out one by one, chunked; with `cut` the connection ends instead of the answer."""

    status: int = 200
    parts: Sequence[bytes] = (b"{}",)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


HANGS_UP = Reply(0)
"""The connection ends before a single byte."""


@dataclass(frozen=True)
class Request:
    """What came; names of headers in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class ScriptedServer:
    """Gives `replies` in their order, the last one again and again. `requests` are those that came."""

    def __init__(self, url: str, replies: Sequence[Reply]) -> None:
        self.url = url
        self.requests: list[Request] = []
        self._replies = list(replies)

    def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: ScriptedServer

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self) -> None:
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.script.answer(Request(self.path, headers, body))
        self.close_connection = True
        if reply is HANGS_UP:
            return
        self.send_response(reply.status)
        for name, value in {"Connection": "close", "Transfer-Encoding": "chunked", **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for part in filter(None, reply.parts):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        if not reply.cut:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: object) -> None: ...


@contextmanager
def scripted(*replies: Reply) -> Iterator[ScriptedServer]:
    """The server, while the block runs."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.script = ScriptedServer(f"http://127.0.0.1:{server.server_port}", replies)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Handler.script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
