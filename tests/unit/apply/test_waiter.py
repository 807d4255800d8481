"""Waiting: in service, failed, rolled back, too long, gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from fakes import FakeClock, Told

from toolkit.apply.waiter import EndpointStatus, LogLine, wait_deleted, wait_in_service, wait_settled
from toolkit.errors import EndpointFailed, EndpointNotFound, WaitTimeout

LOGS = Path(__file__).parents[2] / "golden" / "logs"
NEW, OLD = "e-new", "e-old"


class Scripted:
    """Endpoints that go through statuses, one a look, and stay in the last; None is "no such endpoint"."""

    poll_seconds = 2.0

    def __init__(self, statuses: Mapping[str, Sequence[tuple[str, str] | None]], log: Sequence[LogLine] = ()) -> None:
        self._left = {name: list(each) for name, each in statuses.items()}
        self._log = log

    def status(self, endpoint: str) -> EndpointStatus:
        left = self._left[endpoint]
        now = left.pop(0) if len(left) > 1 else left[0]
        if now is None:
            raise EndpointNotFound(f"there is no endpoint {endpoint}")
        return EndpointStatus(endpoint, *now, failure_reason="did not pass the ping health check")

    def logs(self, endpoint: str) -> Iterator[LogLine]:
        return iter(self._log)


def lines(stream: str, texts: Sequence[str]) -> list[LogLine]:
    return [LogLine(stream, float(second), text) for second, text in enumerate(texts)]


def wait(platform: Scripted, *endpoints: str, timeout: float = 60) -> tuple[FakeClock, Told]:
    clock, told = FakeClock(), Told()
    wait_in_service(platform, dict.fromkeys(endpoints or ("e",), NEW), told, timeout, clock, clock.sleep)
    return clock, told


def test_an_endpoint_comes_up() -> None:
    clock, told = wait(Scripted({"e": [("Creating", NEW), ("Creating", NEW), ("InService", NEW)]}))
    assert clock.seconds == 4.0
    assert told.said == ["e is in service"]


def test_an_update_counts_only_when_the_new_configuration_runs() -> None:
    clock, _ = wait(Scripted({"e": [("Updating", OLD), ("Updating", OLD), ("InService", NEW)]}))
    assert clock.seconds == 4.0


def test_two_endpoints_are_waited_for_together() -> None:
    creating, ready = ("Creating", NEW), ("InService", NEW)
    clock, told = wait(Scripted({"a": [creating, ready], "b": [creating, creating, ready]}), "a", "b")
    assert clock.seconds == 4.0
    assert told.said == ["a is in service", "b is in service"]


def test_nothing_to_wait_for_takes_no_time() -> None:
    clock = FakeClock()
    wait_in_service(Scripted({}), {}, Told(), 60, clock, clock.sleep)
    assert clock.seconds == 0


def test_a_failure_tells_the_cause_and_the_newest_containers_last_lines() -> None:
    log = (LOGS / "no-mask-token.txt").read_text().splitlines()
    platform = Scripted({"e": [("Creating", NEW), ("Failed", NEW)]}, [*lines("v/1", ["older"] * 3), *lines("v/2", log)])
    with pytest.raises(EndpointFailed) as caught:
        wait(platform)
    assert caught.value.message.startswith(
        "e failed: ValueError: For parallel drafting, the draft model config must have"
    )
    assert caught.value.hint == "The drafter has no mask token: use a P-EAGLE or PARD drafter."
    assert caught.value.logs == tuple(log[-15:])


def test_what_an_older_container_died_of_is_not_the_cause() -> None:
    log = [*lines("v/1", ["OSError: [Errno 28] No space left on device"]), *lines("v/2", ["KeyError: 'layers.7'"])]
    with pytest.raises(EndpointFailed, match=r"e failed: KeyError: 'layers\.7'"):
        wait(Scripted({"e": [("Failed", NEW)]}, log))


def test_a_failure_without_a_word_from_the_container_gives_sagemakers_reason() -> None:
    with pytest.raises(EndpointFailed) as caught:
        wait(Scripted({"e": [("Failed", NEW)]}))
    assert str(caught.value) == "e failed: did not pass the ping health check\n  The container's log: toolkit logs e"


def test_an_update_that_was_rolled_back_is_a_failure() -> None:
    platform = Scripted(
        {"e": [("Updating", OLD), ("RollingBack", OLD), ("InService", OLD)]}, lines("v/1", ["ValueError: x"])
    )
    with pytest.raises(EndpointFailed, match="e was rolled back and still runs e-old: ValueError: x"):
        wait(platform)


def test_it_does_not_wait_for_ever() -> None:
    with pytest.raises(WaitTimeout) as caught:
        wait(Scripted({"a": [("InService", NEW)], "b": [("Creating", NEW)]}), "a", "b", timeout=30)
    assert str(caught.value) == (
        "b not in service after 30 s\n"
        "  See: toolkit logs b. The same command goes on waiting; toolkit destroy b gives up."
    )
    assert isinstance(caught.value, TimeoutError)


def test_an_endpoint_that_vanishes_ends_the_waiting() -> None:
    with pytest.raises(EndpointNotFound, match="there is no endpoint e"):
        wait(Scripted({"e": [("Creating", NEW), None]}))


def test_progress_tells_what_vllm_is_doing() -> None:
    """A real log of vLLM 0.32.0 with a P-EAGLE head, seen line by line."""

    class Growing(Scripted):
        seen = 0

        def logs(self, endpoint: str) -> Iterator[LogLine]:
            self.seen += 1
            return iter(lines("v/1", log[: self.seen]))

    log = (LOGS / "starts.txt").read_text().splitlines()
    _, told = wait(Growing({"e": [*[("Creating", NEW)] * (len(log) + 1), ("InService", NEW)]}), timeout=9999)
    assert list(dict.fromkeys(told.updates)) == [
        "e: provisioning",
        "e: starting the engine",
        "e: loading the target",
        "e: making the KV cache",
        "e: loading the drafter",
        "e: warming up",
        "e: starting the server",
        "e: answering",
    ]


@pytest.mark.parametrize("status", ["Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"])
def test_an_endpoint_under_way_is_let_settle_before_it_is_changed(status: str) -> None:
    clock, told = FakeClock(), Told()
    platform = Scripted({"e": [(status, OLD), (status, OLD), ("InService", OLD)]})
    wait_settled(platform, "e", 60, told, clock, clock.sleep)
    assert clock.seconds == 4.0
    assert told.updates[0] == f"e is {status.lower()}; it can be changed when that is over"


@pytest.mark.parametrize("settled", [("InService", OLD), ("Failed", OLD), ("OutOfService", OLD), None])
def test_a_settled_endpoint_is_not_waited_for(settled: tuple[str, str] | None) -> None:
    clock = FakeClock()
    wait_settled(Scripted({"e": [settled]}), "e", 60, Told(), clock, clock.sleep)
    assert clock.seconds == 0


def test_settling_does_not_take_for_ever_either() -> None:
    clock = FakeClock()
    with pytest.raises(WaitTimeout, match="e is still Creating after 30 s"):
        wait_settled(Scripted({"e": [("Creating", NEW)]}), "e", 30, Told(), clock, clock.sleep)


def test_a_deletion_is_waited_for() -> None:
    clock = FakeClock()
    wait_deleted(Scripted({"e": [("Deleting", OLD), ("Deleting", OLD), None]}), "e", 60, clock, clock.sleep)
    assert clock.seconds == 4.0


def test_a_deletion_does_not_take_for_ever() -> None:
    clock = FakeClock()
    with pytest.raises(WaitTimeout, match="e is still being deleted after 30 s"):
        wait_deleted(Scripted({"e": [("Deleting", OLD)]}), "e", 30, clock, clock.sleep)
