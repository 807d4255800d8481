"""The log of an endpoint: all of it, the last of it, and what comes."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from itertools import islice

import pytest
from fakes import FakeClock, MemoryPlatform

from toolkit.apply.waiter import LogLine
from toolkit.endpoint.platform import read_log
from toolkit.errors import EndpointNotFound


class GrowingLog(MemoryPlatform):
    """At each look there is as much of the log as the next number of `lengths` says; then the endpoint is gone."""

    def __init__(self, lines: Sequence[LogLine], *lengths: int) -> None:
        super().__init__()
        self._lines = lines
        self._lengths = list(lengths)

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        if not self._lengths:
            raise EndpointNotFound(f"there is no endpoint {endpoint}")
        assert bookmarks is not None, "the whole log is read at every look"
        written = self._lines[: self._lengths.pop(0)]
        for line in sorted(written, key=lambda line: line.stream):  # stream by stream, as platforms tell them
            if line.time > float(bookmarks.get(line.stream, 0)):
                bookmarks[line.stream] = str(line.time)
                yield line


def line(stream: str, time: float, text: str) -> LogLine:
    return LogLine(stream, time, text)


LINES = [
    line("v/i-1", 10, "starts"),
    line("v/i-2", 11, "starts too"),
    line("v/i-1", 12, "loads"),
    line("v/i-2", 13, "answers"),
]


def texts(platform: GrowingLog, follow: bool = False, since: float | None = None, now: float = 20) -> Iterator[str]:
    clock = FakeClock()
    clock.sleep(now)
    return (entry.text for entry in read_log(platform, "e", follow, since, clock, clock.sleep))


def test_all_there_is() -> None:
    assert list(texts(GrowingLog(LINES, 4))) == ["starts", "loads", "starts too", "answers"]


def test_only_what_was_written_lately() -> None:
    assert list(texts(GrowingLog(LINES, 4), since=8.5)) == ["loads", "answers"]


def test_what_comes_is_told_once_whichever_container_wrote_it() -> None:
    told = list(islice(texts(GrowingLog(LINES, 1, 1, 3, 4), follow=True), 4))
    assert told == ["starts", "loads", "starts too", "answers"]


def test_following_ends_when_the_endpoint_is_gone() -> None:
    told = texts(GrowingLog(LINES, 1), follow=True)
    assert next(told) == "starts"
    with pytest.raises(EndpointNotFound):
        next(told)


def test_what_was_too_old_stays_untold_while_following() -> None:
    told = list(islice(texts(GrowingLog(LINES, 2, 4), follow=True, since=8.5), 2))
    assert told == ["loads", "answers"]
