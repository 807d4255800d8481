"""The highest request rate within an SLO, searched for on servers whose capacity is known, on a simulated clock."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from fakes import answer_events, event_stream
from jumping_loop import JumpingLoop
from reports import example, verdict
from simulated_arms import arm, result, workload

from toolkit.api.tracking import bench_metrics
from toolkit.cli.bench_options import slo_of
from toolkit.cli.main import run
from toolkit.cli.report_text import report_text
from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError, UsageError
from toolkit.measure.arm import Arm
from toolkit.measure.bench import measure
from toolkit.measure.compare import compare
from toolkit.measure.design import Design, Load
from toolkit.measure.headline import headline
from toolkit.measure.journal import Journal
from toolkit.measure.load import Ask, Timing
from toolkit.measure.measurement import Missed, RateRatio, Saturation
from toolkit.measure.result import RequestResult
from toolkit.measure.saturation import Saturated, Searching, saturate
from toolkit.measure.slo_search import SloSearch, block_seconds
from toolkit.measure.wording import slo_in_words
from toolkit.recipe.schema import Slo

SPEC, BASE = arm("spec"), arm("base")
SLO = Slo(ttft=0.5)
DESIGN = Design((SPEC,), (workload(8),), BASE, loads=(), seconds=3600, slo=SLO)


@dataclass
class Servers:
    """Of each arm so many, which answer a request at a time in so many seconds, and the clock of the measurement."""

    number: Mapping[str, int]
    answer: float = 0.5
    per_token: float = 0.01
    fails_above: float = 1e9
    now: float = 0.0
    asked: list[tuple[str, float, float]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def send(self, arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        await asyncio.sleep(0)
        free = [self.now] * self.number[arm.name]
        moments, due = random.Random(f"{arm.name} {self.now}"), self.now
        results = []
        for ask in asks:
            due += moments.expovariate(load.value) if load.open_loop else 0.0
            begins = max(due, heapq.heappop(free))
            heapq.heappush(free, begins + self.answer)
            results.append(self._answer(arm, ask, load, due - timing.began, begins - due))
        self.asked.append((arm.name, load.value, due - self.now))
        self.now = max(free)
        return results

    def _answer(self, arm: Arm, ask: Ask, load: Load, started: float, waited: float) -> RequestResult:
        first, failed = waited + self.answer / 10, load.open_loop and load.value > self.fails_above
        return result(
            arm=arm.name,
            prompt=ask.prompt,
            round=ask.round,
            load=load.value,
            open_loop=load.open_loop,
            started=started,
            seconds=waited + self.answer,
            arrivals=(Arrival(first, 1), Arrival(first + 99 * self.per_token, 99)),
            outcome="failed" if failed else "successful",
            error="busy" if failed else None,
        )


def saturated(servers: Servers, design: Design = DESIGN, journal: Journal | None = None) -> Saturated:
    assert design.slo
    return asyncio.run(saturate(design, design.slo, servers.send, journal=journal, clock=servers))


def test_the_rate_that_the_servers_can_take_is_found() -> None:
    """4 and 8 servers that answer in half a second take 8 and 16 requests/s, and 6.7 and 14.5 with short waits."""
    found = saturated(Servers({"base": 4, "spec": 8}))
    base, spec = found.saturation
    assert (base.arm, spec.arm) == ("base", "spec")
    assert base.rate == pytest.approx(6.7, rel=0.2)
    assert spec.rate == pytest.approx(14.5, rel=0.15)
    assert all(item.settled and item.missed_first == "ttft" for item in found.saturation)
    assert all(item.low <= item.rate < item.unmet <= item.high for item in found.saturation)  # type: ignore[operator]
    (ratio,) = found.ratios
    assert ratio.low < spec.rate / base.rate == ratio.ratio < ratio.high  # type: ignore[operator]
    assert not found.measured.notes


def test_blocks_last_ten_seconds_and_fifty_requests_at_least() -> None:
    servers = Servers({"base": 4, "spec": 8})
    saturated(servers)
    blocks = servers.asked[2 * 3 :]  # after the warm-up of both under three loads
    assert all(seconds > 0.6 * max(10, 50 / rate) for _, rate, seconds in blocks)
    assert [block_seconds(Slo(e2e=limit), 10) for limit in (0.1, 2, 9)] == [10, 40, 60]
    assert block_seconds(Slo(ttft=0.1, share=0.99), 10) == pytest.approx(50)
    assert len({name for name, *_ in blocks}) == 2


def test_the_arms_take_turns_by_time() -> None:
    servers = Servers({"base": 4, "spec": 8})
    saturated(servers, replace(DESIGN, seconds=120))
    spent = {name: sum(seconds for of, _, seconds in servers.asked if of == name) for name in ("base", "spec")}
    assert spent["base"] == pytest.approx(spent["spec"], abs=30)


def test_when_the_time_is_up_it_says_what_is_known() -> None:
    servers = Servers({"base": 4, "spec": 8})
    found = saturated(servers, replace(DESIGN, seconds=150))
    assert servers.now < 1.2 * 150
    assert not any(item.settled for item in found.saturation)
    assert [note for note in found.measured.notes if note.startswith("mine, base: the time was up after ")]
    assert found.ratios == ()


@pytest.mark.parametrize(
    ("slo", "servers", "missed"),
    [
        pytest.param(Slo(ttft=0.01), Servers({"base": 4}), "ttft", id="even alone"),
        pytest.param(Slo(tpot=0.001, ttft=9), Servers({"base": 4}), "tpot", id="its tokens are slow"),
        pytest.param(Slo(ttft=0.5), Servers({"base": 4}, fails_above=0), "failed", id="no answer"),
    ],
)
def test_an_slo_that_is_met_at_no_rate(slo: Slo, servers: Servers, missed: Missed) -> None:
    found = saturated(servers, replace(DESIGN, arms=(BASE,), baseline=None, slo=slo))
    (item,) = found.saturation
    assert (item.rate, item.low, item.missed_first, item.settled) == (None, None, missed, True)
    assert found.ratios == ()


def test_a_passing_outage_does_not_end_the_search() -> None:
    """The first block fails for reasons of the moment, whose answers would be quick at any rate."""
    servers = Servers({"base": 4}, answer=0.1)
    fine, servers.fails_above = servers.fails_above, 0.0

    async def send(arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        sent = await servers.send(arm, asks, load, timing)
        servers.fails_above = fine if load.open_loop else 0.0
        return sent

    design = replace(DESIGN, arms=(BASE,), baseline=None)
    found = asyncio.run(saturate(design, SLO, send, clock=servers))
    assert found.saturation[0].rate == pytest.approx(40, rel=0.15)


def test_a_time_in_which_not_every_search_has_a_block_is_refused() -> None:
    servers = Servers({"base": 4, "spec": 8})
    with pytest.raises(UsageError, match="2 searches, each with a block of requests at least, take 50 s"):
        saturated(servers, replace(DESIGN, seconds=45))
    assert servers.asked == []


def test_a_search_has_no_points_to_compare() -> None:
    report = replace(example(), saturation=FOUND)
    with pytest.raises(UsageError, match="has no points to compare"):
        compare(example(), report)


def test_the_rates_are_figures_of_a_run() -> None:
    figures = dict(bench_metrics(replace(example(), arms=(), saturation=(*FOUND, NONE), rate_ratios=(RATIO,))))
    assert figures == {
        "mine/baseline/highest_rate": 2.9,
        "mine/speculative/highest_rate": 6.7,
        "mine/speculative/highest_rate_ratio": 2.31,
    }


def test_what_fails_first_beyond_the_rate_is_named() -> None:
    (item,) = saturated(Servers({"base": 4}, fails_above=3), replace(DESIGN, arms=(BASE,), baseline=None)).saturation
    assert item.rate == pytest.approx(3, rel=0.06)
    assert item.missed_first == "failed"


def test_a_search_goes_on_from_a_journal(tmp_path: Path) -> None:
    def journal() -> Journal:
        return Journal(tmp_path / "run.jsonl", {"slo": 1})

    servers = Servers({"base": 4, "spec": 8})
    before = saturated(servers, replace(DESIGN, seconds=100), journal())
    began, blocks = servers.now, [item.blocks for item in before.saturation]
    after = saturated(servers, DESIGN, journal())
    asked = len([moment for moment in servers.asked if moment[2]])
    assert [item.blocks for item in after.saturation] > blocks
    assert sum(item.blocks for item in after.saturation) == asked
    assert all(item.settled for item in after.saturation)
    assert servers.now > began
    prompts = [(item.arm, item.prompt, item.round) for item in after.measured.results]
    assert len(set(prompts)) == len(prompts)


def test_ctrl_c_ends_it_with_what_it_has() -> None:
    servers = Servers({"base": 4, "spec": 8})

    async def interrupted() -> Saturated:
        task = asyncio.ensure_future(saturate(DESIGN, SLO, servers.send, cancel_after_three, clock=servers))
        seen.append(task)
        return await task

    def cancel_after_three(state: Searching) -> None:
        seen.append(state)
        if len(seen) == 4:
            seen[0].cancel()

    seen: list[Any] = []
    found = asyncio.run(interrupted())
    assert not found.measured.complete
    assert sum(item.blocks for item in found.saturation) == 3
    assert str(seen[1]).startswith("mine, base: asked 2 requests/s, at least 2 so far, ")


def outcomes(search: SloSearch, *rates: tuple[float, bool]) -> SloSearch:
    for rate, is_met in rates:
        search.add(rate, [result(started=i, arrivals=(Arrival(0.1 if is_met else 1.0, 1),)) for i in range(30)])
    return search


def test_a_block_that_went_wrong_does_not_lead_it_astray() -> None:
    """Asked again, 4 requests/s pass."""
    search = outcomes(SloSearch(SLO, 0.05), (2, True), (4, False), (3, True), (3.5, True))
    assert search.sides == (3.5, 4)
    outcomes(search, (4, True), (4, True))
    assert search.sides == (4, None)
    assert search.next_rate == 8


def test_the_first_fifth_of_a_block_is_not_counted() -> None:
    """While there is no queue yet."""
    early = [result(started=i, arrivals=(Arrival(1.0, 1),)) for i in range(20)]
    late = [result(started=i, arrivals=(Arrival(0.1, 1),)) for i in range(20, 100)]
    search = SloSearch(SLO, 0.05)
    search.add(2, [*late, *early])
    assert search.sides == (2, None)


class Queue:
    """A connection to so many servers of half a second, which streams as an engine does."""

    def __init__(self, servers: int, histogram: Sequence[int] | None = None) -> None:
        self._free = asyncio.Semaphore(servers)
        self._histogram = histogram

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        clock = asyncio.get_running_loop().time
        came = clock()
        async with self._free:
            first, *events = answer_events([7, 8, 9], self._histogram)
            yield [Chunk(clock() - came + 0.05, event_stream([first, events[0]]))]
            await asyncio.sleep(0.5)
            yield [Chunk(clock() - came, event_stream(events[1:]))]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise InvocationError("no scores")

    async def acceptance(self) -> Acceptance | None:
        return None


def test_the_whole_road_from_open_loops_to_the_report() -> None:
    async def measured() -> Any:
        arms = Arm("speculative", Queue(4, [0, 2]), cache_salt="salt"), Arm("baseline", Queue(2), False, cache_salt="s")
        return await measure(replace(DESIGN, arms=arms[:1], baseline=arms[1], precision=0.1), "mine")

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        report = runner.run(measured())

    base, spec = report.saturation
    assert (base.rate, spec.rate) == (pytest.approx(2.4, rel=0.25), pytest.approx(6.4, rel=0.2))
    (ratio,) = report.rate_ratios
    assert ratio.low < 2.7 < ratio.high
    assert {verdict.claim: verdict.holds for verdict in report.verdicts} == {
        "on": True,
        "accepted": True,
        "baseline": True,
        "lossless": True,
        "same-target": None,
    }
    asked = [sum(row.requests for row in report.arms if row.arm == name) for name in ("baseline", "speculative")]
    (lossless,) = [verdict.detail for verdict in report.verdicts if verdict.claim == "lossless"]
    assert f"{min(asked)} of {min(asked)} answers are the baseline's" in lossless
    assert report.ok
    assert {(row.arm, row.meets_slo) for row in report.arms} == {
        (name, met) for name in ("baseline", "speculative") for met in (True, False)
    }
    assert all(row.rate and row.concurrency is None for row in report.arms)
    assert report.to_dict()["saturation"][1]["missed_first"] == "ttft"


def test_what_is_found_is_told() -> None:
    report = replace(example(), speedups=(), points=0, verdicts=(), saturation=FOUND, rate_ratios=(RATIO,))
    report = replace(report, setting={"slo": slo_in_words(Slo(ttft=0.5, tpot=0.03))})
    text = report_text(report, 200)
    assert "speculative takes 2.31x (1.76-2.88) the requests of the baseline within the SLO on mine" in text
    assert "Highest request rate within ttft 500 ms, tpot 30 ms for 90% of the requests" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("mine") and " tpot " in line]
    assert row == [
        "mine",
        "speculative",
        "6.7",
        "6-7.5",
        "2.31x",
        "(1.76-2.88)",
        "tpot",
        "at",
        "7.1/s",
        "9,",
        "not",
        "enough",
    ]
    assert "none" in report_text(replace(report, saturation=(NONE,), rate_ratios=()), 200)
    assert "below 2" in report_text(replace(report, saturation=(NONE,), rate_ratios=()), 200)
    assert "tpot at 7.1/s" in report._repr_html_()
    wrong = headline(replace(report, verdicts=(verdict("lossless", False),)))
    assert (wrong.answer, wrong.title[:12]) == ("no", "Not lossless"), "which comes before any rate"


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=0.5", Slo(ttft=0.5)),
        ("ttft=500ms,tpot=30ms,e2e=10s", Slo(ttft=0.5, tpot=0.03, e2e=10)),
        ("tpot=30ms,share=0.99", Slo(tpot=0.03, share=0.99)),
    ],
)
def test_an_slo_is_read(text: str, slo: Slo) -> None:
    assert slo_of(text) == slo


TOO_LARGE = ["ttft=1,share=." + "9" * 20, "ttft=" + "9" * 400]


@pytest.mark.parametrize(
    "text", ["share=0.9", "ttft=0", "ttft=1,ttft=2", "ttft=1,share=2", "p90=1", "", "ttft=1,", *TOO_LARGE]
)
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not an SLO: write"):
        slo_of(text)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (["--rate", "2"], "--slo finds the rate by itself: leave out --rate"),
        (["--concurrency", "1", "--also", "aws"], "leave out --concurrency, --also"),
        (["--what-if-acceptance", "2"], "leave out --what-if-acceptance"),
        (["--publish"], "leave out --publish"),
    ],
)
def test_options_that_say_another_load_are_refused(
    others: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "http://127.0.0.1:1", "--slo", "ttft=1", *others]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


FOUND = (
    Saturation("baseline", "mine", 2.9, 2.6, 3.4, 3.1, "ttft", 14, True),
    Saturation("speculative", "mine", 6.7, 6.0, 7.5, 7.1, "tpot", 9, False),
)
RATIO = RateRatio("mine", "speculative", 2.31, 1.76, 2.88)
NONE = Saturation("baseline", "mine", None, None, 2, 2, "ttft", 5, True)
