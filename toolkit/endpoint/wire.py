"""HTTP/1.1 requests whose answers are timed at the arrival of their bytes: to measure, and to relay.

The time is read right after the socket is, before anything is parsed. A client that measures wakes its reader for many
chunks at once: see docs/measuring.md for what it takes of a core. Through httpx every chunk takes several times as
long, which at 256 streams is a whole core and delays the timestamps themselves. One that relays, for the gateway of the
local platform, hands each piece on at once, on the very CPU that the model decodes on. Measured on two cores: 0.4 ms
less for a request than through aiohttp, and 40 % less CPU time for a piece at eight streams.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

import httptools

_CONNECT_SECONDS = 5.0
_RELAY_CONNECT_SECONDS = 15.0  # a container that is dead refuses at once, one on a busy machine takes its time
_READ_SECONDS = 600.0  # under load a request may wait long for its first token
_IDLE_SECONDS = 4.0  # below vLLM's 5, so that nothing goes into a connection which vLLM is just closing
_LONGEST_HEADERS = 64 * 1024
_MOST_WAITING = 256 * 1024  # bytes that a slow reader leaves here before the server has to wait
_CHUNKS_AT_ONCE = 32


class Chunk(NamedTuple):
    """Bytes of an answer that arrived `seconds` after the request was sent."""

    seconds: float
    content: bytes


class Unreachable(ConnectionError):
    """The server takes no connections."""


class _Turns:
    """Wakes one reader per round of the event loop, so that between two of them all sockets are read, and timed."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def wake(self, waiter: asyncio.Future[None]) -> None:
        self._waiters.append(waiter)
        if len(self._waiters) == 1:
            waiter.get_loop().call_soon(self._next)

    def _next(self) -> None:
        waiter = self._waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
        if self._waiters:
            waiter.get_loop().call_soon(self._next)


class Response:
    """The answer to one request as it comes in. `status` and `headers` (names in lower case) are complete."""

    def __init__(
        self, sent: float, transport: asyncio.Transport, longest_silence: float | None, turns: _Turns | None
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.reusable = False
        self.begun = False
        self.now = sent
        self._sent = sent
        self._longest_silence = longest_silence
        self._head = False
        self._header_bytes = 0
        self._ended = False
        self._error: Exception | None = None
        self._chunks: list[Chunk] = []
        self._waiting = 0
        self._transport = transport
        self._turns = turns
        self._at_once = _CHUNKS_AT_ONCE if turns else 1
        self._waiter: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)

    async def chunks(self) -> AsyncIterator[list[Chunk]]:
        """The body as it arrives, a few chunks at a time. Raises OSError."""
        while not self._ended or self._chunks:
            if not self._chunks:
                await self._news()
            arrived, self._chunks = self._chunks, []
            if self._waiting >= _MOST_WAITING and not self._ended:
                self._transport.resume_reading()
            self._waiting = 0
            yield arrived
        if self._error:
            raise self._error

    async def head(self) -> None:
        """Wait for status and headers. Raises OSError."""
        while not self._head and not self._ended:
            await self._news()
        if not self._head:
            raise self._error or ConnectionError("the server closed the connection without an answer")

    def feed(self, data: bytes, now: float) -> None:
        """Bytes that arrived at a time of the clock."""
        self.now, self.begun = now, True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.end(ConnectionError(f"the answer is not HTTP: {error}"))

    def end(self, error: Exception | None) -> None:
        """The connection has ended. An answer that tells neither its length nor its chunks ends so, too."""
        if not self._ended:
            whole = self._head and not {"content-length", "transfer-encoding"} & self.headers.keys()
            closed = None if whole else ConnectionError("the server closed the connection")
            self._error, self._ended = error or closed, True
            self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, as are the following."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > _LONGEST_HEADERS:
            self.end(ConnectionError(f"the answer has more than {_LONGEST_HEADERS} bytes of headers"))
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head = True
        self._wake()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(Chunk(self.now - self._sent, body))
        self._waiting += len(body)
        if self._waiting >= _MOST_WAITING:
            self._transport.pause_reading()
        if len(self._chunks) >= self._at_once or self._waiting >= _MOST_WAITING:
            self._wake()

    def on_message_complete(self) -> None:
        self.reusable = self._parser.should_keep_alive()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter and self._turns:
            self._turns.wake(self._waiter)
        elif self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None

    async def _news(self) -> None:
        """Wait until there is something to read. Raises TimeoutError after a long silence."""
        while True:
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(waiter, self._longest_silence)
            except TimeoutError as error:
                assert self._longest_silence
                if time.perf_counter() - self.now >= self._longest_silence:
                    raise TimeoutError(f"nothing came for {self._longest_silence:.0f} s") from error
                continue
            return


class _Line(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, longest_silence: float | None, turns: _Turns | None) -> None:
        self.idle_since = 0.0
        self._response_to = partial(Response, longest_silence=longest_silence, turns=turns)
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None

    def send(self, request: bytes) -> Response:
        assert self._transport
        self._response = self._response_to(time.perf_counter(), self._transport)
        self._transport.write(request)
        return self._response

    async def start_tls(self, tls: ssl.SSLContext, host: str) -> None:
        """Go on encrypted, with the server named `host`."""
        assert self._transport
        loop = asyncio.get_running_loop()
        self._transport = await loop.start_tls(self._transport, self, tls, server_hostname=host)

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def rest(self) -> None:
        """Wait for the next request. The answer to the last one may have ended while reading was paused."""
        assert self._transport
        self._transport.resume_reading()
        self.idle_since = time.perf_counter()

    def close(self) -> None:
        self._response = None
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._response:
            self._response.feed(data, now)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._response:
            self._response.end(exc)


class Client:
    """Connections to one server, kept open between requests; `close` closes them. For one event loop.

    `url` says which server; its path does not matter, but for `unix:/path`. `proxy` is the URL of an HTTP proxy. A
    server that sends nothing for `longest_silence` seconds has failed. One that `relays` hands on each piece at once,
    sends nothing twice, and leaves it to its caller how long an answer may take.
    """

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        longest_silence: float = _READ_SECONDS,
        *,
        relays: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._socket = parts.path if parts.scheme == "unix" else ""
        self._relays = relays
        self._secure = parts.scheme == "https"
        self._tls = tls
        self._host = parts.netloc.rpartition("@")[2] or "localhost"
        self._address = (parts.hostname or "", parts.port or (443 if self._secure else 80))
        self._proxy = urlsplit(proxy) if proxy else None
        self._idle: list[_Line] = []
        self._new_line = partial(_Line, None if relays else longest_silence, None if relays else _Turns())

    @asynccontextmanager
    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Response]:
        """The answer, from its head on. Connecting is not part of its time. Raises OSError."""
        through = {} if self._secure else self._authorization()
        target = f"http://{self._host}{path}" if self._proxy and not self._secure else path
        line, response = await self._ask(_request(method, target, self._host, {**headers, **through}, body))
        try:
            yield response
        finally:
            if response.reusable and line.open:
                line.rest()
                self._idle.append(line)
            else:
                line.close()

    def close(self) -> None:
        for line in self._idle:
            line.close()
        self._idle.clear()

    async def _ask(self, request: bytes) -> tuple[_Line, Response]:
        while True:
            line, fresh = await self._line()
            response = line.send(request)
            try:
                await response.head()
            except ConnectionError:
                line.close()
                if fresh or response.begun or self._relays:
                    raise
            except BaseException:
                line.close()
                raise
            else:
                return line, response

    async def _line(self) -> tuple[_Line, bool]:
        """A connection, and whether it is new: the server may have just closed an old one. Raises Unreachable."""
        while self._idle:
            line = self._idle.pop()
            if line.open and not (self._relays and time.perf_counter() - line.idle_since > _IDLE_SECONDS):
                return line, False
            line.close()
        try:
            async with asyncio.timeout(_RELAY_CONNECT_SECONDS if self._relays else _CONNECT_SECONDS):
                return await (self._connect_through(self._proxy) if self._proxy else self._connect()), True
        except OSError as error:  # a TimeoutError too
            raise Unreachable(str(error) or "no connection in time") from error

    async def _connect(self) -> _Line:
        host, port = self._address
        tls = self._tls if self._secure else None
        loop = asyncio.get_running_loop()
        if self._socket:
            _, line = await loop.create_unix_connection(self._new_line, self._socket)
        else:
            _, line = await loop.create_connection(self._new_line, host, port, ssl=tls)
        return line

    async def _connect_through(self, proxy: SplitResult) -> _Line:
        """A connection to the proxy; for https, a tunnel through it to the server."""
        if proxy.scheme != "http" or not proxy.hostname:
            raise ConnectionError(f"only HTTP proxies are supported, not {proxy.scheme}")
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(self._new_line, proxy.hostname, proxy.port or 80)
        if self._secure:
            try:
                await self._open_tunnel(line)
            except BaseException:
                line.close()
                raise
        return line

    async def _open_tunnel(self, line: _Line) -> None:
        host, port = self._address
        server = f"{host}:{port}"
        response = line.send(_request("CONNECT", server, server, self._authorization(), b""))
        await response.head()
        if response.status != 200:
            raise ConnectionError(f"the proxy answered {response.status} for {server}")
        assert self._tls
        await line.start_tls(self._tls, host)

    def _authorization(self) -> dict[str, str]:
        """The credentials in the proxy's URL, if it has any, as a header."""
        if not self._proxy or self._proxy.username is None:
            return {}
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    fields = {"Host": host, "Accept-Encoding": "identity", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body
