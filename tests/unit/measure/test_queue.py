"""The simulated engine against what is known of queues, and against engines that can be reckoned by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from toolkit.measure.queue import Engine, Kind, Pace, Request, most_served, simulate
from toolkit.measure.trace import at_rate

ALONE = ((0.0, 1),)


def engine(
    *steps: tuple[int, float], k: int = 0, tokens: float = 1.0, prompt_token: float = 0.0, requests: int = 64
) -> Engine:
    pace = Pace(k, steps, prompt_token, (Kind(tokens),))
    return Engine(((requests, pace),), requests, 8192, 10**9)


def of_rate(rate: float, count: int = 20_000) -> list[Request]:
    """Requests that take one step each: their only token comes with their prompt."""
    pauses, now, found = random.Random(1), 0.0, []
    for _ in range(count):
        now += pauses.expovariate(rate)
        found.append(Request(now, 10, 1))
    return found


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.8])
def test_one_server_of_constant_service_waits_as_pollaczek_and_khinchine_say(busy: float) -> None:
    """M/D/1: the mean number in flight is p + p^2 / (2 (1 - p))."""
    waited = simulate(of_rate(busy), engine((1, 1.0), requests=1), ALONE)
    assert waited.in_flight == pytest.approx(busy + busy**2 / (2 * (1 - busy)), rel=0.08)


def test_beyond_saturation_the_wait_grows_with_the_number_of_requests() -> None:
    """Twice as many as it can serve: the last one waits for half of all."""
    few, many = (simulate(of_rate(2.0, count), engine((1, 1.0), requests=1), ALONE) for count in (1000, 2000))
    assert few.ttft.p90 == pytest.approx(0.9 * 500, rel=0.1)
    assert many.ttft.p90 == pytest.approx(2 * few.ttft.p90, rel=0.1)


@pytest.mark.parametrize("limit", [{}, {"max_requests": 8}, {"kv_tokens": 2400}])
def test_a_full_instance_serves_what_is_reckoned(limit: dict[str, int]) -> None:
    one = replace(engine((1, 0.02), (16, 0.05), k=4, tokens=2.5, prompt_token=1e-4), **limit)
    waiting = [Request(0.0, 200, 100)] * 3000
    ended = simulate(waiting, one, ALONE).e2e.p90 / 0.9
    assert most_served(waiting, one) == pytest.approx(3000 / ended, rel=0.05)


def test_first_tokens_stray_as_far_as_they_did_however_little_a_prompt_adds() -> None:
    """Of prompts that add 0.1 ms, and of others that are read in four steps, p90 is 34 ms later, and none by orders."""
    pace = Pace(0, ((1, 0.02),), 1e-6, (Kind(1.0, reading_stray=0.034 / 1.2816),))
    for tokens, steps in ((100, 1), (4000, 4)):
        requests = [Request(100.0 * number, tokens, 2) for number in range(4000)]
        waited = simulate(requests, Engine(((64, pace),), 64, 1000, 10**9), ALONE)
        assert waited.ttft.p90 == pytest.approx(steps * 0.02 + tokens * 1e-6 + 0.034, rel=0.03)
        assert waited.ttft.p99
        assert waited.ttft.p99 < 0.2


def test_a_request_alone_is_reckoned_by_hand() -> None:
    """100 tokens of prompt take 0.1 s more than a step; 3 tokens a step need 4 steps for the other 12."""
    one = engine((1, 0.02), (8, 0.04), k=4, tokens=3.0, prompt_token=0.001)
    waited = simulate([Request(5.0, 100, 13)], one, ALONE)
    assert waited.ttft.p90 == pytest.approx(0.12)
    assert waited.tpot
    assert waited.tpot.p90 == pytest.approx(4 * 0.02 / 12)
    assert waited.e2e.p90 == pytest.approx(0.2)


def test_only_a_request_to_an_idle_engine_waits_for_it_to_wake() -> None:
    """The second comes to one that decodes: to the end of its step, 0.01 s, and a step of its own."""
    pace = Pace(0, ((1, 0.02),), 0.0, (Kind(1.0),), waking=0.5)
    one = Engine(((64, pace),), 64, 8192, 10**9)
    idle, beside = Request(0.0, 10, 101), Request(1.01, 10, 2)
    assert simulate([idle, Request(10.0, 10, 2)], one, ALONE).ttft.p50 == pytest.approx(0.52)
    assert simulate([idle, beside], one, ALONE).ttft.p50 == pytest.approx((0.52 + 0.03) / 2)


def test_a_prompt_that_arrives_in_a_step_waits_for_its_end_and_delays_the_others() -> None:
    one = engine((1, 0.1), (2, 0.2), prompt_token=0.01)
    waited = simulate([Request(0.0, 10, 3), Request(0.05, 20, 1)], one, ALONE)
    # 0 to 0.2: the first prompt; 0.2 to 0.6: the second prompt beside one that decodes; 0.6 to 0.7: the last token.
    assert waited.e2e.p50 == pytest.approx((0.7 + 0.55) / 2)


def test_a_request_joins_at_the_end_of_the_step_that_runs_however_long_the_others_still_take() -> None:
    waited = simulate([Request(0.0, 1, 100), Request(10.5, 1, 1)], engine((1, 1.0)), ALONE)
    assert waited.ttft.p50 == pytest.approx((1.0 + 1.5) / 2)


def test_a_step_between_two_measured_sizes_lies_on_their_line_and_so_does_one_beyond() -> None:
    pace = Pace(0, ((1, 1.0), (4, 4.0), (8, 6.0)), 0.0, (Kind(1.0),))
    assert [pace.seconds(count) for count in (0, 1, 2, 4, 6, 8, 10)] == [1.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0]


def test_a_long_prompt_is_read_in_parts() -> None:
    one = replace(engine((1, 0.1), prompt_token=0.001), max_tokens=100)
    assert simulate([Request(0.0, 250, 1)], one, ALONE).ttft.p90 == pytest.approx(3 * 0.1 + 0.25)


@pytest.mark.parametrize("limit", [{"max_requests": 1}, {"kv_tokens": 25}])
def test_what_is_full_lets_the_next_one_wait(limit: dict[str, int]) -> None:
    one = replace(engine((1, 1.0)), **limit)
    waited = simulate([Request(0.0, 10, 4), Request(0.0, 10, 4)], one, ALONE)
    assert waited.e2e.p50 == pytest.approx((4 + 8) / 2)
    assert waited.largest_step == 1


def test_more_traffic_is_never_faster_and_more_instances_never_slower() -> None:
    one = engine((1, 0.02), (16, 0.05), k=4, tokens=2.5, prompt_token=1e-4)
    by_rate = [simulate(at_rate(rate, 200, 100), one, ALONE) for rate in (0.5, 2.0, 4.0, 8.0)]
    assert [each.ttft.p90 for each in by_rate] == sorted(each.ttft.p90 for each in by_rate)
    assert [each.e2e.p90 for each in by_rate] == sorted(each.e2e.p90 for each in by_rate)
    by_count = [simulate(at_rate(8.0, 200, 100), one, ((0.0, count),)).e2e.p90 for count in (1, 2, 4)]
    assert by_count == sorted(by_count, reverse=True)


def test_every_request_ends_whatever_the_engine_and_the_traffic_are() -> None:
    chance = random.Random(5)
    for _ in range(200):
        pace = Pace(3, ((1, 0.01), (8, chance.choice([0.01, 0.05]))), 1e-3, (Kind(2.5, 0.5), Kind(1.0)))
        limits = chance.randint(1, 16), chance.choice([8, 2048]), chance.choice([10, 500])
        one = Engine(((chance.randint(1, 4), pace), (16, replace(pace, k=0))), *limits)
        moments = sorted(chance.choice([0.0, chance.uniform(0, 5)]) for _ in range(30))
        requests = [Request(at, chance.randint(1, 200), chance.randint(1, 100)) for at in moments]
        waited = simulate(requests, one, ((0.0, chance.randint(1, 3)), (2.5, chance.randint(1, 3))))
        assert waited.ttft.samples == waited.e2e.samples == len(requests)


def test_instances_that_come_later_serve_from_then_on() -> None:
    requests = [Request(float(second), 10, 1) for second in range(20)]
    late = simulate(requests, engine((1, 2.0), requests=1), ((0.0, 1), (10.0, 4)))
    alone = simulate(requests, engine((1, 2.0), requests=1), ALONE)
    assert late.e2e.p90 < alone.e2e.p90 / 1.5


def test_a_k_by_the_number_of_requests_changes_between_steps() -> None:
    fast, slow = (Pace(k, ((1, 1.0),), 0.0, (Kind(tokens),)) for k, tokens in ((3, 4.0), (0, 1.0)))
    both = Engine(((1, fast), (64, slow)), 64, 8192, 10**9)
    assert simulate([Request(0.0, 1, 5)], both, ALONE).e2e.p90 == pytest.approx(2.0)
    assert simulate([Request(0.0, 1, 5)] * 2, both, ALONE).e2e.p50 == pytest.approx((5 + 6) / 2)
