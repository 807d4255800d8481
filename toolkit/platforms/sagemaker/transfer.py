"""Files on their way to S3: ranges of all of them at once, in parts that are hashed and sent as they come.

    Transfer.run ── ranges, in order ──> readers ── parts, as they come ──> senders ── what was sent ──> Transfer.run

`run` stays in the caller's thread and keeps all accounts. It starts no range that would take the bytes which are held
beyond IN_FLIGHT_BYTES. A part is let go when S3 has it and the hub's digest, which needs the bytes in order, has too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NoReturn

from toolkit.apply.progress import Progress
from toolkit.platforms.sagemaker.upload import RANGE_BYTES, File, Upload

CONNECTIONS = 16
"""The most of each kind: those that bring ranges, and those that take parts to S3."""
IN_FLIGHT_BYTES = 24 * RANGE_BYTES
"""A range for each connection, and what waits for an earlier one."""

_UPDATE_SECONDS = 1.0
# What a thread has to do returns what the caller's thread does next.
_Step = Callable[[], object]
_Job = Callable[[], _Step]


class Transfer:
    """Sends files to S3, and tells `arrived` of each, with S3's SHA-256 of it."""

    def __init__(self, uploads: Sequence[Upload], progress: Progress, arrived: Callable[[File, str], None]) -> None:
        self._uploads = uploads
        self._arrived = arrived
        self._rate = _Rate(sum(upload.file.size for upload in uploads), progress)
        self._left = len(uploads)
        self._held = 0
        self._done: SimpleQueue[_Step] = SimpleQueue()
        self._stop = threading.Event()
        self._readers: SimpleQueue[_Job | None] = SimpleQueue()
        self._senders: SimpleQueue[_Job | None] = SimpleQueue()

    def run(self) -> None:
        """Send all of them. What goes wrong with one ends all; parts that arrived serve the next attempt.

        The threads are daemons: after Ctrl-C nothing waits for a slow connection.
        """
        workers = [self._readers, self._senders] * min(CONNECTIONS, sum(upload.parts for upload in self._uploads))
        for jobs in workers:
            threading.Thread(target=self._work, args=(jobs,), daemon=True).start()
        try:
            for upload in self._uploads:
                for start, end in upload.ranges():
                    cost = end - start if upload.file.in_ranges else min(end, RANGE_BYTES)
                    while self._held and self._held + cost > IN_FLIGHT_BYTES:
                        self._step()
                    self._held += cost
                    self._readers.put(partial(self._read, upload, start, end))
            while self._left:
                self._step()
        finally:
            self._stop.set()
            for jobs in workers:
                jobs.put(None)

    def _step(self) -> None:
        """Do what follows from what a thread did; raises what it raised."""
        with suppress(Empty):
            self._done.get(timeout=_UPDATE_SECONDS)()
        self._rate.show()

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) and not self._stop.is_set():
            with _Told(self._done):
                self._done.put(job())
            del job  # and its part of a file, while the next one is waited for

    def _read(self, upload: Upload, start: int, end: int) -> _Step:
        for number, part in upload.read(start, end):
            while not (upload.file.in_ranges or upload.room.acquire(timeout=_UPDATE_SECONDS)):
                if self._stop.is_set():
                    break
            if self._stop.is_set():
                break
            self._senders.put(partial(self._send, upload, number, part))
        return _nothing

    def _send(self, upload: Upload, number: int, part: bytes) -> _Step:
        if upload.is_small:
            return partial(self._end, upload, upload.put(part))
        upload.send(number, part)
        return partial(self._sent, upload, number, part)

    def _sent(self, upload: Upload, number: int, part: bytes) -> None:
        self._rate.count(len(part))
        for size in upload.let_go(number, part):
            if upload.file.in_ranges:
                self._held -= size
            else:
                upload.room.release()
        if upload.is_sent():
            self._senders.put(lambda: partial(self._end, upload, upload.complete()))

    def _end(self, upload: Upload, sha256: str) -> None:
        size = upload.file.size
        if upload.is_small:
            self._rate.count(size)
        if upload.is_small or not upload.file.in_ranges:
            self._held -= min(size, RANGE_BYTES)
        self._left -= 1
        self._arrived(upload.file, sha256)


class _Told(AbstractContextManager[None]):
    """What is raised inside is raised in the thread that takes the steps, as by a Future."""

    def __init__(self, done: SimpleQueue[_Step]) -> None:
        self._done = done

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None:
            self._done.put(partial(_raise, error))
        return True


class _Rate:
    """Shows how much has arrived, how fast, and how long the rest takes at that rate."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total, self._progress = total, progress
        self._arrived = 0
        self._started = self._shown = time.monotonic()

    def count(self, size: int) -> None:
        self._arrived += size

    def show(self) -> None:
        now = time.monotonic()
        if self._arrived and now - self._shown >= _UPDATE_SECONDS:
            self._shown = now
            rate = self._arrived / (now - self._started)
            minutes, seconds = divmod(int((self._total - self._arrived) / rate), 60)
            so_far = f"{self._arrived / 1e6:,.0f} of {self._total / 1e6:,.0f} MB"
            self._progress.update(f"{so_far}, {rate / 1e6:.1f} MB/s, {minutes}:{seconds:02} left")


def _nothing() -> None:
    """Where nothing follows."""


def _raise(error: BaseException) -> NoReturn:
    raise error
