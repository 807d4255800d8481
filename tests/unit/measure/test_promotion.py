"""Which new head is promoted: two servers of known speeds are measured against each other, and the figures decide."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from reports import arm
from streaming_server import DONE, Answer, Answers, Part, Served, document, event, streaming

from toolkit.api.measuring import bench
from toolkit.apply.progress import Silent
from toolkit.measure.measurement import Gain, Interval, Verdict
from toolkit.measure.pays import Decision, decide
from toolkit.measure.report import BenchReport

TOKENS = 20
STEP = 0.008  # long beside what a busy machine adds
PROMPTS = "\n".join(f'{{"prompt": "Question {number}"}}' for number in range(8))

# What each prompt's steps accept: some prompts are easier than others.
BEFORE = [(1, 1, 2), (2, 1), (1, 2), (1, 1)]
MORE = [(6, 7), (7, 6, 6), (6, 6), (5, 6)]


def head(accepted: Sequence[Sequence[int]], step: Callable[[], float] = lambda: STEP) -> Answers:
    """A server whose steps each take `step()` seconds and bring the accepted drafts and one token more."""

    def answer(request: Served) -> Answer:
        if request.path.endswith("/models"):
            return document({"data": [{"id": "chat"}]})
        if not request.path.endswith("/chat/completions"):
            return document({"detail": "Not Found"}, 404)
        number = request.body["messages"][0]["content"].rpartition(" ")[2]
        prompt = int(number) if number.isdigit() else 0  # what shows which fields a server refuses has none
        return Answer((*steps(accepted[prompt % len(accepted)], step), DONE))

    return answer


def steps(pattern: Sequence[int], step: Callable[[], float]) -> list[Part]:
    lengths = [1, *(1 + pattern[number % len(pattern)] for number in range(TOKENS))]
    ends = sorted({min(end, TOKENS) for end in accumulate(lengths)})
    histogram = [0] * 8
    parts = [event(step(), _content([0]))]
    for first, last in pairwise(ends):
        histogram[last - first - 1] += 1
        parts.append(event(step(), _content(range(first, last))))
    usage = {"prompt_tokens": 2, "completion_tokens": ends[-1]}
    metrics = {"speculative_decoding": {"acceptance_histogram": histogram}}
    finish = {"choices": [{"delta": {"content": ""}, "finish_reason": "length"}]}
    return [*parts, event(0.0, finish, {"choices": [], "usage": usage, "metrics": metrics})]


def _content(tokens: Sequence[int]) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": "".join(map(str, tokens))}, "token_ids": list(tokens)}]}


@pytest.fixture
def measure(tmp_path: Any) -> Callable[[Answers, Answers], Decision]:
    prompts = tmp_path / "held-out.jsonl"
    prompts.write_text(PROMPTS)

    def run(new: Answers, old: Answers) -> Decision:
        with streaming(new) as candidate, streaming(old) as live:
            report = bench(
                candidate.url,
                baseline=live.url,
                workloads=[str(prompts)],
                concurrency=(1,),
                requests=8,
                progress=Silent(),
            )
        return decide(report)

    return run


Measure = Callable[[Answers, Answers], Decision]


def test_a_head_of_which_more_is_accepted_in_as_many_seconds_a_step_is_better(measure: Measure) -> None:
    found = measure(head(MORE), head(BEFORE))
    assert found.promote, found.reason
    assert found.gain
    assert 2 < found.gain.acceptance.low < found.gain.acceptance.high < 4


def test_a_head_of_which_less_is_accepted_is_worse(measure: Measure) -> None:
    found = measure(head(BEFORE), head(MORE))
    assert not found.promote
    assert "surely slower" in found.reason or "surely fewer of its drafts" in found.reason


def test_the_same_head_again_is_not_better(measure: Measure) -> None:
    assert not measure(head(BEFORE), head(BEFORE)).promote


def test_more_is_accepted_but_each_step_takes_longer(measure: Measure) -> None:
    """Such as a head of more layers: the tokens come no faster."""
    found = measure(head(MORE, lambda: 4 * STEP), head(BEFORE))
    assert not found.promote
    assert found.gain
    assert found.gain.acceptance.low > 1


def test_noise_promotes_nothing(measure: Measure) -> None:
    """Steps of 4 or 32 ms, so the mean of a few answers says little; of two prompts in four, a bit more is accepted."""
    chance = random.Random(1)
    slightly = [*BEFORE[:2], (1, 2, 2), (1, 2)]
    found = measure(head(slightly, lambda: chance.choice((STEP / 2, 4 * STEP))), head(BEFORE))
    assert not found.promote


def test_a_head_that_fails_in_the_middle_is_not_promoted(measure: Measure) -> None:
    better, asked = head(MORE), []

    def fails(request: Served) -> Answer:
        asked.append(request)
        return document({"detail": "CUDA error"}, 500) if len(asked) == 10 else better(request)

    found = measure(fails, head(BEFORE))
    assert not found.promote
    assert found.reason == "1 more of the requests to it failed than of those to the head before"


# ---- the decision alone ----

SURELY = Interval(1.3, 1.2, 1.4)
PERHAPS = Interval(1.1, 0.9, 1.3)
WORSE = Interval(0.8, 0.7, 0.9)


def gains_on(workload: str, *gains: tuple[Interval, Interval]) -> tuple[Gain, ...]:
    return tuple(Gain(workload, 2**load, "speculative", *ratios) for load, ratios in enumerate(gains))


def report(*gains: tuple[Interval, Interval], noise: float = 1.0, **more: Any) -> BenchReport:
    found = gains_on("held-out", *gains)
    arms = tuple(arm(name, "held-out", 1, 50.0) for name in ("baseline", "speculative"))
    made = BenchReport("chat", (), arms, noise=Interval(noise, noise / 2, noise * 2), gains=found)
    return replace(made, **more)


def test_a_request_that_neither_head_could_answer_is_no_reason() -> None:
    made = report((SURELY, SURELY))
    assert decide(replace(made, arms=tuple(replace(row, failed=2) for row in made.arms))).promote
    assert not decide(
        replace(made, arms=tuple(replace(row, failed=row.arm != "baseline") for row in made.arms))
    ).promote


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (report((SURELY, SURELY)), ""),
        (report((SURELY, SURELY), (PERHAPS, PERHAPS)), ""),
        (report((SURELY, PERHAPS)), "acceptance length is not surely higher"),
        (report((PERHAPS, SURELY)), "time per output token is not surely shorter"),
        (report((SURELY, PERHAPS), (PERHAPS, SURELY)), "not surely higher"),
        (report((SURELY, SURELY), (WORSE, SURELY)), "surely slower at one load"),
        (report((SURELY, SURELY), (SURELY, WORSE)), "fewer of its drafts"),
        (report((SURELY, SURELY), noise=1.25), "not by more than the noise"),
        (report((SURELY, SURELY), complete=False), "not finished"),
        (report(), "too few answers"),
        (report((SURELY, SURELY), verdicts=(Verdict("lossless", False, "other tokens"),)), "its answers are not those"),
    ],
)
def test_both_figures_have_to_be_surely_better_at_one_load_and_worse_at_none(
    measured: BenchReport, reason: str
) -> None:
    found = decide(measured)
    assert found.promote == (not reason)
    assert reason in found.reason


SLIGHTLY_LESS = Interval(0.97, 0.9, 1.05)
MUCH_LESS_PERHAPS = Interval(0.8, 0.5, 1.3)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (gains_on("code", (SLIGHTLY_LESS, SLIGHTLY_LESS)), ""),
        (
            gains_on("code", (SURELY, WORSE)),
            "on the workload code its acceptance length is 0.80 times (0.70-0.90) that",
        ),
        (gains_on("code", (SURELY, SURELY), (SURELY, WORSE)), "on the workload code its acceptance length is 0.80"),
        (gains_on("code", (WORSE, SURELY)), "on the workload code its tokens per second are 0.80 times (0.70-0.90)"),
        (gains_on("code", (SURELY, MUCH_LESS_PERHAPS)), "on the workload code its acceptance length is 0.80 times"),
        ((), "too few answers to the workload code could be compared"),
    ],
)
def test_a_gain_on_the_traffic_does_not_make_up_for_a_loss_on_the_owners_workloads(
    own: tuple[Gain, ...], reason: str
) -> None:
    measured = report((SURELY, SURELY))
    found = decide(replace(measured, gains=(*measured.gains, *own)), ["code"])
    assert found.promote == (not reason)
    assert reason in found.reason
    assert found.gain == measured.gains[0]


def test_a_gain_on_the_owners_workloads_alone_promotes_nothing() -> None:
    measured = report((PERHAPS, PERHAPS))
    found = decide(replace(measured, gains=(*measured.gains, *gains_on("code", (SURELY, SURELY)))), ["code"])
    assert not found.promote
