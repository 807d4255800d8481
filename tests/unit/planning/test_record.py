"""The record: what happened, in order, whatever happened to the one who wrote it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolkit.api.context import record_of
from toolkit.apply.progress import Silent
from toolkit.planning.plan import Action, Plan
from toolkit.planning.record import Event, Record, Step
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.recipe.starts import MeasuredStart

MODEL = Action("Model", "m", "create", "does not exist", {})
ENDPOINT = Action("Endpoint", "e", "create", "does not exist", {})
PLAN = Plan("recipe.yaml", "local", ("e",), (MODEL, ENDPOINT), 0.0, "0123456789abcdef")


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def record(tmp_path: Path, warned: list[str]) -> Record:
    times = (datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=second) for second in range(99))
    return Record(tmp_path / "records" / "e.jsonl", warned.append, lambda: next(times))


def steps(record: Record) -> list[tuple[str, str]]:
    return [(event.kind, event.step) for event in record.events()]


def test_a_record_that_was_never_written_is_empty(record: Record) -> None:
    assert record.events() == []


def test_events_are_told_in_the_order_in_which_they_happened(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    record.write(PLAN, MODEL, "done")
    record.write(PLAN, ENDPOINT, "started")
    record.write(PLAN, ENDPOINT, "failed", "no quota: 'ml.x'\nsecond line")
    assert steps(record) == [("Model", "started"), ("Model", "done"), ("Endpoint", "started"), ("Endpoint", "failed")]
    assert record.events()[3] == Event(
        "2026-11-21T00:00:03.000+00:00",
        "0123456789ab",
        "Endpoint",
        "e",
        "create",
        "failed",
        "no quota: 'ml.x'\nsecond line",
        "recipe.yaml",
    )


def test_endpoints_of_one_name_in_two_places_share_a_file_and_no_event(record: Record) -> None:
    """Lines of older versions, which told no place, are everybody's."""
    here, there = (Record(record.path, print, place=f"kubernetes/eks/{name}") for name in ("a", "b"))
    record.write(PLAN, MODEL, "done")
    here.write(PLAN, ENDPOINT, "failed")
    there.write_start(PLAN, "e", MeasuredStart("x", {"loading the target": 60.0}))
    assert steps(here) == [("Model", "done"), ("Endpoint", "failed")]
    assert steps(there) == [("Model", "done"), ("Start", "done")]
    assert here.last_start("x") is None
    assert here.other_places() == ["kubernetes/eks/b"]


def test_where_the_account_is_not_known_a_start_in_any_of_the_platform_counts() -> None:
    for platform, seconds in (("sagemaker", 60.0), ("local", 70.0)):
        there = record_of("e", platform, Account("123456789012", "us-west-2"), Silent())
        there.write_start(PLAN, "e", MeasuredStart("x", {"loading the target": seconds}))
    found = record_of("e", "sagemaker", Account(NO_ACCOUNT, "eu-west-1"), Silent()).last_start("x")
    assert found is not None
    assert found.seconds == {"loading the target": 60.0}


def test_a_secret_in_an_error_is_not_recorded(record: Record) -> None:
    record.write(PLAN, MODEL, "failed", "refused: Bearer abcdefghijklmnopqrstuvwxyz")
    assert [event.detail for event in record.events()] == ["refused: …"]


def test_another_command_carries_the_record_on(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    Record(record.path, print).write(PLAN, MODEL, "done")
    assert steps(record) == [("Model", "started"), ("Model", "done")]


def test_every_event_is_on_disk_before_anything_else_happens(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    assert record.path.read_text().endswith("}\n")


def test_a_last_line_cut_short_costs_that_line_only(record: Record, warned: list[str]) -> None:
    record.write(PLAN, MODEL, "started")
    whole = record.path.read_bytes()
    for cut in range(1, len(whole) - 1):
        record.path.write_bytes(whole + whole[:cut])
        assert steps(record) == [("Model", "started")]
    assert warned == []


def test_what_is_written_after_a_line_cut_short_is_not_lost(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    record.path.write_bytes(record.path.read_bytes() * 2)
    record.path.write_bytes(record.path.read_bytes()[:-20])
    record.write(PLAN, MODEL, "done")
    assert steps(record) == [("Model", "started"), ("Model", "done")]


def test_of_commands_that_write_at_the_same_time_no_line_is_lost(record: Record) -> None:
    """Endpoints of one name in two accounts share the file, and nothing else keeps their commands apart."""

    def write(place: str) -> None:
        for _ in range(50):
            Record(record.path, print, place=place).write(PLAN, MODEL, "done")

    with ThreadPoolExecutor(4) as commands:
        list(commands.map(write, ("a", "b", "c", "d")))
    assert len(record.path.read_text().splitlines()) == 200


@pytest.mark.parametrize("line", [b"garbage", b"[]", b"5", b'{"time": 5}', b"\xff\xfe\x00", b"[" * 100_000, b""])
def test_a_line_that_is_no_event_is_named_and_left_out(record: Record, warned: list[str], line: bytes) -> None:
    record.write(PLAN, MODEL, "started")
    whole = record.path.read_bytes()
    record.path.write_bytes(whole + line + b"\n" + whole)
    assert steps(record) == [("Model", "started"), ("Model", "started")]
    assert warned == [f"warning: 1 of 3 lines of {record.path} are not events: they are ignored."]


def a_folder(record: Path) -> None:
    record.mkdir()


def in_a_file(record: Path) -> None:
    record.parent.rmdir()
    record.parent.touch()


@pytest.mark.parametrize("spoil", [a_folder, in_a_file])
def test_a_record_that_cannot_be_written_is_said_once(
    record: Record, warned: list[str], spoil: Callable[[Path], object]
) -> None:
    record.path.parent.mkdir()
    spoil(record.path)
    steps: tuple[Step, ...] = ("started", "done")
    for step in steps:
        record.write(PLAN, MODEL, step)
    assert record.events() == []
    (warning,) = warned
    assert warning.startswith(f"warning: this command is not recorded in {record.path}: ")
    assert warning.endswith(" It goes on all the same.")


def test_what_a_full_disk_has_cut_off_is_no_line_of_the_next_command(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    whole = record.path.read_bytes()
    record.path.write_bytes(whole + whole[:20])
    record.write(PLAN, MODEL, "done")
    assert record.path.read_bytes().count(b"\n") == 2


def test_of_a_record_without_end_only_the_end_is_read_and_kept(record: Record, warned: list[str]) -> None:
    record.path.parent.mkdir()
    with record.path.open("wb") as stream:
        stream.truncate(2 * 1024**3)  # sparse: it takes no disk
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n")
    record.write(PLAN, MODEL, "done")
    assert steps(record) == [("Model", "done")]
    assert record.path.stat().st_size < 1024
    assert warned == []


def test_a_record_of_years_keeps_its_newest_half(record: Record, warned: list[str]) -> None:
    record.write(PLAN, MODEL, "started")
    one = record.path.read_bytes()
    # A write more finds it longer than 8 MiB.
    record.path.write_bytes(one * (8 * 1024**2 // len(one) + 1))
    record.path.chmod(0o600)
    record.write(PLAN, ENDPOINT, "failed")
    assert 4 * 1024**2 - len(one) < record.path.stat().st_size <= 4 * 1024**2 + 2 * len(one)
    assert record.path.stat().st_mode & 0o777 == 0o600
    events = record.events()
    assert {(event.kind, event.step) for event in events[:-1]} == {("Model", "started")}
    assert (events[-1].kind, events[-1].step) == ("Endpoint", "failed")
    assert warned == []
    before = record.path.stat().st_size
    record.write(PLAN, ENDPOINT, "done")
    assert record.path.stat().st_size > before, "it is cut once, not with every event"


def test_the_newest_start_of_the_same_is_remembered(record: Record) -> None:
    for of, seconds in (("a", 50.0), ("a", 60.0), ("b", 70.0)):
        record.write_start(PLAN, "e", MeasuredStart(of, {"loading the target": seconds}))
    assert record.last_start("a") == MeasuredStart("a", {"loading the target": 60.0}, "2026-11-21")
    assert record.last_start("c") is None
    assert steps(record) == [("Start", "done")] * 3


@pytest.mark.parametrize("seconds", [-1.0, 1e9, float("inf"), "soon"])
def test_a_start_that_cannot_be_is_none(record: Record, seconds: float) -> None:
    record.write_start(PLAN, "e", MeasuredStart("a", {"loading the target": seconds}))
    assert record.last_start("a") is None
