"""The record: what happened, in order, whatever happened to the one who wrote it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolkit.planning.plan import Action, Plan
from toolkit.planning.record import Event, Record

MODEL = Action("Model", "m", "create", "does not exist", {})
ENDPOINT = Action("Endpoint", "e", "create", "does not exist", {})
PLAN = Plan("recipe.yaml", "local", ("e",), (MODEL, ENDPOINT), 0.0, "0123456789abcdef")


@pytest.fixture
def record(tmp_path: Path) -> Record:
    times = (datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=second) for second in range(99))
    return Record(tmp_path / "records" / "e.jsonl", lambda: next(times))


def steps(record: Record) -> list[tuple[str, str]]:
    return [(event.kind, event.step) for event in record.events()]


def test_a_record_that_was_never_written_is_empty(record: Record) -> None:
    assert list(record.events()) == []


def test_events_are_told_in_the_order_in_which_they_happened(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    record.write(PLAN, MODEL, "done")
    record.write(PLAN, ENDPOINT, "started")
    record.write(PLAN, ENDPOINT, "failed", "no quota: 'ml.x'\nsecond line")
    assert steps(record) == [("Model", "started"), ("Model", "done"), ("Endpoint", "started"), ("Endpoint", "failed")]
    assert list(record.events())[3] == Event(
        "2026-11-21T00:00:03.000+00:00",
        "0123456789ab",
        "Endpoint",
        "e",
        "create",
        "failed",
        "no quota: 'ml.x'\nsecond line",
    )


def test_another_command_carries_the_record_on(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    Record(record.path).write(PLAN, MODEL, "done")
    assert steps(record) == [("Model", "started"), ("Model", "done")]


def test_every_event_is_on_disk_before_anything_else_happens(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    assert record.path.read_text().endswith("}\n")


def test_a_last_line_cut_short_costs_that_line_only(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    whole = record.path.read_bytes()
    for cut in range(1, len(whole) - 1):
        record.path.write_bytes(whole + whole[:cut])
        assert steps(record) == [("Model", "started")]


def test_what_is_written_after_a_line_cut_short_is_not_lost(record: Record) -> None:
    record.write(PLAN, MODEL, "started")
    record.path.write_bytes(record.path.read_bytes() * 2)
    record.path.write_bytes(record.path.read_bytes()[:-20])
    record.write(PLAN, MODEL, "done")
    assert steps(record) == [("Model", "started"), ("Model", "done")]
