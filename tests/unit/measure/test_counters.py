"""Acceptance from an engine's counters, for a block of requests."""

from __future__ import annotations

import asyncio

import pytest

from toolkit.endpoint.generation import Acceptance
from toolkit.measure.arm import Connection
from toolkit.measure.load import count_drafts
from toolkit.measure.result import RequestResult


class Counters:
    """Pages of an engine's counters, in the order in which they are read."""

    def __init__(self, *pages: Acceptance | None) -> None:
        self.pages = list(pages)

    async def acceptance(self) -> Acceptance | None:
        return self.pages.pop(0)


def result(tokens: int, acceptance: Acceptance | None = None) -> RequestResult:
    return RequestResult(
        "a", "w", 0, 0, 1, 0.0, 1.0, "successful", output_tokens=tokens, prompt_tokens=1, acceptance=acceptance
    )


def after(counters: Counters, *results: RequestResult) -> list[Acceptance | None]:
    async def block() -> list[RequestResult]:
        return list(results)

    return [item.acceptance for item in asyncio.run(count_drafts(counters, block(), []))]


def test_a_single_request_gets_what_the_counters_grew_by() -> None:
    counters = Counters(Acceptance((10, 5, 5)), Acceptance((12, 5, 12)))
    assert after(counters, result(23)) == [Acceptance((2, 0, 7))]


def test_requests_of_a_block_share_it_by_their_tokens() -> None:
    shares = after(Counters(Acceptance(), Acceptance((5, 7, 20))), result(10), result(30), result(0))
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] + shares[1] == Acceptance((5, 7, 20))
    assert shares[0].steps / shares[1].steps == pytest.approx(1 / 3, abs=0.05)


def test_what_the_engine_says_of_each_answer_is_better() -> None:
    counters = Counters(Acceptance((1,)), Acceptance((9,)))
    assert after(counters, result(3, Acceptance((0, 1)))) == [Acceptance((0, 1))]
    assert len(counters.pages) == 1, "a page costs the engine time"


@pytest.mark.parametrize("pages", [(None,), (Acceptance((1,)), None)])
def test_without_counters_there_is_no_acceptance(pages: tuple[Acceptance | None, ...]) -> None:
    assert after(Counters(*pages), result(3)) == [None]


def test_a_block_without_a_token() -> None:
    assert after(Counters(Acceptance((1,)), Acceptance((9,))), result(0)) == [None]


def test_an_engine_that_was_started_anew_tells_nothing_of_the_block() -> None:
    assert after(Counters(Acceptance((100, 50)), Acceptance((1, 2))), result(20)) == [None]


def test_an_engine_with_counters_alone_is_asked_at_every_block() -> None:
    counters = Counters(Acceptance(), Acceptance((1, 1)), Acceptance((1, 1)), Acceptance((3, 5)))
    needless: list[Connection] = []

    async def block() -> list[RequestResult]:
        return [result(12)]

    async def blocks() -> list[Acceptance | None]:
        return [item.acceptance for _ in range(2) for item in await count_drafts(counters, block(), needless)]

    assert asyncio.run(blocks()) == [Acceptance((1, 1)), Acceptance((2, 4))]
