"""Log streams of moto's CloudWatch Logs that keep their events on disk, a bounded number of them, instead of in memory.

A stream has files without a name, which go with the daemon. The newest file is written, the oldest goes when there
are too many bytes. Of every 256th event the place is known, from which reading by number or by time begins.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
import time
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moto.logs.exceptions import InvalidParameterException
from moto.logs.models import LogEvent, LogGroup, LogStream

# An event: its time and that of its arrival in milliseconds, and the length of its message in bytes.
_HEAD = struct.Struct("<qqI")
_EVERY = 256
SEGMENT_BYTES, SEGMENTS = 16 * 1024**2, 4
"""A stream keeps at least 48 MiB of its newest events, and at most 64."""

MOST_STREAMS = 10
"""Of a log group; each deployment of a variant has one, of which the oldest go."""

_PAGE_EVENTS, _PAGE_BYTES = 10_000, 1024**2  # API reference of GetLogEvents
_Event = tuple[int, int, int, str]
"""Its number in the stream, its two times, and its message."""


class _Segment:
    """One file of events in order, from that number on."""

    def __init__(self, folder: Path, first: int) -> None:
        self.first = self.end = first
        self.bytes = 0
        self.newest = 0
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._offsets: list[int] = []
        self._times: list[int] = []

    def add(self, events: list[tuple[int, int, bytes]]) -> None:
        """Write all of them at once. Raises OSError, and then holds none of them."""
        parts, marks = [], []
        size, number = self.bytes, self.end
        for stamp, arrived, message in events:
            if (number - self.first) % _EVERY == 0:
                marks.append((size, stamp))
            parts.append(_HEAD.pack(stamp, arrived, len(message)) + message)
            size, number = size + len(parts[-1]), number + 1
        data = b"".join(parts)
        while data:
            written = os.pwrite(self._file, data, size - len(data))
            data = data[written:]
        self._offsets += [offset for offset, _ in marks]
        self._times += [stamp for _, stamp in marks]
        self.bytes, self.end, self.newest = size, number, events[-1][0]

    def read(self, number: int) -> Iterator[_Event]:
        """The events from that number on."""
        mark = (number - self.first) // _EVERY
        at, offset = self.first + mark * _EVERY, self._offsets[mark]
        while at < self.end:
            stamp, arrived, length = _HEAD.unpack(os.pread(self._file, _HEAD.size, offset))
            if at >= number:
                message = os.pread(self._file, length, offset + _HEAD.size)
                yield at, stamp, arrived, message.decode(errors="replace")
            at, offset = at + 1, offset + _HEAD.size + length

    def first_since(self, stamp: int) -> int:
        """The number of the first event of that time or later."""
        mark = max(0, bisect_right(self._times, stamp - 1) - 1)
        events = self.read(self.first + mark * _EVERY)
        return next((number for number, when, _, _ in events if when >= stamp), self.end)


class StreamOnDisk(LogStream):
    """moto's, but for where its events are. Their times never decrease: a clock that is set back is not followed."""

    def __init__(self, log_group: LogGroup, name: str, folder: Path) -> None:
        super().__init__(log_group, name)
        self._folder = folder
        self._segments: list[_Segment] = []
        self._lock = threading.Lock()
        self._first_stamp = self._stamp = self._lost = 0

    def put_log_events(self, log_events: list[dict[str, Any]]) -> str:
        """A full disk costs lines, of which the log says how many they were, and not the container."""
        with self._lock:
            if self._lost:
                lost = f"toolkit: {self._lost} lines of this log could not be written to disk"
                log_events = [{"timestamp": log_events[0]["timestamp"], "message": lost}, *log_events]
            arrived = int(time.time() * 1000)
            events = []
            for event in log_events:
                self._stamp = max(self._stamp, event["timestamp"])
                events.append((self._stamp, arrived, event["message"].encode(errors="replace")))
            try:
                self._segment().add(events)
            except OSError:
                self._lost += len(log_events) - bool(self._lost)
                return ""
            self._lost = 0
            self._first_stamp = self._first_stamp or events[0][0]
            self.stored_bytes = sum(segment.bytes for segment in self._segments)
            self.upload_sequence_token += 1
            return f"{self.upload_sequence_token:056d}"

    def _segment(self) -> _Segment:
        """The one that is written."""
        if not self._segments:
            self._segments = [_Segment(self._folder, 0)]
        elif self._segments[-1].bytes >= SEGMENT_BYTES:
            days = self.log_group.retention_in_days
            oldest = self._stamp - int(days) * 86_400_000 if days else 0
            kept = [segment for segment in self._segments if segment.newest >= oldest]
            self._segments = [*kept[1 - SEGMENTS :], _Segment(self._folder, self._segments[-1].end)]
        return self._segments[-1]

    def to_describe_dict(self) -> dict[str, Any]:
        described = {
            "arn": self.arn,
            "creationTime": int(self.creation_time.timestamp() * 1000),
            "logStreamName": self.log_stream_name,
            "storedBytes": self.stored_bytes,
        }
        if self._first_stamp:
            described |= {
                "firstEventTimestamp": self._first_stamp,
                "lastEventTimestamp": self._stamp,
                "lastIngestionTime": self._stamp,
                "uploadSequenceToken": str(self.upload_sequence_token),
            }
        return described

    def get_log_events(
        self,
        start_time: Any,
        end_time: Any,
        limit: int | None,
        next_token: str | None,
        start_from_head: Any,
    ) -> tuple[list[dict[str, Any]], str, str]:
        """A page, and the tokens of the pages before and behind it. A token is the number of an event.

        Times are whole numbers or None, and `start_from_head` is a bool, whatever moto says.
        """
        with self._lock:
            first, end = self._numbers(start_time, end_time)
            most = min(limit or _PAGE_EVENTS, _PAGE_EVENTS)
            direction, number = _read_token(next_token)
            forward = direction == "f" if direction else bool(start_from_head)
            if forward:
                first = max(first, number + 1 if direction else first)
                end = min(end, first + most)
            else:
                end = min(end, number) if direction else end
                first = max(first, end - most)
            events = self._page(first, end, forward)
        if not events:
            token = number if direction else first - 1
            return [], f"b/{max(token, 0):056d}", f"f/{token:056d}"
        page = [{"ingestionTime": arrived, "message": text, "timestamp": stamp} for _, stamp, arrived, text in events]
        return page, f"b/{events[0][0]:056d}", f"f/{events[-1][0]:056d}"

    def filter_log_events(self, start_time: int, end_time: int, filter_pattern: str) -> list[dict[str, Any]]:
        with self._lock:
            found = list(self._read(*self._numbers(start_time, end_time)))
        matching = LogStream(self.log_group, self.log_stream_name)  # moto's own knows filter patterns
        matching.events = [
            LogEvent(arrived, {"timestamp": stamp, "message": text}) for _, stamp, arrived, text in found
        ]
        return matching.filter_log_events(start_time, end_time, filter_pattern)

    def _numbers(self, start_time: int | None, end_time: int | None) -> tuple[int, int]:
        """The numbers of the first event of that time, and of the one behind the last."""
        if not self._segments:
            return 0, 0
        first, end = self._segments[0].first, self._segments[-1].end
        return (
            self._first_since(start_time) if start_time else first,
            self._first_since(end_time + 1) if end_time else end,
        )

    def _first_since(self, stamp: int) -> int:
        segment = next((segment for segment in self._segments if segment.newest >= stamp), None)
        return segment.first_since(stamp) if segment else self._segments[-1].end

    def _read(self, first: int, end: int) -> Iterator[_Event]:
        for segment in self._segments:
            if segment.end > first and segment.first < end:
                for event in segment.read(max(first, segment.first)):
                    if event[0] >= end:
                        return
                    yield event

    def _page(self, first: int, end: int, forward: bool) -> list[_Event]:
        """As many of these events as fit into a page: the first, or the last."""
        events: deque[_Event] = deque()
        size = 0
        for event in self._read(first, end):
            size += len(event[3])
            if forward and size > _PAGE_BYTES and events:
                break
            events.append(event)
            while size > _PAGE_BYTES and len(events) > 1:
                size -= len(events.popleft()[3])
        return list(events)


def _read_token(token: str | None) -> tuple[str, int]:
    if token is None:
        return "", 0
    direction, _, number = token.partition("/")
    if direction not in ("f", "b") or not number.lstrip("-").isdecimal():
        raise InvalidParameterException("The specified nextToken is invalid.")
    return direction, int(number)


def open_stream(group: LogGroup, name: str, folder: Path) -> None:
    """Add a stream of that name to the group, and let its oldest go."""
    if name not in group.streams:
        group.streams[name] = StreamOnDisk(group, name, folder)
    for oldest in list(group.streams)[:-MOST_STREAMS]:
        del group.streams[oldest]
