"""An OpenAI-like server that streams answers by a schedule, and remembers when each part really went out."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fakes import event_stream


@dataclass(frozen=True)
class Part:
    """Bytes of an answer, sent `after` that many seconds."""

    after: float
    content: bytes


@dataclass(frozen=True)
class Answer:
    """An answer by schedule. With `cut` the connection ends before the answer does."""

    parts: Sequence[Part] = ()
    status: int = 200
    cut: bool = False


@dataclass
class Served:
    """A request: on which connection it came, when, and when its parts went out (time.perf_counter)."""

    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int
    sent: list[float] = field(default_factory=list)
    came: float = field(default_factory=time.perf_counter)


Answers = Callable[[Served], Answer]


def event(after: float, *events: Mapping[str, Any]) -> Part:
    """Events that are sent together."""
    return Part(after, event_stream(events, end=b""))


HANG_UP = Answer(status=0)
"""The connection ends without a byte."""
DONE = Part(0.0, b"data: [DONE]\n\n")


def document(value: Any, status: int = 200) -> Answer:
    """A JSON document."""
    return Answer((Part(0.0, json.dumps(value).encode()),), status)


class StreamingServer:
    """`url` is that of its OpenAI route, `served` are the requests that came."""

    def __init__(self, answers: Answers) -> None:
        self.url = ""
        self.served: list[Served] = []
        self._answers = answers
        self._connections = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, self._connections = self._connections, self._connections + 1
        try:
            while await self._serve(reader, writer, connection):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Served(first.split()[1], headers, json.loads(content or b"null"), connection)
        self.served.append(request)
        answer = self._answers(request)
        if answer is HANG_UP:
            return False
        kind = b"event-stream" if any(part.content.startswith(b"data:") for part in answer.parts) else b"plain"
        head = b"HTTP/1.1 %d OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/%s\r\n\r\n"
        writer.write(head % (answer.status, kind))
        for part in answer.parts:
            await asyncio.sleep(part.after)
            request.sent.append(time.perf_counter())
            writer.write(b"%x\r\n%s\r\n" % (len(part.content), part.content))
            await writer.drain()
        if not answer.cut:
            writer.write(b"0\r\n\r\n")
        return not answer.cut


@contextmanager
def streaming(answers: Answers | Answer, tls: ssl.SSLContext | None = None) -> Iterator[StreamingServer]:
    """The server, while the block runs."""
    given = answers
    server = StreamingServer(given if callable(given) else lambda _: given)
    ready, stop = threading.Event(), asyncio.Event()
    runner = asyncio.Runner()

    async def serve() -> None:
        listener = await asyncio.start_server(server.connected, "127.0.0.1", 0, ssl=tls)
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await stop.wait()
        listener.close()

    def run() -> None:
        with runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        runner.get_loop().call_soon_threadsafe(stop.set)
        thread.join()
