"""Traces of requests: their order and their times, and the part of a long one that is simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolkit.measure.queue import Request
from toolkit.measure.trace import at_rate, busiest, mean_rate, per_second, read_trace


def test_requests_come_in_order_from_0_on(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("at,prompt_tokens,answer_tokens\n105.5,7,8\n100,5,6\n")
    found = read_trace(path)
    assert [one.request for one in found.requests] == [Request(0.0, 5, 6), Request(5.5, 7, 8)]
    assert [one.where for one in found.requests] == [f"{path}:3", f"{path}:2"]
    assert found.notes == ()


def test_of_a_long_trace_the_busiest_part_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [*(float(second) for second in range(5_000)), *(5_000 + part / 10 for part in range(20_000))]
    path.write_text("".join(f"{json.dumps({'at': at, 'prompt_tokens': 1, 'answer_tokens': 1})}\n" for at in rows))
    found = busiest(read_trace(path))
    (note,) = found.notes
    assert (len(found.requests), found.requests[-1].at) == (20_000, pytest.approx(1_999.9))
    assert note == "Of 25,000 requests the 20,000 that came closest together were simulated"


@pytest.mark.parametrize(("text", "rate"), [("5/s", 5.0), ("0.5", 0.5), ("300/min", 5.0), ("1800/h", 0.5)])
def test_rates(text: str, rate: float) -> None:
    assert per_second(text) == pytest.approx(rate)


@pytest.mark.parametrize("rate", [0.1, 20.0, 200.0])
def test_requests_at_a_rate_come_so_often_for_a_minute_at_least(rate: float) -> None:
    requests = at_rate(rate, 10, 20)
    assert mean_rate(requests) == pytest.approx(rate, rel=0.06)
    assert requests[-1].at > 55
    assert requests == at_rate(rate, 10, 20)
