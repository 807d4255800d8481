"""What `toolkit invoke` says of an answer besides its text."""

from __future__ import annotations

from toolkit.cli.endpoint_commands import about
from toolkit.endpoint.generation import Acceptance, Arrival, Generation

ANSWER = Generation("Four", 9, 100, "stop", latency=2.0, arrivals=(Arrival(0.11, 1), Arrival(2.0, 99)))


def test_tokens_rate_and_first_token() -> None:
    assert list(about(ANSWER)) == ["100 tokens, 50 tokens/s, first after 110 ms"]


def test_acceptance() -> None:
    answer = Generation("Four", 9, 100, "stop", latency=2.0, acceptance=Acceptance((1, 1)))
    assert list(about(answer)) == ["100 tokens, 50 tokens/s, first after 2000 ms, 1.50 tokens per target step"]


def test_a_cut_answer_is_not_passed_over() -> None:
    whole, cut = about(Generation("Fo", 9, 100, "length", latency=2.0, reasoning="Let me see", reasoning_tokens=60))
    assert whole.startswith("100 tokens (60 of reasoning), ")
    assert cut == "The answer was cut at 100 tokens: for more, raise --max-tokens."


def test_an_answer_that_is_all_reasoning_says_why_it_is_empty() -> None:
    _, cut = about(Generation("", 9, 100, "length", latency=2.0, reasoning="Let me see", reasoning_tokens=100))
    assert "cut at 100 tokens while the model was still reasoning" in cut
