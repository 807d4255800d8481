"""Ranges of a file of the hub, from a server on loopback that breaks off, is busy, or knows no ranges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import COMMIT, TOKEN, Hub, hub

from toolkit.errors import HubError
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.hub_ranges import HubRanges

NAME, SIZE = "model.safetensors", 3_000_000
CONTENT = random.Random(1).randbytes(SIZE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / NAME).write_bytes(CONTENT)
    with hub({"org/model": tmp_path}) as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def ranges(server: Hub, pauses: list[float]) -> HubRanges:
    return HubRanges(HubFiles("org/model", COMMIT, hub_client(server.url)), 4, pauses.append)


def read(ranges: HubRanges, start: int, end: int) -> bytes:
    return b"".join(ranges.read(NAME, start, end))


def test_a_range_is_what_was_asked_for(ranges: HubRanges, server: Hub) -> None:
    assert read(ranges, 1_000_000, 2_500_000) == CONTENT[1_000_000:2_500_000]
    assert server.sent[NAME] == 1_500_000 + 1  # one byte to see where it lies


def test_where_a_file_lies_is_asked_for_once(ranges: HubRanges, server: Hub) -> None:
    for start in range(0, SIZE, 1_000_000):
        read(ranges, start, start + 1_000_000)
    assert server.sent[NAME] == SIZE + 1


def test_what_breaks_off_goes_on_where_it_broke(ranges: HubRanges, server: Hub, pauses: list[float]) -> None:
    server.cuts[:] = [1_200_000, 700_000]
    assert read(ranges, 0, SIZE) == CONTENT
    assert server.sent[NAME] == sum((SIZE, SIZE - 1_200_000, SIZE - 1_900_000)) + 3
    assert pauses == [0.5, 0.5]  # each got further


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says(
    ranges: HubRanges, server: Hub, pauses: list[float], status: int
) -> None:
    read(ranges, 0, 10)
    server.refusals[:] = [(status, {"Retry-After": "7"}), (status, {})]
    assert read(ranges, 0, SIZE) == CONTENT
    assert pauses == [7.0, 1.0]


def test_no_server_makes_us_wait_for_a_day(ranges: HubRanges, server: Hub, pauses: list[float]) -> None:
    server.refusals[:] = [(429, {"Retry-After": "86400"}), (429, {"Retry-After": "Wed, 25 Nov 2026 07:28:00 GMT"})]
    assert read(ranges, 0, SIZE) == CONTENT
    assert pauses == [300.0, 1.0]


def test_it_is_not_asked_for_ever(ranges: HubRanges, server: Hub, pauses: list[float]) -> None:
    server.refusals[:] = [(503, {})] * 20
    with pytest.raises(
        HubError, match=rf"org/model on the hub/{NAME}: byte 5 did not come in 6 attempts: .*503"
    ) as error:
        read(ranges, 5, SIZE)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert "carries on" in error.value.hint


def test_a_refusal_is_final(server: Hub, pauses: list[float]) -> None:
    server.gated.add("org/model")
    allowed = HubFiles("org/model", COMMIT, hub_client(server.url, token=TOKEN))
    ranges = HubRanges(allowed, 4, pauses.append)
    assert read(ranges, 0, SIZE) == CONTENT
    server.gated.clear()
    server.refusals[:] = [(403, {})] * 2  # where it lay, and at the hub
    with pytest.raises(HubError, match="answered 403") as error:
        read(ranges, 0, SIZE)
    assert "hf auth login" in error.value.hint
    assert pauses == [0.5]


def test_an_address_that_has_expired_is_asked_for_anew(ranges: HubRanges, server: Hub) -> None:
    read(ranges, 0, 10)
    server.refusals[:] = [(403, {})]
    assert read(ranges, 0, SIZE) == CONTENT
    assert server.sent[NAME] == 10 + SIZE + 2


def test_without_ranges_the_rest_is_skipped(ranges: HubRanges, server: Hub) -> None:
    assert ranges.has_ranges(NAME)
    server.has_ranges = False
    assert read(ranges, 1_000_000, 2_500_000) == CONTENT[1_000_000:2_500_000]


def test_that_there_are_no_ranges_is_seen(ranges: HubRanges, server: Hub) -> None:
    server.has_ranges = False
    assert not ranges.has_ranges(NAME)
    server.cuts[:] = [2_000_000]
    assert read(ranges, 0, SIZE) == CONTENT


def test_a_file_that_ends_early_gives_what_there_is(ranges: HubRanges, server: Hub) -> None:
    (server.repositories["org/model"] / NAME).write_bytes(CONTENT[:1000])
    assert read(ranges, 0, SIZE) == CONTENT[:1000]


def test_a_proxy_is_used_and_left_out_as_its_variables_say(
    ranges: HubRanges, server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(ranges, 0, 10)
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//user:sec%3Aret@"))  # it takes addresses for paths
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert read(ranges, 0, 10) == CONTENT[:10]
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(HubError):
        read(ranges, 0, 10)
    assert server.logins == {"Basic dXNlcjpzZWM6cmV0"}
