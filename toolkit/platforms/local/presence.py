"""What makes a living daemon findable: its lock, description and key; and when a client last asked it for something."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from toolkit.platforms.local.daemon import LocalDaemon

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class Presence:
    """The daemon's claim on its home. Raises OSError when the home is another's, or cannot be written."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files: dict[Path, bytes] = {}
        self._lock = self._lock_home()

    def announce(self, daemon: LocalDaemon) -> None:
        """Say in daemon.json where it answers, and keep its key where that says."""
        key = Path(daemon.credentials_file)
        self._files = {key: key.read_bytes(), self._home / "daemon.json": json.dumps(asdict(daemon)).encode()}
        self.mend()

    def mend(self) -> None:
        """Put back what was deleted or changed. Raises BlockingIOError when another daemon has the home."""
        lock = self._home / "daemon.lock"
        if not (lock.exists() and os.path.samestat(lock.stat(), os.fstat(self._lock))):
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lost, self._lock = self._lock, self._lock_home()
            os.close(lost)
        for file, content in self._files.items():
            if not file.is_file() or file.read_bytes() != content:
                _write(file, content)

    def withdraw(self, why: str = "") -> None:
        """The daemon ends; where it does so by itself, the next command says why."""
        with suppress(OSError):
            if why:
                (self._home / "daemon.ended").write_text(why)
            for file in self._files:
                file.unlink(missing_ok=True)

    def _lock_home(self) -> int:
        """A descriptor that is never closed: the lock shall last as long as the process."""
        lock = os.open(self._home / "daemon.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # refused by another daemon's lock, not by who only asks
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock


def _write(file: Path, content: bytes) -> None:
    """In one step, so that a reader sees all of it or nothing; only its owner can read it."""
    new = file.with_name(f"{file.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(file)


class Activity:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open = 0
        self._last = clock()

    def idle_seconds(self) -> float:
        """How long nothing has been asked for; 0 while a request is being answered."""
        with self._lock:
            return 0.0 if self._open else self._clock() - self._last

    def count_wsgi(self, application: WSGIApplication) -> WSGIApplication:
        def counted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            with self._request():
                return application(environ, start_response)

        return counted

    def count_asgi(self, application: ASGIApp) -> ASGIApp:
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
