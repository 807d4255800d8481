"""Logs of the local platform's containers: on disk, bounded, and read from their end or from a time on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.logs.exceptions import InvalidParameterException
from moto.logs.models import LogGroup, LogsBackend

from toolkit.platforms.local import log_store
from toolkit.platforms.local.log_store import MOST_STREAMS, SEGMENT_BYTES, SEGMENTS, StreamOnDisk, open_stream

Page = list[dict[str, Any]]


def group() -> LogGroup:
    LogsBackend("us-west-2", "123456789012")
    return LogGroup("123456789012", "us-west-2", "/aws/sagemaker/Endpoints/chat")


@pytest.fixture
def stream(tmp_path: Path) -> StreamOnDisk:
    return StreamOnDisk(group(), "only/i-1", tmp_path)


def write(stream: StreamOnDisk, first: int, end: int, size: int = 0) -> None:
    """Lines `line N`, one a second, as long as asked for."""
    stream.put_log_events(
        [{"timestamp": number * 1000, "message": f"line {number}".ljust(size)} for number in range(first, end)]
    )


def numbers(page: Page) -> list[int]:
    return [int(event["message"].split()[1]) for event in page]


def pages(stream: StreamOnDisk, *, head: bool, start: int | None = None, limit: int | None = None) -> Iterator[Page]:
    """Every page, as a client follows the tokens."""
    token = None
    while True:
        page, backward, forward = stream.get_log_events(start, None, limit, token, head)
        yield page
        if token == (forward if head else backward):
            return
        token = forward if head else backward


def test_all_is_read_forward_and_backward(stream: StreamOnDisk) -> None:
    write(stream, 0, 1000)
    assert [number for page in pages(stream, head=True, limit=300) for number in numbers(page)] == list(range(1000))
    last = [numbers(page) for page in pages(stream, head=False, limit=300)]
    assert last == [list(range(700, 1000)), list(range(400, 700)), list(range(100, 400)), list(range(100)), []]


def test_a_reader_who_waits_gets_what_comes(stream: StreamOnDisk) -> None:
    assert stream.get_log_events(None, None, None, None, True)[0] == []
    write(stream, 0, 10)
    *_, token = stream.get_log_events(None, None, None, None, True)
    page, _, same = stream.get_log_events(None, None, None, token, True)
    assert (page, same) == ([], token)
    write(stream, 10, 12)
    page, *_ = stream.get_log_events(None, None, None, token, True)
    assert numbers(page) == [10, 11]


@pytest.mark.parametrize("start", [0, 1, 255, 256, 257, 600, 999])
def test_reading_begins_at_a_time(stream: StreamOnDisk, start: int) -> None:
    write(stream, 0, 1000)
    found = [number for page in pages(stream, head=True, start=start * 1000, limit=300) for number in numbers(page)]
    assert found == list(range(start, 1000))
    assert list(pages(stream, head=True, start=2_000_000)) == [[], []]


def test_a_page_is_a_megabyte_at_most(stream: StreamOnDisk) -> None:
    write(stream, 0, 50, size=200_000)
    forward, backward = next(pages(stream, head=True)), next(pages(stream, head=False))
    assert (numbers(forward), numbers(backward)) == ([0, 1, 2, 3, 4], [45, 46, 47, 48, 49])
    write(stream, 50, 51, size=2_000_000)
    assert numbers(next(pages(stream, head=False))) == [50], "a line that is longer than a page"


def test_the_oldest_lines_go_when_there_are_too_many_bytes(stream: StreamOnDisk) -> None:
    size, last = 50_000, 3000
    for first in range(0, last, 10):
        write(stream, first, first + 10, size)
    assert SEGMENT_BYTES * (SEGMENTS - 1) <= stream.stored_bytes <= SEGMENT_BYTES * SEGMENTS + 10 * (size + 20)
    found = [number for page in pages(stream, head=True) for number in numbers(page)]
    assert found == list(range(found[0], last))
    assert found[0] > 1500
    page, *_ = stream.get_log_events(None, None, None, f"f/{5:056d}", True)
    assert numbers(page)[0] == found[0], "a reader whose place has gone goes on with the oldest"


def test_lines_that_are_older_than_the_groups_retention_go(stream: StreamOnDisk) -> None:
    stream.log_group.set_retention_policy("1")
    write(stream, 0, 400, size=50_000)
    write(stream, 200_000, 200_001)
    assert numbers(next(pages(stream, head=True))) == [200_000]


def test_a_clock_that_is_set_back_changes_no_order(stream: StreamOnDisk) -> None:
    write(stream, 100, 101)
    write(stream, 50, 51)
    page, *_ = stream.get_log_events(100_000, None, None, None, True)
    assert numbers(page) == [100, 50]


def test_a_full_disk_costs_lines_and_says_how_many(stream: StreamOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    write(stream, 0, 3)
    pwrite = log_store.os.pwrite

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    write(stream, 3, 5)
    write(stream, 5, 8)
    monkeypatch.setattr("os.pwrite", pwrite)
    write(stream, 8, 9)
    page, *_ = stream.get_log_events(None, None, None, None, True)
    assert [event["message"] for event in page] == [
        "line 0",
        "line 1",
        "line 2",
        "toolkit: 5 lines of this log could not be written to disk",
        "line 8",
    ]


def test_it_is_described_and_filtered_as_motos_own(stream: StreamOnDisk) -> None:
    assert "lastEventTimestamp" not in stream.to_describe_dict()
    write(stream, 1, 30)
    described = stream.to_describe_dict()
    assert (described["firstEventTimestamp"], described["lastEventTimestamp"]) == (1000, 29_000)
    assert [event["timestamp"] for event in stream.filter_log_events(5000, 20_000, '"7"')] == [7000, 17_000]


@pytest.mark.parametrize("token", ["x/1", "f/x", "f"])
def test_a_token_that_is_none(stream: StreamOnDisk, token: str) -> None:
    with pytest.raises(InvalidParameterException):
        stream.get_log_events(None, None, None, token, True)


def test_of_many_deployments_the_newest_have_logs(tmp_path: Path) -> None:
    held = group()
    for number in range(MOST_STREAMS + 5):
        open_stream(held, f"only/i-{number}", tmp_path)
    assert list(held.streams) == [f"only/i-{number}" for number in range(5, MOST_STREAMS + 5)]
    assert list(tmp_path.iterdir()) == [], "its files have no names"
