"""The verdict over the network: a server's own answers about scores, in its own form."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolkit.api.endpoint import Endpoint
from toolkit.engines.vllm.scoring import SCORING
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.connection import connect_endpoint
from toolkit.measure.judge import Judgement, judge
from toolkit.measure.load import Ask, Timing, closed_loop
from toolkit.measure.lossless import Lossless
from toolkit.measure.result import RequestResult

pytestmark = pytest.mark.serving


def test_answers_are_scored_by_the_baselines_server(endpoint: Endpoint) -> None:
    found, twisted = asyncio.run(_judged(endpoint))
    assert [verdict.holds for verdict in found.verdicts] == [True, True], found
    assert isinstance(found.lossless, Lossless)
    assert found.lossless.identical == found.lossless.pairs == 16
    assert found.lossless.floor.changes
    assert isinstance(twisted.lossless, Lossless)
    assert twisted.verdicts[0].holds is False
    assert twisted.lossless.worst == twisted.lossless.difference
    assert "'" in twisted.lossless.worst.token


async def _judged(endpoint: Endpoint) -> tuple[Judgement, Judgement]:
    """The judgement, and that of an arm with the same answers but for one wrong token."""
    assert endpoint.baseline
    workload = Workload("tiny", tuple(prompt for asked in endpoint.workloads for prompt in asked.prompts))
    async with (
        connect_endpoint(endpoint.platform, endpoint.name) as ours,
        connect_endpoint(endpoint.platform, endpoint.baseline) as theirs,
    ):
        arm, twisted = Arm("p-eagle", ours, scoring=SCORING), Arm("twisted", ours, scoring=SCORING)
        baseline = Arm("baseline", theirs, speculative=False, scoring=SCORING)
        asks, timing = [Ask(workload, index) for index in range(len(workload.prompts))], Timing(0.0, max_tokens=64)
        answers = await closed_loop(arm, asks, 4, timing)
        wrong = [replace(answer, arm=twisted.name) for answer in (_with_a_wrong_token(answers[0]), *answers[1:])]
        results = [*answers, *wrong, *await closed_loop(baseline, asks, 4, timing)]
        first, second = await judge(baseline, [arm, twisted], results)
    return first, second


def _with_a_wrong_token(result: RequestResult) -> RequestResult:
    tokens = list(result.token_ids)
    tokens[20] = tokens[20] + 1
    return replace(result, token_ids=tuple(tokens))
