"""Chats of several turns: each is asked with the arm's own answers before it, and has figures of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes import event_stream
from simulated_arms import SimulatedMachine
from simulated_arms import arm as named
from simulated_arms import workload as simulated

from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm, Workload, prompts_of
from toolkit.measure.bench import measure, sender
from toolkit.measure.design import Design, Load
from toolkit.measure.journal import Journal
from toolkit.measure.load import Ask, Timing, closed_loop
from toolkit.measure.lossless import pair_answers
from toolkit.measure.result import RequestResult
from toolkit.measure.run import run
from toolkit.measure.same_target import other_tokens
from toolkit.measure.statistics import half_width, pairs_of
from toolkit.recipe.prompts import Prompt, prompt_of

CHATS = Workload("w", prompts_of("one", "two", "three"), turns=3)
SPEC, BASE = named("spec"), named("base")


class Echo:
    """Answers with the number of messages that it was asked; `fails` at the first that has so many."""

    def __init__(self, fails: int = 99) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.fails = fails

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        self.bodies.append(body)
        number = len(body["messages"])
        if number >= self.fails:
            raise InvocationError("longer than the model's context")
        events = [
            {"choices": [{"delta": {"content": f"answer {number}"}, "token_ids": [1, 2], "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": number, "completion_tokens": 2}},
        ]
        yield [Chunk(0.1, event_stream(events))]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    async def acceptance(self) -> None:
        return None


def chat(connection: Echo, workload: Workload = CHATS, prompt: int = 0) -> list[RequestResult]:
    arm = Arm("a", connection, cache_salt="salt")
    return asyncio.run(closed_loop(arm, [Ask(workload, prompt)], 1, Timing(0.0, cold_cache=True)))


def test_each_turn_is_asked_with_what_was_said_and_answered_before() -> None:
    results = chat(echo := Echo(), prompt=1)
    assert [[message["content"] for message in body["messages"]] for body in echo.bodies] == [
        ["two"],
        ["two", "answer 1", "three"],
        ["two", "answer 1", "three", "answer 3", "one"],
    ]
    assert [message["role"] for message in echo.bodies[1]["messages"]] == ["user", "assistant", "user"]
    assert [item.workload for item in results] == ["w, turn 1", "w, turn 2", "w, turn 3"]
    assert {item.prompt for item in results} == {1}


def test_the_turns_of_a_chat_share_what_is_cached_and_chats_do_not() -> None:
    echo = Echo()
    chat(echo)
    chat(echo)
    salts = [body["salt"] for body in echo.bodies]
    assert len(set(salts[:3])) == len(set(salts[3:])) == 1
    assert salts[0] != salts[3]


def test_a_turn_that_fails_is_the_last() -> None:
    results = chat(Echo(fails=3))
    assert [(item.workload, item.outcome) for item in results] == [
        ("w, turn 1", "successful"),
        ("w, turn 2", "failed"),
    ]


def test_a_rows_own_turns_are_what_its_user_says_later() -> None:
    prompt = prompt_of({"turns": ["Hi", "And you?", "Why?"]}, "a.jsonl:1")
    workload = Workload("w", (prompt, Prompt(({"role": "user", "content": "other"},))), turns=2)
    chat(echo := Echo(), workload)
    assert [message["content"] for message in echo.bodies[-1]["messages"]] == ["Hi", "answer 1", "And you?"]


class Says(Echo):
    """Answers with a text of its own, of as many tokens as words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        number = len(body["messages"])
        text = self.text if number == 1 and body["messages"][0]["content"] == "one" else f"answer {number}"
        tokens = sum(len(message["content"].split()) for message in body["messages"])
        events = [
            {"choices": [{"delta": {"content": text}, "token_ids": [1, 2], "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 2}},
        ]
        yield [Chunk(0.1, event_stream(events))]


def test_where_chats_have_parted_speeds_are_compared_and_answers_no_more() -> None:
    """The answer to the first prompt is a near-tie: what follows has another prompt, of other tokens."""
    arms = Arm("spec", Says("a near tie that parts")), Arm("base", Says("answer 1"))
    asks = [Ask(CHATS, prompt) for prompt in range(3)]
    ours, theirs = (asyncio.run(closed_loop(arm, asks, 1, Timing(0.0))) for arm in arms)
    assert [len(pair_answers(ours, theirs)), len(pairs_of([*ours, *theirs], "spec", "base"))] == [7, 9]
    own = [item for item in ours if item.prompt == 0]
    assert other_tokens(own, theirs) == ""
    assert len({item.said for item in ours if item.workload == "w, turn 1"} | {""}) == 1


def test_how_many_chats_have_parted_is_told() -> None:
    arms = Arm("spec", Says("a near tie that parts")), Arm("base", Says("answer 1"))
    report = asyncio.run(measure(Design(arms[:1], (CHATS,), arms[1], requests=3, max_tokens=9), "title"))
    parted = [note for note in report.notes if "chats" in note]
    assert [note.partition(" the answers")[0] for note in parted] == [
        "w, turn 2: in 1 of 3 chats",
        "w, turn 3: in 1 of 3 chats",
    ]


def test_a_chat_that_outgrows_the_context_is_asked_fewer_turns() -> None:
    spec, base = Echo(fails=3), Echo()
    arms = Arm("spec", spec), Arm("base", base)
    work = run(Design(arms[:1], (CHATS,), arms[1], requests=6), sender())
    results = asyncio.run(work).results
    assert Counter(item.workload for item in results if item.arm == "base" and item.round)["w, turn 2"] == 0
    assert Counter(item.round for item in results if (item.arm, item.workload) == ("spec", "w, turn 1")) == {0: 3, 1: 3}
    assert sum(item.outcome == "failed" for item in results) == 3


def test_a_chat_of_fewer_turns_is_carried_on(tmp_path: Path) -> None:
    def asked(requests: int) -> int:
        spec = Echo(fails=3)
        design = Design((Arm("spec", spec),), (CHATS,), Arm("base", Echo()), requests=requests)
        asyncio.run(run(design, sender(), journal=Journal(tmp_path / "run.jsonl", {})))
        return len([body for body in spec.bodies if body["max_tokens"] > 8])  # not of the warm-up

    assert (asked(3), asked(3)) == (6, 0)


def test_chats_are_measured_until_each_turn_is_narrow_enough() -> None:
    """As one width of all turns, that of turn 1 would do."""
    workload = replace(simulated(6), turns=3)
    found = asyncio.run(
        run(
            Design((SPEC,), (workload,), BASE, seconds=10_000),
            (machine := LateNoise(0, {"spec": 1.5})).send,
            clock=machine,
        )
    )
    for name in workload.names:
        there = [item for item in found.results if item.workload == name]
        assert half_width(pairs_of(there, "spec", "base")) <= 0.05 * 1.05


class OfChats(SimulatedMachine):
    """Answers each chat with a result for each of its turns."""

    async def send(self, arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        answers = await super().send(arm, asks, load, timing)
        names = asks[0].workload.names
        return [replace(item, workload=name) for item in answers for name in names[: len(CHATS.chat(item.prompt))]]


class LateNoise(SimulatedMachine):
    """The last of three turns has a noise that the others have not."""

    async def send(self, arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        self.noise = 0.02
        answers = await super().send(arm, asks, load, timing)
        factors = (1.0, 1.0, self._about_one(0.5))
        return [
            replace(item, workload=name, seconds=item.seconds * factor)
            for item in answers
            for name, factor in zip(asks[0].workload.names, factors, strict=False)
        ]


def test_a_measurement_of_chats_is_carried_on_where_all_turns_of_all_arms_are_there(tmp_path: Path) -> None:
    path, design = tmp_path / "run.jsonl", Design((SPEC,), (CHATS,), BASE, requests=4)

    def measured(requests: int) -> tuple[list[RequestResult], OfChats]:
        machine = OfChats(0, {"spec": 2.0})
        work = run(replace(design, requests=requests), machine.send, journal=Journal(path, {}), clock=machine)
        return list(asyncio.run(work).results), machine

    measured(4)
    results, machine = measured(6)
    new = [(name, asked) for name, asked in machine.sent if len(asked) == 1]
    assert len([name for name, _ in new if name == "spec"]) == 2
    for name in CHATS.names:
        assert len([item for item in results if (item.arm, item.workload) == ("spec", name)]) == 6

    lines = path.read_text().splitlines(keepends=True)
    half = next(number for number, line in enumerate(lines) if '"spec"' in line and "turn 3" in line)
    path.write_text("".join([*lines[:half], *lines[half + 1 :]]))
    results, _ = measured(6)
    assert len([item for item in results if (item.arm, item.workload) == ("spec", "w, turn 3")]) == 6
