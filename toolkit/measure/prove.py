"""Prove an endpoint with a few requests: is speculation on, accepted and lossless, and how much faster is it?"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

from toolkit import documents
from toolkit.endpoint.generation import Acceptance, Generation, Invoker, Stream, chat_body
from toolkit.errors import InvocationError
from toolkit.text import html_list, html_table, inert

# Below this the drafter only costs time: even random drafts are accepted more often.
_MIN_ACCEPTANCE_LENGTH = 1.05
# Methods that draft from the text so far have no draft in many steps; other methods only in an answer's first step.
_MOST_STEPS = 0.8
# Below this, the machine may have been faster by chance.
_MIN_SPEEDUP = 1.05
# A proof sends only the first few prompts of a set, so results vary; a smaller share than this is not by chance.
_BAND = 0.6
_WARM_UP = {"max_tokens": 8}
_NOTHING_TO_COMPARE = "the engine returned no token ids to compare"

_SECONDS_PER_HOUR = 3600

DEFAULT_PROMPTS: Mapping[str, Sequence[str]] = {
    "general": (
        "Write a Python function that returns the n-th Fibonacci number.",
        "List the planets of the solar system with one fact each.",
        "Explain in three sentences what a hash table is.",
        "Write a short story about a lighthouse keeper.",
    )
}
"""Prompts to send if the recipe has no workloads."""


@dataclass(frozen=True)
class ArmResult:
    """One arm on one workload at concurrency 1. Times are in seconds, medians; `speedup` is over the baseline."""

    workload: str
    arm: Literal["speculative", "baseline"]
    requests: int
    tokens_per_second: float
    ttft: float
    itl: float
    acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] = ()
    identical: int | None = None
    speedup: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim, and whether it holds."""

    claim: str
    holds: bool
    detail: str


@dataclass(frozen=True)
class Proof:
    """The result of a few requests. Truthy if every verdict holds.

    `price_per_hour` is the price of one endpoint in US dollars; None or 0 if unknown or free.
    """

    endpoint: str
    baseline: str | None
    arms: tuple[ArmResult, ...]
    verdicts: tuple[Verdict, ...]
    price_per_hour: float | None = None

    @property
    def ok(self) -> bool:
        """Whether every verdict holds."""
        return all(verdict.holds for verdict in self.verdicts)

    @property
    def costs(self) -> tuple[str, ...]:
        """The price of a million output tokens at this load, one line for each arm; empty if the price is unknown."""
        if not self.price_per_hour:
            return ()
        million = [dollars_per_million_tokens(self.price_per_hour, arm.tokens_per_second) for arm in self.arms]
        return tuple(
            f"{arm.workload}, {arm.arm}: {price:.2f} $ per million output tokens with one request at a time"
            for arm, price in zip(self.arms, million, strict=True)
        )

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit prove --json`."""
        return {**asdict(self), "ok": self.ok, "costs": self.costs}

    def __repr__(self) -> str:
        lines = [f"  {'yes' if v.holds else 'NO '} {v.claim}: {v.detail}" for v in self.verdicts]
        arms = [f"  {a.workload:12} {a.arm:12} {a.tokens_per_second:6.0f} tokens/s" for a in self.arms]
        head = f"<Proof {self.endpoint}: {'holds' if self.ok else 'FAILS'}>"
        return inert("\n".join([head, *lines, *arms, *(f"  {cost}" for cost in self.costs)]))

    def _repr_html_(self) -> str:
        claims = html_list(f"{'✔' if v.holds else '✘'} {v.claim}: {v.detail}" for v in self.verdicts)
        return claims + html_table(map(table_row, self.arms), TABLE_HEAD) + html_list(self.costs)


TABLE_HEAD = ("workload", "arm", "tokens/s", "speedup", "ITL", "TTFT", "acceptance length", "identical")


def dollars_per_million_tokens(price_per_hour: float, output_tokens_per_second: float) -> float:
    """US dollars per million output tokens at a constant throughput."""
    return price_per_hour / (output_tokens_per_second * _SECONDS_PER_HOUR) * 1e6


def table_row(arm: ArmResult) -> tuple[str, ...]:
    """One arm as table cells, in the order of TABLE_HEAD."""
    return (
        arm.workload,
        arm.arm,
        f"{arm.tokens_per_second:.0f}",
        f"{arm.speedup:.2f}x" if arm.speedup else "",
        f"{arm.itl * 1000:.2f} ms",
        f"{arm.ttft * 1000:.0f} ms",
        f"{arm.acceptance_length:.2f}" if arm.acceptance_length else "",
        f"{arm.identical}/{arm.requests}" if arm.identical is not None else "",
    )


def prove(
    platform: Invoker,
    endpoint: str,
    baseline: str | None = None,
    workloads: Mapping[str, Sequence[str]] = DEFAULT_PROMPTS,
    expected: Mapping[str, float] | None = None,
    max_tokens: int = 256,
    pause: Callable[[], None] = lambda: None,
    price_per_hour: float | None = None,
    reports_drafts: bool = True,
) -> Proof:
    """Send every prompt of every workload greedily, one request at a time, to the two arms in turn.

    `baseline` is the endpoint without speculation. Without it, the endpoint's own target scores the output instead, and
    no speedup is known. `expected` are published acceptance lengths by workload. `pause` is called before each change
    of arm; `price_per_hour` is the price of one endpoint in US dollars. An engine that does not count its draft tokens
    (`reports_drafts`) is judged by its speed. Raises InvocationError or EndpointNotFound.
    """
    for name in filter(None, (endpoint, baseline)):
        _ask(platform, name, "warm up", _WARM_UP)
    measured = [
        _measure(platform, endpoint, baseline, workload, prompts, max_tokens, pause)
        for workload, prompts in workloads.items()
    ]
    arms = tuple(arm for item in measured for arm in _arms(item))
    on = _speculation_verdicts(measured, expected or {}) if reports_drafts else [_speed_verdict(arms)]
    verdicts = (*on, _lossless_verdict(measured, baseline))
    return Proof(endpoint, baseline, arms, verdicts, price_per_hour)


@dataclass(frozen=True)
class _Measured:
    """Both arms' answers to a workload; `reference` is empty without a baseline.

    `faults` has an item for each answer: where it differs from the target's own output, or None.
    """

    workload: str
    answers: Sequence[Generation]
    reference: Sequence[Generation]
    faults: Sequence[str | None]

    @property
    def target_steps(self) -> int:
        """Target steps of all answers. Each step yields one token besides the accepted drafts."""
        accepted = sum(answer.acceptance.accepted for answer in self.answers if answer.acceptance)
        return sum(answer.completion_tokens for answer in self.answers) - accepted

    @property
    def acceptance(self) -> Acceptance | None:
        """Acceptance over all answers; None if the engine reports no drafts."""
        counted = [answer.acceptance for answer in self.answers if answer.acceptance and answer.acceptance.steps]
        return reduce(add, counted) if counted else None


def _measure(
    platform: Invoker,
    endpoint: str,
    baseline: str | None,
    workload: str,
    prompts: Sequence[str],
    max_tokens: int,
    pause: Callable[[], None],
) -> _Measured:
    options = {"max_tokens": max_tokens}
    if baseline is None:
        answers = [_ask(platform, endpoint, prompt, options) for prompt in prompts]
        faults = [_refused_token(platform, endpoint, answer) for answer in answers]
        return _Measured(workload, answers, (), faults)
    pairs = [
        _ask_both(platform, (endpoint, baseline), prompt, options, turn, pause) for turn, prompt in enumerate(prompts)
    ]
    answers, reference = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return _Measured(workload, answers, reference, [_difference(*pair) for pair in pairs])


def _ask(platform: Invoker, endpoint: str, prompt: str, options: Mapping[str, Any]) -> Generation:
    return Stream(platform.stream(endpoint, chat_body(prompt, options))).result


def _ask_both(
    platform: Invoker,
    arms: tuple[str, str],
    prompt: str,
    options: Mapping[str, Any],
    turn: int,
    pause: Callable[[], None],
) -> tuple[Generation, Generation]:
    """Both arms' answers. The first arm alternates, so that a drift in machine speed affects both alike."""
    answers = {}
    for name in reversed(arms) if turn % 2 else arms:
        pause()
        answers[name] = _ask(platform, name, prompt, options)
    return answers[arms[0]], answers[arms[1]]


def _difference(answer: Generation, reference: Generation) -> str | None:
    """Where the answer first differs from the reference; None if nowhere."""
    if answer.token_ids or reference.token_ids:
        return _first_difference("token", answer.token_ids, reference.token_ids)
    return _first_difference("character", answer.text, reference.text)  # engines before vLLM 0.10.2 return no token ids


def _first_difference(unit: str, ours: Sequence[Any], theirs: Sequence[Any]) -> str | None:
    if ours == theirs:
        return None
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)  # noqa: B905
    position = min(len(ours), len(theirs)) if same is None else same
    return f"differs from the baseline at {unit} {position + 1}"


def _refused_token(platform: Invoker, endpoint: str, answer: Generation) -> str | None:
    """The first token that is not the target's top choice, or None. The target scores the answer as a prompt."""
    if not answer.token_ids:
        return _NOTHING_TO_COMPARE
    body = {
        "prompt": [*answer.prompt_token_ids, *answer.token_ids],
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 1,
    }
    scores = _scores(endpoint, platform.invoke(endpoint, body))[len(answer.prompt_token_ids) :]
    if len(scores) != len(answer.token_ids):
        raise InvocationError(f"{endpoint} scored {len(scores)} of {len(answer.token_ids)} tokens")
    for position, (token, score) in enumerate(zip(answer.token_ids, scores, strict=True)):
        found = (score or {}).get(str(token))
        if found is None:
            raise InvocationError(f"{endpoint} did not score token {position + 1}")
        if found.rank != 1:
            return f"token {position + 1} is not the target's top choice"
    return None


@dataclass(frozen=True)
class _Score:
    rank: int | None


@dataclass(frozen=True)
class _Completion:
    prompt_logprobs: list[dict[str, _Score] | None]


@dataclass(frozen=True)
class _Completions:
    """A completion's answer: the scores of the tokens of its prompt."""

    choices: list[_Completion]


def _scores(endpoint: str, document: Mapping[str, Any]) -> list[dict[str, _Score] | None]:
    try:
        (choice,) = documents.fit(_Completions, document).choices
    except ValueError as error:
        raise InvocationError(f"{endpoint}: its answer has no scores of a prompt: {error}") from error
    return choice.prompt_logprobs


def _arms(measured: _Measured) -> Iterator[ArmResult]:
    acceptance = measured.acceptance
    speculative = replace(
        _timed(measured.workload, "speculative", measured.answers),
        acceptance_length=acceptance.length if acceptance else None,
        acceptance_per_position=acceptance.per_position if acceptance else (),
        identical=measured.faults.count(None),
    )
    if not measured.reference:
        yield speculative
        return
    baseline = _timed(measured.workload, "baseline", measured.reference)
    yield replace(speculative, speedup=speculative.tokens_per_second / baseline.tokens_per_second)
    yield baseline


def _timed(workload: str, arm: Literal["speculative", "baseline"], answers: Sequence[Generation]) -> ArmResult:
    return ArmResult(
        workload=workload,
        arm=arm,
        requests=len(answers),
        tokens_per_second=_rate(answers),
        ttft=statistics.median(answer.ttft for answer in answers),
        itl=statistics.median(answer.tpot for answer in answers),
    )


def _rate(answers: Sequence[Generation]) -> float:
    """Output tokens per second, including the time to first token."""
    tokens = sum(answer.completion_tokens for answer in answers)
    if not tokens:
        raise InvocationError("the endpoint generated no tokens", hint="See the container's log: toolkit logs NAME")
    return tokens / sum(answer.latency for answer in answers)


def _speculation_verdicts(measured: Sequence[_Measured], expected: Mapping[str, float]) -> Iterator[Verdict]:
    counted = {item.workload: item.acceptance for item in measured if item.acceptance}
    if not counted:
        yield from _nothing_drafted(measured)
        return
    steps, all_steps = sum(item.steps for item in counted.values()), sum(item.target_steps for item in measured)
    partly = steps < _MOST_STEPS * all_steps
    of_all, among = (f" of {all_steps}", " that verified drafts") if partly else ("", "")
    yield Verdict("speculation is on", True, f"{steps}{of_all} target steps verified drafts")
    lengths = {workload: item.length for workload, item in counted.items()}
    shown = ", ".join(f"{workload} {length:.2f}" for workload, length in lengths.items())
    accepted = max(lengths.values()) >= _MIN_ACCEPTANCE_LENGTH
    yield Verdict("drafts are accepted", accepted, f"tokens per target step{among}: {shown}")
    for workload in sorted(lengths.keys() & expected.keys()):
        claim = f"acceptance on {workload} is as published"
        detail = f"{lengths[workload]:.2f} measured, {expected[workload]:.2f} in the recipe's evidence"
        yield Verdict(claim, lengths[workload] >= _BAND * expected[workload], detail)


def _nothing_drafted(measured: Sequence[_Measured]) -> Iterator[Verdict]:
    """Verdicts when nothing was drafted: drafting is off, or drafting from the text so far found no match."""
    answers = [answer for item in measured for answer in item.answers]
    if all(answer.acceptance is None for answer in answers):
        yield Verdict(
            "speculation is on",
            False,
            "the engine reports no draft tokens at all: check `speculation` and the engine's log",
        )
        return
    yield Verdict("speculation is on", True, "the engine counts draft tokens")
    yield Verdict("drafts are accepted", False, f"nothing was drafted in {len(answers)} answers")


def _speed_verdict(arms: Sequence[ArmResult]) -> Verdict:
    """For an engine that does not count draft tokens: if it is no faster than its baseline, it drafts nothing."""
    claim, speedups = "speculation is on", {arm.workload: arm.speedup for arm in arms if arm.speedup}
    silent = "the engine reports no draft tokens"
    if not speedups:
        return Verdict(
            claim, False, f"{silent}, and no baseline exists to compare with. Run: toolkit deploy RECIPE --baseline"
        )
    shown = ", ".join(f"{workload} {speedup:.2f}x" for workload, speedup in speedups.items())
    return Verdict(claim, max(speedups.values()) >= _MIN_SPEEDUP, f"{silent}; tokens/s over the baseline's: {shown}")


def _lossless_verdict(measured: Sequence[_Measured], baseline: str | None) -> Verdict:
    judge = f"those of {baseline}" if baseline else "the target's own top choices"
    faults = [
        f"{item.workload} prompt {number}: {fault}"
        for item in measured
        for number, fault in enumerate(item.faults, 1)
        if fault
    ]
    requests = sum(len(item.faults) for item in measured)
    same = f"{requests - len(faults)} of {requests} greedy answers are {judge}"
    return Verdict("the output is the target's own", not faults, "; ".join([same, *faults[:3]]))
