"""A trace as a workload: its formats, prompts of its lengths, its moments, and what it could not be asked."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import event_stream
from simulated_arms import SimulatedMachine, Unused, arm, result
from simulated_arms import workload as simulated

from toolkit.endpoint.wire import Chunk
from toolkit.errors import UsageError
from toolkit.measure.arm import Arm, Workload, prompts_of
from toolkit.measure.bench import measure
from toolkit.measure.design import Design, Load
from toolkit.measure.endpoints import _setting
from toolkit.measure.journal import Journal
from toolkit.measure.load import Ask, Timing, body
from toolkit.measure.made_prompts import Pieces, count_pieces, lengthened
from toolkit.measure.replay import asked_rate, replay_notes, replayed, stretches_of
from toolkit.measure.result import RequestResult
from toolkit.measure.run import block_seconds, run
from toolkit.measure.summary import Point, row
from toolkit.measure.trace import Trace, Traced, read_trace
from toolkit.recipe.schema import Slo

MOONCAKE = (
    {"timestamp": 0, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 1060, "output_length": 9, "hash_ids": [0, 1, 3]},
    {"timestamp": 5999, "input_length": 300, "output_length": 4, "hash_ids": [7]},
)
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,API log
118,GPT-4,417,276,693,Conversation log
"""
SPEC, BASE = arm("spec"), arm("base")


class CountsWords(Unused):
    """A server whose tokens are words, and whose chats have 10 more."""

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"usage": {"prompt_tokens": 10 + words(body["messages"][0]["content"])}}


class Echo(Unused):
    """Answers each request at once."""

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        events = [
            {"choices": [{"delta": {"content": "a"}, "token_ids": [1, 2], "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        ]
        yield [Chunk(0.1, event_stream(events))]

    async def acceptance(self) -> None:
        return None


class TellsNothing(Unused):
    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"choices": []}


def words(text: str) -> int:
    return len(text.split())


def pieces(*texts: str) -> Pieces:
    return asyncio.run(count_pieces(CountsWords(), texts or ("Name three rivers of Asia.", "Count to ten, slowly.")))


def mooncake(tmp_path: Path, *rows: Mapping[str, Any]) -> Trace:
    path = tmp_path / "mooncake.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows or MOONCAKE))
    return read_trace(path)


def captured(time: str, body: Mapping[str, Any], usage: Mapping[str, int] | None = None) -> bytes:
    data: dict[str, Any] = {"endpointInput": {"data": base64.b64encode(json.dumps(body).encode()).decode()}}
    data["endpointInput"]["encoding"] = "BASE64"
    if usage:
        data["endpointOutput"] = {"data": json.dumps({"usage": usage}), "encoding": "JSON"}
    return json.dumps({"captureData": data, "eventMetadata": {"inferenceTime": time}}).encode() + b"\n"


def chat(text: str, **options: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **options}


def test_mooncakes_milliseconds_and_blocks_are_read(tmp_path: Path) -> None:
    first, second, third = mooncake(tmp_path).requests
    assert (first.at, second.at, third.at) == (0.0, 3.0, pytest.approx(5.999))
    assert (second.prompt_tokens, second.answer_tokens, second.blocks) == (1060, 9, (0, 1, 3))


def test_qwens_traces_have_mooncakes_columns_with_seconds_and_blocks_of_16_tokens(tmp_path: Path) -> None:
    row = {"parent_chat_id": -1, "chat_id": 1, "type": "text", "turn": 1, "output_length": 7}
    one = {**row, "timestamp": 61.114, "input_length": 521, "hash_ids": [*range(33)]}
    two = {**row, "timestamp": 63.5, "input_length": 1040, "hash_ids": [*range(40), *range(90, 115)]}
    first, second = mooncake(tmp_path, one, two).requests
    assert (first.at, second.at) == (0.0, pytest.approx(2.386))
    assert (len(first.blocks), len(second.blocks)) == (2, 3)
    assert [a == b for a, b in zip(first.blocks, second.blocks, strict=False)] == [True, False]
    with pytest.raises(UsageError, match="has 2 entries, and 521 tokens are 33 blocks of 16"):
        mooncake(tmp_path, {**one, "hash_ids": [1, 2]})


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("ending", ["", "+00:00"])
def test_dates_of_azures_traces_are_read_whatever_this_machines_clock(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "AzureLLMInferenceTrace_conv.csv"
    # over the night in which that clock is put forward
    moments = ("2024-03-31 00:30:00.5000000", "2024-03-31 03:30:00.2500000", "2024-03-31 03:31:00")
    rows = [f"{moment}{ending},{tokens}" for moment, tokens in zip(moments, ("374,44", "396,109", "4,0"), strict=True)]
    path.write_text("\r\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    trace = read_trace(path)
    assert [(one.at, one.prompt_tokens, one.answer_tokens) for one in trace.requests] == [
        (0, 374, 44),
        (3 * 3600 - 0.25, 396, 109),
    ]
    assert trace.notes == (
        "Left out of the trace: 1 requests that failed when they were recorded (no response tokens)",
    )
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n")
    with pytest.raises(UsageError, match=r"conv\.csv:2: `TIMESTAMP` must be a date and a time"):
        read_trace(path)


def test_requests_that_failed_when_burstgpt_was_recorded_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "BurstGPT_1.csv"
    path.write_text(BURSTGPT)
    trace = read_trace(path)
    assert [(one.at, one.prompt_tokens, one.answer_tokens) for one in trace.requests] == [(0, 472, 18), (113, 417, 276)]
    assert trace.notes == (
        "Left out of the trace: 1 requests that failed when they were recorded (no response tokens)",
    )


def test_captured_traffic_has_its_prompts_and_is_spread_over_its_whole_seconds() -> None:
    lines = [
        captured("2026-11-22T10:05:59Z", chat("one", max_tokens=7), {"prompt_tokens": 5, "completion_tokens": 6}),
        captured("2026-11-22T10:05:59Z", chat("two")),
        captured("2026-11-22T10:06:01Z", chat("three")),
        captured("2026-11-22T10:06:01Z", chat("mine", user="toolkit-measurement")),
        captured("2026-11-22T10:06:02Z", {"inputs": "text"}),
    ]
    trace = read_trace("s3://bucket/prefix", lambda prefix: [(f"{prefix}/a.jsonl", b"".join(lines))])
    assert [(one.at, one.prompt and one.prompt.text) for one in trace.requests] == [
        (0.0, "one"),
        (0.5, "two"),
        (2.0, "three"),
    ]
    assert trace.requests[0].request.prompt_tokens == 5
    with pytest.raises(UsageError, match=r"s3://bucket/prefix/a.jsonl:2: the record does not tell how many tokens"):
        assert trace.requests[1].request
    assert sorted(trace.notes) == [
        "Left out of the trace: 1 captured lines that are no requests for text",
        "Left out of the trace: 1 captured requests of measurements",
    ]
    workload = replayed(trace, 2.0, 60.0, None, None)
    assert workload.prompts[0].max_tokens == 7
    assert (workload.arrivals, workload.fixed_length) == ((0.0, 0.25, 1.0), False)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**MOONCAKE[0], "hash_ids": [1]}, "mooncake.jsonl:1: `hash_ids` has 1 entries, and 1,100 tokens are 3 blocks"),
        ({**MOONCAKE[0], "hash_ids": "0"}, "mooncake.jsonl:1: `hash_ids` must be a list of numbers"),
        ({**MOONCAKE[0], "timestamp": -1}, "mooncake.jsonl:1: `timestamp` must be milliseconds from 0 on"),
        ({**MOONCAKE[0], "input_length": 1.5}, "mooncake.jsonl:1: `input_length` must be a whole number"),
    ],
)
def test_a_wrong_row_is_told_with_its_line(row: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        mooncake(tmp_path, row)


def test_prompts_have_the_lengths_of_the_trace_and_begin_alike_as_far_as_its_blocks_do(tmp_path: Path) -> None:
    workload = replayed(mooncake(tmp_path), 1.0, 60.0, pieces(), 2000)
    first, second, third = (prompt.text for prompt in workload.prompts)
    for text, tokens in ((first, 1100), (second, 1060), (third, 300)):
        assert 10 + words(text) == pytest.approx(tokens, abs=4)
    same = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert words(first[:same]) == pytest.approx(2 * 512, abs=4)
    assert first[:20] != third[:20]
    assert [prompt.max_tokens for prompt in workload.prompts] == [50, 9, 4]
    assert workload.fixed_length


def test_prompts_without_blocks_begin_differently_and_end_with_a_whole_prompt(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "hash_ids"} for row in MOONCAKE]
    first, second, _ = (
        prompt.text for prompt in replayed(mooncake(tmp_path, *rows), 1.0, 60.0, pieces(), 2000).prompts
    )
    assert first[:12] != second[:12]
    assert first.endswith("\nName three rivers of Asia.")
    assert 10 + words(first) == pytest.approx(1100, abs=4)


def test_a_request_that_the_model_cannot_take_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mooncake.jsonl:2: 1060 \+ 9 tokens, and the model takes 1068") as refused:
        replayed(mooncake(tmp_path, MOONCAKE[2], MOONCAKE[1]), 1.0, 60.0, pieces(), 1068)
    assert refused.value.hint == "Raise engine.max_model_len, or leave such requests out of the trace."


def test_what_comes_after_the_time_is_up_is_no_matter(tmp_path: Path) -> None:
    assert len(replayed(mooncake(tmp_path), 1.0, 4.0, pieces(), None).prompts) == 2
    assert len(replayed(mooncake(tmp_path), 2.0, 4.0, pieces(), None).prompts) == 3


def test_a_workload_is_lengthened_with_its_other_texts_and_ends_with_its_prompts() -> None:
    workload = Workload("w", (*prompts_of("Name three rivers of Asia."), replace(*prompts_of("Count."), max_tokens=9)))
    longer = asyncio.run(lengthened(CountsWords(), workload, (200, 2000), 2256, 256))
    assert [one.name for one in longer] == ["w, 200 tokens", "w, 2k"]
    for made, tokens in zip(longer, (200, 2000), strict=True):
        assert [prompt.max_tokens for prompt in made.prompts] == [None, 9]
        for prompt, own in zip(made.prompts, workload.prompts, strict=True):
            assert 10 + words(prompt.text) == pytest.approx(tokens, abs=4)
            assert prompt.text.endswith(f"\n{own.text}")
        assert made.prompts[0].text[:7] != made.prompts[1].text[:7]
    with pytest.raises(
        UsageError, match="prompts of 2,000 tokens with their answers are 2,256, and the model takes 2,255"
    ):
        asyncio.run(lengthened(CountsWords(), workload, (200, 2000), 2255, 256))


def test_a_server_that_counts_no_tokens_is_told() -> None:
    with pytest.raises(UsageError, match="does not tell how many tokens"):
        asyncio.run(count_pieces(TellsNothing(), ["a"]))


def test_both_arms_get_the_same_requests_at_the_same_moments_in_blocks_of_time() -> None:
    machine = SimulatedMachine(0, {"spec": 2.0})
    blocks: list[tuple[str, list[tuple[int, float | None]]]] = []

    async def send(which: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        if asks[0].at is not None:  # not the warm-up
            blocks.append((which.name, [(ask.prompt, ask.at) for ask in asks]))
        return await machine.send(which, asks, load, timing)

    workload = replace(simulated(5, "trace"), arrivals=(0.0, 0.5, 4.0, 100.0, 100.5))
    design = Design((SPEC,), (workload,), BASE, (Load(1.0, open_loop=True),), seconds=20.0)  # so blocks have 1 s
    asyncio.run(run(design, send, clock=machine))
    of_base, of_spec = ([asked for name, asked in blocks if name == one] for one in ("base", "spec"))
    once = [[(0, 0.0), (1, 0.5)], [(2, 0.0)], [(3, 0.0), (4, 0.5)]]
    assert of_base[:6] == of_spec[:6] == [*once, *once]
    assert {name for name, _ in blocks} == {"base", "spec"}  # the baseline would find its own prompts in its cache


def test_requests_of_one_pass_share_what_is_cached() -> None:
    """In the body that is sent."""
    timing, workload = Timing(0.0, cold_cache=True), simulated(2)
    salts = [
        body(SPEC, Ask(workload, *asked), timing)["salt"]
        for asked in ((0, 0, 1.0, "0"), (1, 0, 2.0, "0"), (0, 1, 1.0, "1"))
    ]
    assert salts[0] == salts[1] != salts[2]
    assert body(SPEC, Ask(workload, 0, cache="0"), Timing(0.0, cold_cache=True))["salt"] != salts[0]
    assert "salt" not in body(SPEC, Ask(workload, 0, cache="0"), Timing(0.0))


def asked(arm: str, block: int, times: Sequence[tuple[float, float]], **known: Any) -> list[RequestResult]:
    """A block's results: when each request was sent after its beginning, and how long it took."""
    common = {"arm": arm, "workload": "mooncake", "block": block, "open_loop": True, "prompt_tokens": 800, **known}
    return [
        result(**{**common, "prompt": prompt, "started": 100.0 * block + at, "seconds": seconds})
        for prompt, (at, seconds) in enumerate(times)
    ]


def of_trace(tmp_path: Path, **known: Any) -> Design:
    trace = mooncake(tmp_path)
    return Design((SPEC,), (replayed(trace, 2.0, 60.0, pieces(), None),), BASE, trace=trace, speed=2.0, **known)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([(0.0, 1.0), (2.0, 1.0), (4.0, 1.0)], ""),
        ([(0.0, 2.0), (2.0, 4.0), (4.0, 9.0)], "base did not keep up: it was busy for 9.0 s after the last request"),
        ([(0.0, 2.0)], ""),
        ([(0.0, 6.0)], "whether base keeps up is not shown: the first request of a block took 6.0 s"),
    ],
)
@pytest.mark.parametrize("outcome", ["successful", "failed"])
def test_an_arm_that_does_not_keep_up_is_named(
    times: list[tuple[float, float]], said: str, outcome: str, tmp_path: Path
) -> None:
    """Failed requests kept it busy as well; and a single request a block tells, too."""
    slow = [item for block in range(3) for item in asked("base", block, times, outcome=outcome)]
    steady = [item for block in range(3) for item in asked("spec", block, [(0.0, 1.0)] * 3)]
    notes = [*replay_notes(of_trace(tmp_path), [*slow, *steady], dict.fromkeys(range(3), 10.0))]
    assert notes[0] == "mooncake: 3 of 3 requests were asked, the first 6 of 6 s at 2 times its speed"
    assert "800 tokens on average where the trace has 820" in notes[1]
    assert [note[: len(said)] for note in notes[3:]] == ([said] if said else [])


@pytest.mark.parametrize(
    ("slots", "seconds", "said"),
    [
        pytest.param(10, 60, "spec did not keep up: it was busy for 60.2 s", id="half of the capacity that it needs"),
        pytest.param(10, 15, "whether spec keeps up is not shown: the first", id="blocks that are too short to tell"),
        pytest.param(20, 60, "", id="just enough"),
    ],
)
def test_an_engine_with_a_queue_is_told_from_one_without(slots: int, seconds: int, said: str, tmp_path: Path) -> None:
    """Four requests a second, of 5 s each, of which an engine answers so many at a time."""
    sent = [number / 4 for number in range(4 * seconds)]
    ends = [max(at, 5.0 * (number // slots)) + 5.0 for number, at in enumerate(sent)]
    results = asked("spec", 0, [(at, end - at) for at, end in zip(sent, ends, strict=True)])
    known = [replace(item, prompt=0) for item in results]
    notes = [*replay_notes(of_trace(tmp_path), known, {0: float(seconds)})][3:]
    assert [note[: len(said)] for note in notes] == ([said] if said else [])


def test_it_is_told_that_blocks_begin_idle(tmp_path: Path) -> None:
    notes = [*replay_notes(of_trace(tmp_path), asked("spec", 0, [(0.0, 1.0)]), {0: 15.0})]
    assert any(note.startswith("each block of 15 s began with an idle engine") for note in notes)


def test_the_seconds_and_the_rate_of_a_replay_are_those_of_what_was_asked() -> None:
    """10 requests come in 2 s, and two more after an hour. A block's pause counts, that hour does not."""
    arrivals = (*(2 * n / 5 for n in range(10)), 7200.0, 7216.0)  # at half the speed
    trace = Trace("mooncake", tuple(Traced(at, 1, 1, "") for at in arrivals))
    design = Design((SPEC,), (simulated(1, "mooncake"),), trace=trace, speed=2.0, seconds=4000.0)
    first = asked("spec", 0, [(n / 5, 1.0) for n in range(10)])
    last = [replace(item, prompt=item.prompt + 10) for item in asked("spec", 1, [(0.0, 1.0), (8.0, 4.0)])]
    stretches = stretches_of(design, [*first, *last], 10.0)
    assert stretches == {0: 10.0, 1: pytest.approx(8.0)}
    in_less_time = stretches_of(replace(design, seconds=5.0), [*first, *last], 0.25)
    assert in_less_time == {0: pytest.approx(1.8), 1: pytest.approx(8.0)}  # what an earlier run asked counts
    rate = asked_rate([*first, *last], stretches)
    assert rate == pytest.approx(12 / 18, rel=0.01)
    report = row(Point("mooncake", rate, open_loop=True), SPEC, [*first, *last], None, 0, stretches)
    assert report.output_tokens_per_second == pytest.approx(1200 / (10 + 12))


def test_the_first_fifth_of_a_block_is_in_no_share_within_an_slo() -> None:
    """Two of ten came in time, both at the beginning."""
    results = asked("spec", 0, [(n, 1.0 if n < 2 else 5.0) for n in range(10)])
    at, slo = Point("mooncake", 1.0, open_loop=True), Slo(e2e=2.0)
    assert row(at, SPEC, results, slo, 0, {0: 10.0}).within_slo == 0.0
    assert row(at, SPEC, results, slo).within_slo == 0.2


def test_a_measured_replay_has_the_rate_of_its_part() -> None:
    arrivals = (0.0, 0.1, 5.9)
    trace = Trace("mooncake", tuple(Traced(at, 1, 1, "") for at in arrivals))
    design = Design(
        (replace(SPEC, connection=Echo()),),
        (replace(simulated(3, "mooncake"), arrivals=arrivals),),
        loads=(Load(99.0, open_loop=True),),
        trace=trace,
        seconds=4.0,
    )
    report = asyncio.run(measure(design, "title"))
    assert [one.rate for one in report.arms] == [3.0]


def test_blocks_of_a_trace_are_longer_where_the_time_allows(tmp_path: Path) -> None:
    assert block_seconds(of_trace(tmp_path, seconds=300.0)) == 15.0
    assert block_seconds(of_trace(tmp_path, seconds=7200.0)) == 60.0
    assert block_seconds(Design((SPEC,), (simulated(1),), seconds=7200.0)) == 10.0


def test_a_trace_that_was_not_asked_to_its_end_can_be_precise() -> None:
    machine = SimulatedMachine(0, {"spec": 2.0}, noise=0.05)
    arrivals = tuple(n / 2 for n in range(2000))
    design = Design((SPEC,), (replace(simulated(2000, "trace"), arrivals=arrivals),), BASE, seconds=100000.0)
    design = replace(design, loads=(Load(2.0, open_loop=True),))
    found = asyncio.run(run(design, machine.send, clock=machine))
    assert len({item.prompt for item in found.results}) < 2000
    assert not [note for note in found.notes if "the time was up" in note]


def test_texts_without_spaces_are_cut_to_length() -> None:
    made = Pieces((("你好世界" * 100, 400),), around=0, mark=3).text("Part 1", 103)
    assert len(made.partition("\n")[2]) == 100


def test_the_text_of_a_block_is_made_once(tmp_path: Path) -> None:
    made: list[str] = []

    class Counting(Pieces):
        def text(self, name: str, tokens: int) -> str:
            made.append(name)
            return super().text(name, tokens)

    known = pieces()
    replayed(mooncake(tmp_path), 1.0, 60.0, Counting(known.texts, known.around, known.mark), None)
    assert made.count("Part 0") == 1


def test_what_cannot_be_asked_of_burstgpt_is_left_out_however_zeros_are_written(tmp_path: Path) -> None:
    path = tmp_path / "BurstGPT_2.csv"
    path.write_text("Timestamp,Request tokens,Response tokens\n5,10,0.00\n6,0,7\n7,10,7\n")
    trace = read_trace(path)
    assert [(one.prompt_tokens, one.answer_tokens) for one in trace.requests] == [(10, 7)]
    assert [*trace.notes] == [
        "Left out of the trace: 1 requests that failed when they were recorded (no response tokens)",
        "Left out of the trace: 1 requests without request tokens",
    ]


def test_captured_records_without_a_time_are_told_apart_and_true_is_no_number() -> None:
    lines = captured("", chat("one")) + captured("2026-11-22T10:05:59Z", chat("two"), {"prompt_tokens": True})
    trace = read_trace("s3://b/p", lambda prefix: [("a.jsonl", lines)])
    assert trace.notes == ("Left out of the trace: 1 captured requests whose record has no time",)
    assert [one.prompt_tokens for one in trace.requests] == [None]


def test_a_million_requests_are_told_from_others_in_seconds(tmp_path: Path) -> None:
    """Also where only the text of a captured prompt differs."""
    one = of_trace(tmp_path)
    assert one.trace
    (other,) = prompts_of("another")
    first = replace(one.trace.requests[0], prompt=other)
    texts = replace(one, trace=replace(one.trace, requests=(first, *one.trace.requests[1:])))
    settings = [_setting(design, [])["trace"] for design in (one, one, texts)]
    assert settings[0] == settings[1] != settings[2]
    assert len(settings[0]) == 32


def test_a_replay_is_carried_on_also_with_less_time(tmp_path: Path) -> None:
    """Less of the trace can be asked then; what was asked before counts."""
    whole = replace(simulated(4, "trace"), arrivals=(0.0, 0.5, 4.0, 9.0))
    part = replace(simulated(2, "trace"), arrivals=whole.arrivals[:2])

    def measured(workload: Workload, seconds: float) -> list[RequestResult]:
        machine = SimulatedMachine(0, {"spec": 2.0})
        design = Design((SPEC,), (workload,), BASE, (Load(1.0, open_loop=True),), seconds=seconds)
        work = run(design, machine.send, journal=Journal(tmp_path / "run.jsonl", {}), clock=machine)
        return list(asyncio.run(work).results)

    before = measured(whole, 20.0)
    assert {item.prompt for item in before} == {0, 1, 2, 3}
    assert len(measured(part, 5.0)) > len(before)
