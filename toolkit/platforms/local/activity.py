"""When a client last asked for something. Health checks do not count: they go to the containers, not through here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from starlette.types import ASGIApp, Receive, Scope, Send


class Activity:
    """Counts the requests of the applications that it wraps. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open = 0
        self._last = clock()

    def idle_seconds(self) -> float:
        """How long nothing has been asked for; 0 while a request is being answered."""
        with self._lock:
            return 0.0 if self._open else self._clock() - self._last

    def counted_wsgi(self, application: WSGIApplication) -> WSGIApplication:
        def counted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            with self._request():
                return application(environ, start_response)

        return counted

    def counted_asgi(self, application: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":  # the server's own start and end
                await application(scope, receive, send)
                return
            with self._request():
                await application(scope, receive, send)

        return counted

    @contextmanager
    def _request(self) -> Iterator[None]:
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._last = self._clock()
