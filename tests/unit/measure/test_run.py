"""A paired run on a clock that only simulated machines move."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fakes import answer_events, event_stream
from jumping_loop import JumpingLoop
from simulated_arms import SimulatedMachine, arm, result, workload

from toolkit.endpoint.generation import Acceptance
from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError, UsageError
from toolkit.measure.arm import Arm
from toolkit.measure.bench import identical_share, measure, sender
from toolkit.measure.design import Design, Load, Measured, Progress
from toolkit.measure.journal import Journal
from toolkit.measure.load import Ask, Timing
from toolkit.measure.pays import verdict_pays
from toolkit.measure.report import BenchReport
from toolkit.measure.result import RequestResult
from toolkit.measure.run import again, run
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.summary import summarise
from toolkit.recipe.schema import Slo

SPEC, BASE = arm("spec"), arm("base")
DESIGN = Design((SPEC,), (workload(8),), BASE, seconds=600, precision=0.1)


def machine(seed: int = 1, true: float = 1.4, **kind: Any) -> SimulatedMachine:
    return SimulatedMachine(seed, {"spec": true}, **kind)


def measured(simulated: SimulatedMachine, design: Design = DESIGN, journal: Journal | None = None) -> Measured:
    return asyncio.run(run(design, simulated.send, journal=journal, clock=simulated))


def test_a_measurement_goes_on_until_its_interval_is_narrow_enough() -> None:
    found = measured(machine(2, noise=0.1))
    interval = speedup(pairs_of(found.results, "spec", "base"))
    assert interval
    assert interval.low < 1.4 < interval.high
    assert 1.02 < interval.high / interval.ratio <= 1.1
    assert not [note for note in found.notes if "spec" in note or "mine" in note]


def test_an_engine_that_reads_its_cache_in_a_cold_measurement_is_named() -> None:
    design = replace(DESIGN, arms=(replace(DESIGN.arms[0], cache_salt=""),), requests=4)
    assert measured(machine(), design).notes[0].startswith("prompts may have been in the caches of spec: ")
    assert measured(machine(), replace(design, cache="warm")).notes == ()


def test_prompts_are_asked_in_their_order_and_then_as_the_seed_decides() -> None:
    def order(seed: int) -> list[int]:
        found = measured(machine(), replace(DESIGN, requests=24, seed=seed))
        return [item.prompt for item in found.results if item.arm == "spec"]

    assert order(0) == order(0) != order(1)
    assert order(0)[:8] == order(1)[:8] == list(range(8))


def test_the_verdict_of_simulated_arms_is_right() -> None:
    """The road from requests to verdicts: 1.4x pays, 0.7x costs, and 1x hardly ever either."""
    design = replace(DESIGN, seconds=300)

    def verdicts(true: float, runs: int) -> list[bool | None]:
        found = [summarise(measured(machine(seed, true), design).results, [SPEC], BASE) for seed in range(runs)]
        return [verdict_pays(summary.speedups[0], summary.noise) for summary in found]

    assert verdicts(1.4, 20).count(True) >= 18
    assert verdicts(0.7, 20).count(False) >= 18
    assert verdicts(1.0, 60).count(None) >= 56


def test_the_first_arm_of_a_block_alternates() -> None:
    simulated = machine()
    measured(simulated, replace(DESIGN, requests=4))
    blocks = [name for name, _ in simulated.sent[2:]]  # after the warm-up
    assert blocks == ["base", "spec", "spec", "base", "base", "spec", "spec", "base"]


def test_a_drift_of_the_machine_hits_both_arms() -> None:
    """It becomes twice as slow within the measurement."""
    found = measured(machine(noise=0.02, drift=0.01), replace(DESIGN, requests=48))
    interval = speedup(pairs_of(found.results, "spec", "base"))
    assert interval
    assert interval.ratio == pytest.approx(1.4, rel=0.02)


def test_the_baseline_is_measured_against_itself_in_every_second_round() -> None:
    found = measured(machine(), replace(DESIGN, requests=32))
    assert {item.round for item in found.results if item.arm == again("base")} == {1, 3}
    noise = summarise(found.results, [SPEC], BASE).noise
    assert noise
    assert noise.low < 1 < noise.high


def test_requests_are_asked_as_often_as_was_said() -> None:
    found = measured(machine(), replace(DESIGN, requests=10))
    assert len([item for item in found.results if item.arm == "spec"]) == 10


def test_without_a_baseline_each_prompt_is_asked_once() -> None:
    found = measured(machine(), replace(DESIGN, baseline=None))
    assert [item.prompt for item in found.results] == list(range(8))


def test_each_arm_is_warmed_up_under_each_load() -> None:
    """With so many requests as there will be at once, and with one: an engine on a GPU has other kernels for each."""
    simulated = machine()
    measured(simulated, replace(DESIGN, loads=(Load(16), Load(1), Load(0.5, open_loop=True)), seconds=100))
    assert [(name, len(prompts)) for name, prompts in simulated.sent[:4]] == [
        *(("base", count) for count in (3, 16)),
        *(("spec", count) for count in (3, 16)),
    ]


def test_concurrent_requests_are_sent_in_blocks_of_two_waves() -> None:
    simulated = machine()
    measured(simulated, replace(DESIGN, loads=(Load(4),), seconds=100))
    assert {len(prompts) for _, prompts in simulated.sent[2:]} == {8}


def test_all_loads_and_workloads_come_forward_together() -> None:
    design = replace(DESIGN, workloads=(workload(8, "a"), workload(8, "b")), loads=(Load(1), Load(2)), seconds=60)
    found = measured(machine(), design)
    asked = [
        sum((item.arm, item.workload, item.load) == ("spec", name, load) for item in found.results)
        for name in ("a", "b")
        for load in (1, 2)
    ]
    assert max(asked) - min(asked) <= 8


def test_loads_take_turns_by_time() -> None:
    found = measured(machine(noise=0.1), replace(DESIGN, loads=(Load(1), Load(16)), seconds=200, precision=0.001))
    busy = [sum(item.seconds for item in found.results if item.load == load) / load for load in (1, 16)]
    assert max(busy) < 1.5 * min(busy)


@pytest.mark.parametrize("seconds", range(20, 30))
def test_no_block_begins_that_would_end_long_after_the_time(seconds: int) -> None:
    """Blocks of 64 concurrent requests take about 10 seconds."""
    simulated = machine(noise=0.1)
    measured(simulated, replace(DESIGN, loads=(Load(64),), workloads=(workload(64),), seconds=seconds, precision=0.001))
    assert simulated.now <= 1.2 * seconds


def test_when_the_time_is_up_it_says_what_more_would_show() -> None:
    notes = measured(machine(), replace(DESIGN, seconds=30, precision=0.01)).notes
    assert notes[0].startswith("mine with one request at a time: the time was up at ±")
    assert "more requests of each arm, with other prompts, would make it ±1%" in notes[0]


def test_a_prompt_that_fails_is_counted_and_not_asked_again() -> None:
    found = measured(machine(fails=frozenset({("spec", 3)})), replace(DESIGN, seconds=60))
    failed = [item for item in found.results if item.outcome == "failed"]
    assert [(item.arm, item.prompt, item.round) for item in failed] == [("spec", 3, 0)]
    row = next(row for row in summarise(found.results, [SPEC], BASE).arms if row.arm == "spec")
    assert row.failed == 1


def test_an_endpoint_that_dies_ends_the_measurement() -> None:
    every = frozenset(("spec", prompt) for prompt in range(1, 8)) | {("base", 0)}  # the warm-up still works
    found = measured(machine(fails=every))
    assert len(found.results) == 16
    assert summarise(found.results, [SPEC], BASE).speedups == ()


def test_an_arm_that_answers_nothing_is_an_error() -> None:
    with pytest.raises(InvocationError, match="spec answers no request: the prompt is longer than"):
        measured(machine(fails=frozenset(("spec", prompt) for prompt in range(3))))


def test_progress_says_how_long_it_still_takes() -> None:
    simulated, seen = machine(noise=0.1), list[Progress]()
    asyncio.run(run(DESIGN, simulated.send, seen.append, clock=simulated))
    assert seen[0].remaining > seen[-1].remaining == 0
    assert str(seen[0]).startswith("mine with one request at a time: 1 requests of about ")
    assert "x so far, about " in str(seen[-1])


class Interrupting:
    """Ctrl-C during the n-th block: the requests that run are cut, as the load generator does it."""

    def __init__(self, simulated: SimulatedMachine, block: int) -> None:
        self._simulated, self._left = simulated, block

    async def __call__(self, arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        self._left -= 1
        found = await self._simulated.send(arm, asks, load, timing)
        if self._left:
            return found
        (task,) = [task for task in asyncio.all_tasks() if task.get_coro().__name__ == "run_it"]  # type: ignore[union-attr]
        task.cancel()
        assert timing.stop
        await timing.stop.wait()
        return [replace(item, outcome="incomplete") for item in found]


def interrupted(simulated: SimulatedMachine, journal: Journal | None = None) -> Measured:
    async def run_it() -> Measured:
        return await run(DESIGN, Interrupting(simulated, 12), journal=journal, clock=simulated)

    return asyncio.run(run_it())


def test_ctrl_c_keeps_what_was_measured() -> None:
    found = interrupted(machine())
    assert not found.complete
    assert [item.outcome for item in found.results] == ["successful"] * 9 + ["incomplete"]
    assert found.notes[0].startswith("the measurement was interrupted")


def test_an_interrupted_measurement_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    before = interrupted(machine(), Journal(file, {"arms": 2}))
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(file.read_bytes() + b'{"arm": "spe')  # as a full disk leaves it
    found = measured(machine(2), replace(DESIGN, requests=16), Journal(file, {"arms": 2}))
    answers = [item for item in found.results if item.outcome == "successful" and item.arm != again("base")]
    assert answers[:8] == list(before.results[:8])
    assert sorted((item.arm, item.prompt, item.round) for item in answers) == sorted(
        (name, prompt, turn) for name in ("base", "spec") for prompt in range(8) for turn in range(2)
    )
    assert answers[-1] in Journal(file, {"arms": 2}).results()  # it can be continued once more


def test_results_of_another_measurement_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    interrupted(machine(), Journal(file, {"max_tokens": 256}))
    with pytest.raises(UsageError, match="another setting"):
        measured(machine(), DESIGN, Journal(file, {"max_tokens": 64}))


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    found = measured(machine(noise=0.1), DESIGN, Journal(tmp_path / "missing" / "results.jsonl", {}))
    assert found.complete
    assert "results were not saved" in found.notes[-1]


class Streaming:
    """A connection that answers at once, and from the n-th request on never comes to an end."""

    def __init__(self, endless_from: int = 1000) -> None:
        self._left = endless_from
        self.hangs = asyncio.Event()

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        whole = event_stream(answer_events([7, 8]))
        self._left -= 1
        yield [Chunk(0.01, whole[:-20])]
        if self._left < 0:
            self.hangs.set()
            await asyncio.Event().wait()
        yield [Chunk(0.02, whole[-20:])]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    async def acceptance(self) -> Acceptance | None:
        return None


def test_it_measures_what_is_really_sent() -> None:
    arms = Arm("spec", Streaming()), Arm("base", Streaming())
    design = Design(arms[:1], (workload(2),), arms[1], (Load(1), Load(2), Load(500, open_loop=True)), requests=4)
    found = asyncio.run(run(design, sender()))
    asked = Counter((item.arm, item.load, item.open_loop, item.outcome) for item in found.results)
    loads = ((1, False), (2, False), (500, True))
    assert {key: asked[key] for key in asked if key[0] != again("base")} == {
        (name, *load, "successful"): 4 for name in ("spec", "base") for load in loads
    }


class Noting(Streaming):
    """Notes when it is asked, and gives no scores."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise InvocationError("no scores")

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        self.moments.append(asyncio.get_running_loop().time())
        return super().stream(body)


def test_the_seed_decides_at_what_moments_open_loops_ask() -> None:
    def moments(seed: int) -> list[float]:
        connection = Noting()
        design = Design((Arm("spec", connection),), (workload(8),), loads=(Load(0.5, open_loop=True),), seed=seed)
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(measure(replace(design, requests=8), "open"))
        return connection.moments

    assert moments(0) == moments(0) != moments(1)


class Reasoning:
    """A connection to a model that reasons first, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        self.asked.append(body)
        thought = {"choices": [{"index": 0, "delta": {"reasoning": "So"}, "token_ids": [5]}]}
        yield [Chunk(0.01, event_stream([thought, *answer_events([7, 8])]))]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    async def acceptance(self) -> Acceptance | None:
        return None


@pytest.mark.parametrize(
    ("wanted", "context", "room"), [(None, None, 1024), (None, 32768, 1024), (None, 1024, 512), (100, None, 100)]
)
def test_a_model_that_reasons_has_room_for_it(wanted: int | None, context: int | None, room: int) -> None:
    connection = Reasoning()
    arms = (Arm("spec", connection, max_model_len=context),)
    found = asyncio.run(run(Design(arms, (workload(1),), max_tokens=wanted), sender()))

    assert connection.asked[-1]["max_tokens"] == room
    assert any(f"answers may have {room} tokens" in note for note in found.notes) == (wanted is None)


def test_an_arms_own_options_decide() -> None:
    connection = Reasoning()
    options = {"max_tokens": 7, "ignore_eos": False, "presence_penalty": 0.5}
    fixed = replace(workload(1), fixed_length=True)
    asyncio.run(run(Design((Arm("spec", connection, options=options),), (fixed,), max_tokens=64), sender()))

    assert options.items() <= connection.asked[-1].items()


def test_the_models_own_penalties_are_switched_off() -> None:
    """Its generation_config.json may have some, and greedy tokens would not be its first choices."""
    connection = Reasoning()
    asyncio.run(run(Design((Arm("spec", connection),), (workload(1),)), sender()))

    penalties = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    assert [connection.asked[-1][name] for name in penalties] == [1.0, 0.0, 0.0]


def test_ctrl_c_cuts_requests_that_hang() -> None:
    connection = Streaming(endless_from=3 + 2)  # three are the warm-up

    async def run_it() -> Measured:
        measuring = asyncio.ensure_future(run(Design((Arm("spec", connection),), (workload(8),)), sender()))
        await connection.hangs.wait()
        measuring.cancel()
        return await measuring

    found = asyncio.run(run_it())
    assert [item.outcome for item in found.results] == ["successful", "successful", "incomplete"]
    assert not found.complete


@pytest.mark.parametrize("content", ['{"my": "report"}', "a line\nand half a line", "\n\n"])
def test_a_file_that_is_no_journal_is_refused_and_stays_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"report\.json"):
        measured(machine(), DESIGN, Journal(file, {}))
    assert file.read_text() == content


def test_a_finished_measurement_is_not_measured_again(tmp_path: Path) -> None:
    before = measured(machine(), replace(DESIGN, requests=8), Journal(tmp_path / "results.jsonl", {}))
    after = measured(machine(), replace(DESIGN, requests=4), Journal(tmp_path / "results.jsonl", {}))
    assert {item.seconds for item in after.results} == {item.seconds for item in before.results}


@pytest.mark.parametrize("design", [replace(DESIGN, loads=(Load(4),)), replace(DESIGN, workloads=(workload(1),))])
def test_every_arm_is_as_often_the_first(design: Design) -> None:
    """Also among the blocks without the baseline's second requests."""
    simulated = machine(noise=1.0)
    measured(simulated, replace(design, precision=0.001, seconds=2000))
    names = iter([name for name, _ in simulated.sent[2:]])
    blocks = [list(islice(names, 2 + number % 2)) for number in range(20)]
    firsts = Counter(block[0] for block in blocks if again("base") not in block)
    assert firsts == {"base": 5, "spec": 5}


def test_failed_requests_are_listed_with_their_error() -> None:
    found = measured(machine(fails=frozenset({("spec", 3), ("spec", 5)})), replace(DESIGN, requests=6))
    assert "failed: mine, prompt 4, 6, spec: the prompt is longer than the model's context" in found.notes


def test_a_rate_and_a_concurrency_of_the_same_number_are_two_points() -> None:
    closed, opened = result(load=2, text="a"), result(load=2, text="b", open_loop=True)
    theirs = [replace(item, arm="base") for item in (closed, opened)]
    rows = summarise([closed, opened, *theirs], [SPEC], BASE).arms
    assert [identical_share([closed, opened, *theirs], row, "base") for row in rows if row.arm == "spec"] == [1, 1]


def test_an_answer_that_the_baseline_owes_is_no_difference() -> None:
    """A failed request has no tokens, and the arm's answer to it nothing to be compared with."""
    ours = [result(prompt=prompt, token_ids=(7, 8)) for prompt in (0, 1)]
    theirs = [
        result(arm="base", token_ids=(7, 8), started=2.0),
        result(arm="base", prompt=1, outcome="failed", output_tokens=0, started=3.0),
    ]
    row = next(row for row in summarise([*ours, *theirs], [SPEC], BASE).arms if row.arm == "spec")
    assert identical_share([*ours, *theirs], row, "base") == 1


def test_an_open_loop_yields_no_more_than_it_is_asked() -> None:
    """A request of 100 tokens each ten seconds, answered in one."""
    answers = [result(load=0.1, open_loop=True, started=10.0 * number) for number in range(4)]
    (row,) = summarise(answers, [SPEC], slos={"mine": Slo(e2e=2)}).arms
    assert (row.output_tokens_per_second, row.goodput) == (pytest.approx(10), pytest.approx(0.1))


def test_the_first_arm_is_compared_with_each_other_one() -> None:
    """Both against the same answers of the baseline, and against each other."""
    simulated = SimulatedMachine(2, {"spec": 1.5, "other": 1.2}, noise=0.05)
    found = measured(simulated, replace(DESIGN, arms=(SPEC, arm("other")), requests=24))
    summary = summarise(found.results, [SPEC, arm("other")], BASE)
    (between,) = summary.between_arms
    assert (between.arm, between.other, between.workload, between.concurrency) == ("spec", "other", "mine", 1)
    assert between.low < 1.5 / 1.2 < between.high < 1.4


def test_the_acceptance_length_has_its_interval_over_prompts() -> None:
    answers = [result(prompt=n, acceptance=Acceptance((9 - n, 2, n))) for n in range(6)]
    (row,) = summarise(answers, [SPEC]).arms
    assert row.acceptance_length_low is not None
    assert row.acceptance_length_high is not None
    assert row.acceptance_length_low < (row.acceptance_length or 0) < row.acceptance_length_high
    assert row.acceptance_length_high - row.acceptance_length_low < 1


def test_a_request_without_an_end_is_cut() -> None:
    design = Design((Arm("spec", Streaming(endless_from=3 + 2)),), (workload(8),), seconds=0.5)
    found = asyncio.run(run(design, sender(), patience=0))
    assert [item.outcome for item in found.results] == ["successful", "successful", "incomplete"]
    assert found.notes[0].startswith("requests that still ran")


def test_the_report_of_an_interrupted_measurement_is_not_complete() -> None:
    connection = Streaming(endless_from=3 + 2)

    async def run_it() -> BenchReport:
        measuring = asyncio.ensure_future(measure(Design((Arm("spec", connection),), (workload(8),)), "spec"))
        await connection.hangs.wait()
        measuring.cancel()
        return await measuring

    assert not asyncio.run(run_it()).complete
