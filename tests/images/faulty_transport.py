"""A connection that can be cut, and that counts what is uploaded through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import httpx


class FaultyTransport(httpx.BaseTransport):
    """Real HTTP, but for the cuts: a connection breaks where it would send one byte more than so many in all.

    What counts are the bodies of uploads. `before_upload` is called before every request that carries a part of a blob.
    """

    def __init__(self, cuts: Sequence[int] = (), before_upload: Callable[[], None] = lambda: None) -> None:
        self.sent = 0
        self.requests: list[tuple[str, str]] = []
        self._cuts = list(cuts)
        self._before_upload = before_upload
        self._http = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        if request.method in ("PATCH", "PUT") and "/uploads/" in request.url.path:
            self._before_upload()
            assert isinstance(request.stream, httpx.SyncByteStream)
            request.stream = _Counted(request.stream, self)
        return self._http.handle_request(request)

    def close(self) -> None:
        self._http.close()

    def writes(self) -> list[str]:
        """Methods of the requests that change something."""
        return [method for method, _ in self.requests if method not in ("GET", "HEAD")]

    def counted(self, piece: bytes) -> Iterator[bytes]:
        if self._cuts and self.sent + len(piece) > self._cuts[0]:
            first = piece[: self._cuts.pop(0) - self.sent]
            self.sent += len(first)
            yield first
            raise httpx.WriteError("cut by the test")
        self.sent += len(piece)
        yield piece


class _Counted(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, transport: FaultyTransport) -> None:
        self._stream = stream
        self._transport = transport

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            yield from self._transport.counted(piece)
