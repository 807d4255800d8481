"""Waiting: in service, failed, certain to fail, rolled back, too long, gone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock, Told

from toolkit.apply.waiter import EndpointStatus, LogLine, wait_deleted, wait_in_service, wait_settled
from toolkit.errors import EndpointFailed, EndpointNotFound, PlatformError, Unavailable, WaitTimeout

LOGS = Path(__file__).parents[2] / "golden" / "logs"
NEW, OLD = "e-new", "e-old"
CREATING, UPDATING, IN_SERVICE = ("Creating", NEW), ("Updating", OLD), ("InService", NEW)
PING = "did not pass the ping health check"


class Scripted:
    """Endpoints that go through statuses, one a look, and stay in the last; None is "no such endpoint".

    `logs` are written one list a look.
    """

    name = "sagemaker"
    poll_seconds = 2.0

    def __init__(
        self,
        statuses: Mapping[str, Sequence[tuple[str, str] | None]],
        *logs: Sequence[LogLine],
        began: float = 0.0,
        reason: str = PING,
    ) -> None:
        self._left = {name: list(each) for name, each in statuses.items()}
        self._logs = list(logs)
        self._written: list[LogLine] = []
        self._began = began
        self._reason = reason
        self.read: list[LogLine] = []

    def status(self, endpoint: str) -> EndpointStatus:
        left = self._left[endpoint]
        now = left.pop(0) if len(left) > 1 else left[0]
        if now is None:
            raise EndpointNotFound(f"there is no endpoint {endpoint}")
        if self._logs:
            self._written += self._logs.pop(0)
        return EndpointStatus(endpoint, *now, self._reason, self._began, "nobody is free", f"It is still {now[0]}.")

    def logs(
        self, endpoint: str, since: float = 0.0, bookmarks: MutableMapping[str, str] | None = None
    ) -> Iterator[LogLine]:
        marks = {} if bookmarks is None else bookmarks
        for stream in dict.fromkeys(line.stream for line in self._written):
            lines = [line for line in self._written if line.stream == stream]
            if lines[0].time >= since:
                new = lines[int(marks.get(stream, "0")) :]
                marks[stream] = str(len(lines))
                self.read += new
                yield from new


def lines(stream: str, texts: Sequence[str], start: float = 0.0) -> list[LogLine]:
    return [LogLine(stream, start + second, text) for second, text in enumerate(texts)]


def golden(name: str) -> list[str]:
    return (LOGS / f"{name}.txt").read_text().splitlines()


def wait(
    platform: Scripted, *endpoints: str, timeout: float = 60, expected: Mapping[str, float] | None = None
) -> tuple[FakeClock, Told]:
    clock, told = FakeClock(), Told()
    configs = dict.fromkeys(endpoints or ("e",), NEW)
    wait_in_service(platform, configs, told, timeout, clock, clock.sleep, expected=expected or {})
    return clock, told


def test_an_endpoint_comes_up() -> None:
    clock, told = wait(Scripted({"e": [CREATING, CREATING, IN_SERVICE]}))
    assert clock.seconds == 4.0
    assert told.said == ["e is in service"]


def test_it_says_how_long_each_stage_took() -> None:
    log = (LOGS / "healthy" / "draft-model.txt").read_text().splitlines()
    looks = [[], [], *([line] for line in lines("v/1", log))]
    platform, clock = Scripted({"e": [*[CREATING] * len(looks), IN_SERVICE]}, *looks), FakeClock()
    took = wait_in_service(platform, {"e": NEW}, Told(), 3600, clock, clock.sleep)["e"]
    assert next(iter(took)) == "waiting for an instance, weights and image"
    assert "loading the target" in took
    assert sum(took.values()) == clock.seconds


def test_of_several_containers_the_first_waits_for_its_instance() -> None:
    looks = [[], lines("v/1", ["a"]), lines("v/2", ["b"], 5.0)]
    platform, clock = Scripted({"e": [*[CREATING] * len(looks), IN_SERVICE]}, *looks), FakeClock()
    took = wait_in_service(platform, {"e": NEW}, Told(), 3600, clock, clock.sleep)["e"]
    assert took == {"waiting for an instance, weights and image": 2.0, "starting": 4.0}


def test_an_update_counts_only_when_the_new_configuration_runs() -> None:
    clock, _ = wait(Scripted({"e": [UPDATING, UPDATING, IN_SERVICE]}))
    assert clock.seconds == 4.0


def test_two_endpoints_are_waited_for_together() -> None:
    clock, told = wait(Scripted({"a": [CREATING, IN_SERVICE], "b": [CREATING, CREATING, IN_SERVICE]}), "a", "b")
    assert clock.seconds == 4.0
    early = "it answers already, in another terminal: toolkit invoke a Hello"
    assert told.said == ["a is in service", early, "b is in service"]


def test_a_container_that_waits_for_its_turn_is_told() -> None:
    queued = ["local: waiting until another container has started: this machine has few cores"]
    _, told = wait(Scripted({"e": [CREATING, CREATING, CREATING, IN_SERVICE]}, lines("v/1", queued)))
    assert told.updates[-1] == "e: waiting for its turn to start 0:04"


def test_nothing_to_wait_for_takes_no_time() -> None:
    clock = FakeClock()
    wait_in_service(Scripted({}), {}, Told(), 60, clock, clock.sleep)
    assert clock.seconds == 0


def test_once_it_has_failed_lines_of_the_operation_before_are_still_not_read() -> None:
    class Ended(Scripted):
        def status(self, endpoint: str) -> EndpointStatus:
            now = super().status(endpoint)
            return replace(now, began=0.0) if now.status == "Failed" else now

    log = [*lines("v/1", ["OSError: [Errno 28] No space left on device"]), *lines("v/2", ["it starts"], start=200)]
    platform = Ended({"e": [CREATING, ("Failed", NEW)]}, [], log, began=100)
    with pytest.raises(EndpointFailed):
        wait(platform)
    assert [line.text for line in platform.read] == ["it starts"]


def test_a_failure_tells_the_cause_the_edit_and_the_newest_containers_last_lines() -> None:
    log = golden("no-mask-token")
    platform = Scripted({"e": [("Failed", NEW)]}, [*lines("v/1", ["older"] * 3), *lines("v/2", log)])
    with pytest.raises(EndpointFailed) as caught:
        wait(platform)
    error = caught.value
    assert error.message.startswith("e failed: ValueError: For parallel drafting, the draft model config must have")
    assert error.cause
    assert (error.cause.code, error.hint) == ("no-mask-token", error.cause.hint)
    assert error.logs == tuple(log[-15:])


def test_what_an_older_container_died_of_is_not_the_cause() -> None:
    log = [*lines("v/1", ["OSError: [Errno 28] No space left on device"]), *lines("v/2", ["KeyError: 'layers.7'"])]
    with pytest.raises(EndpointFailed, match=r"e failed: KeyError: 'layers\.7'"):
        wait(Scripted({"e": [("Failed", NEW)]}, log))


def test_an_unknown_cause_is_called_unknown() -> None:
    with pytest.raises(EndpointFailed) as caught:
        wait(Scripted({"e": [("Failed", NEW)]}, lines("v/1", ["so far so good", "KeyError: 'layers.7'"])))
    assert caught.value.cause is None
    assert caught.value.logs == ("so far so good", "KeyError: 'layers.7'")
    assert caught.value.hint == ("This is not a cause that the toolkit knows. For the whole log, run: toolkit logs e")


def test_a_failure_of_aws_itself_gives_its_reason_and_the_edit() -> None:
    reason = "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error."
    with pytest.raises(EndpointFailed, match=f"e failed: {reason}") as caught:
        wait(Scripted({"e": [CREATING, ("Failed", NEW)]}, reason=reason))
    assert "platform.instance_types" in caught.value.hint


def test_a_health_check_that_was_too_short_tells_how_far_it_came() -> None:
    log = lines("v/1", golden("health-check-too-slow"))
    with pytest.raises(EndpointFailed, match="e failed: it was still loading the target when"):
        wait(Scripted({"e": [("Failed", NEW)]}, log))


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("OutOfService", "e is out of service: ValueError: x"),
        ("UpdateRollbackFailed", "e could not be rolled back: it serves with the old and the new configuration: Val"),
    ],
)
def test_other_statuses_that_nothing_leads_out_of(status: str, says: str) -> None:
    with pytest.raises(EndpointFailed, match=says):
        wait(Scripted({"e": [UPDATING, (status, OLD)]}, lines("v/1", ["ValueError: x"])))


def test_an_update_that_was_rolled_back_is_a_failure() -> None:
    platform = Scripted({"e": [UPDATING, ("RollingBack", OLD), ("InService", OLD)]}, lines("v/1", ["ValueError: x"]))
    clock, told = FakeClock(), Told()
    with pytest.raises(EndpointFailed, match="e was rolled back and still runs e-old: ValueError: x"):
        wait_in_service(platform, {"e": NEW}, told, 60, clock, clock.sleep)
    assert told.updates[-1] == "e: rolling back"


class TestCertainToFail:
    """SageMaker starts a dead container again until the time for its health check is up: nobody need wait for that."""

    def test_the_wait_ends_soon_after_the_container_said_why(self) -> None:
        platform = Scripted({"e": [CREATING]}, [], lines("v/1", golden("hidden-size")))
        clock, told = FakeClock(), Told()
        with pytest.raises(EndpointFailed) as caught:
            wait_in_service(platform, {"e": NEW}, told, 3600, clock, clock.sleep)
        assert clock.seconds == 12.0  # read after two seconds, and ten for an endpoint that fails by itself
        assert caught.value.message.startswith("e cannot start: RuntimeError: The size of tensor a (384) must match")
        assert caught.value.hint.endswith("\n  It is still Creating."), "what the platform says of it"
        assert caught.value.cause
        assert caught.value.cause.code == "hidden-size"

    def test_an_endpoint_that_fails_by_itself_is_called_failed(self) -> None:
        platform = Scripted({"e": [CREATING, CREATING, ("Failed", NEW)]}, lines("v/1", golden("hidden-size")))
        with pytest.raises(EndpointFailed, match="e failed: RuntimeError: The size of tensor a"):
            wait(platform)

    def test_an_update_leaves_the_old_configuration_in_service(self) -> None:
        with pytest.raises(EndpointFailed) as caught:
            wait(Scripted({"e": [UPDATING]}, lines("v/1", golden("hidden-size"))))
        assert caught.value.hint.endswith("\n  It is still Updating.")

    def test_what_may_go_away_is_waited_for(self) -> None:
        looks = [CREATING] * 20
        clock, _ = wait(Scripted({"e": [*looks, IN_SERVICE]}, lines("v/1", golden("killed"))))
        assert clock.seconds == 40.0

    def test_until_it_comes_again(self) -> None:
        twice = [lines("v/1", golden("killed")), lines("v/1", golden("killed"), 100)]
        with pytest.raises(EndpointFailed, match="e cannot start: Exception: WorkerProc initialization failed"):
            wait(Scripted({"e": [CREATING]}, *twice))

    @pytest.mark.parametrize(
        ("swallowed", "module", "error"),
        [
            ("Failed to load plugin lmcache", "lmcache/config", "LookupError: nobody"),
            ("fused collective unavailable; use the NCCL fallback",
             "vllm/distributed/parallel_state", "RuntimeError: no multicast"),
            ("no LoRA", "vllm/lora/utils", "ValueError: Unsupported LoRA rank"),
        ],
    )  # fmt: skip
    def test_an_error_that_the_engine_goes_on_after_ends_no_start(
        self, swallowed: str, module: str, error: str
    ) -> None:
        frame = f'  File "/usr/lib/python3.12/site-packages/{module}.py", line 7, in load'
        said = [swallowed, "Traceback (most recent call last):", frame, "    load()", error]
        log = [f"ERROR 11-27 10:00:00 [lamport.py:782] {line}" for line in said]
        looks = [lines("v/1", log), *[[]] * 18, lines("v/1", ["INFO: Application startup complete."], 40)]
        clock, _ = wait(Scripted({"e": [*[CREATING] * 20, IN_SERVICE]}, *looks))
        assert clock.seconds == 40.0

    def test_a_known_error_is_not_certain_where_the_server_then_answers(self) -> None:
        known = lines("v/1", ["RuntimeError: The size of tensor a (384) must match the size of tensor b (256)"])
        answers = lines("v/1", ["INFO: Application startup complete."], 4)
        clock, _ = wait(Scripted({"e": [*[CREATING] * 20, IN_SERVICE]}, known, [], answers))
        assert clock.seconds == 40.0

    def test_a_container_that_dies_again_and_again_gets_no_more_time(self) -> None:
        again = [lines("v/1", golden("hidden-size"), 1000.0 * number) for number in range(20)]
        clock, told = FakeClock(), Told()
        with pytest.raises(EndpointFailed, match="e cannot start: RuntimeError: The size of tensor a"):
            wait_in_service(Scripted({"e": [CREATING]}, [], *again), {"e": NEW}, told, 3600, clock, clock.sleep)
        assert clock.seconds == 12.0

    def test_one_dead_container_of_two_is_enough(self) -> None:
        healthy = golden("starts")[:20]
        log = [*lines("v/1", golden("hidden-size")), *lines("v/2", healthy)]
        with pytest.raises(EndpointFailed, match="e cannot start: RuntimeError: The size of tensor a"):
            wait(Scripted({"e": [CREATING]}, log))

    def test_containers_of_the_deployment_before_do_not_count(self) -> None:
        """They died of what the recipe that is deployed now has mended."""
        before = lines("v/1", golden("hidden-size"), start=100)
        clock, _ = wait(Scripted({"e": [*[UPDATING] * 20, IN_SERVICE]}, before, began=1000.0))
        assert clock.seconds == 40.0


class TestProgress:
    """The moving line and the lines that stay."""

    def test_it_tells_what_vllm_is_doing(self) -> None:
        """A real log of vLLM 0.32.0 with a P-EAGLE head, seen line by line."""
        log = [[line] for line in lines("v/1", golden("starts"))]
        _, told = wait(Scripted({"e": [*[CREATING] * (len(log) + 1), IN_SERVICE]}, [], *log), timeout=9999)
        assert list(dict.fromkeys(re.sub(r" \d+:\d\d.*", "", update) for update in told.updates)) == [
            "e: waiting for an instance, weights and image",
            "e: starting",
            "e: reading its configuration, starting the engine's core",
            "e: starting the core's workers",
            "e: loading the target",
            "e: loading the drafter",
            "e: warming up",
            "e: answering",
        ]

    def test_elapsed_and_expected_time_and_shards(self) -> None:
        log = lines("v/1", golden("health-check-too-slow"))
        platform = Scripted({"e": [CREATING, CREATING, CREATING, IN_SERVICE]}, log)
        _, told = wait(platform, expected={"loading the target": 240})
        assert told.updates[-1] == "e: loading the target 0:07 of about 4 min (2/3 shards)"

    def test_a_stage_that_is_over_leaves_its_time(self) -> None:
        log = lines("v/1", ["non-default args: {}"]), [LogLine("v/1", 30.0, "Starting to load model /opt/ml/model...")]
        _, told = wait(Scripted({"e": [*[CREATING] * 10, IN_SERVICE]}, [], [], *log))
        assert told.said == [
            "e: waiting for an instance, weights and image took 0:04",
            "e: reading its configuration, starting the engine's core took 0:02",
            "e is in service",
        ]

    def test_the_logs_last_line_and_what_is_slow_are_told(self) -> None:
        line = "(APIServer pid=1) INFO 11-21 02:49:05 [model.py:2152] Using max model len 128"
        log = lines("v/1", ["non-default args: {}", line])
        _, told = wait(Scripted({"e": [*[CREATING] * 30, IN_SERVICE]}, log))
        assert told.details[-1] == "Using max model len 128"
        assert told.updates[5].endswith("0:11 of about 20 s")
        assert told.updates[-1].endswith(" of about 20 s, slower than usual")

    def test_graphs_are_counted(self) -> None:
        log = [line for line in golden("gpu-memory-graphs") if " ERROR " not in line][:-1]
        _, told = wait(Scripted({"e": [CREATING, IN_SERVICE]}, lines("v/1", log)))
        assert told.updates == ["e: compiling and capturing graphs 0:05 (33/67 graphs)"]

    def test_a_second_start_is_told(self) -> None:
        args, load = "non-default args: {}", "Starting to load model /opt/ml/model..."
        _, told = wait(Scripted({"e": [CREATING, IN_SERVICE]}, lines("v/1", [args, load, args])))
        assert "e: it restarts, after loading the target" in told.said

    def test_only_new_lines_are_read(self) -> None:
        log = lines("v/1", golden("starts")[:9])
        platform = Scripted({"e": [*[CREATING] * 9, IN_SERVICE]}, *[[line] for line in log])
        wait(platform)
        assert platform.read == log

    def test_what_came_before_a_failed_read_is_kept(self) -> None:
        class Throttled(Scripted):
            def logs(
                self, endpoint: str, since: float = 0.0, bookmarks: MutableMapping[str, str] | None = None
            ) -> Iterator[LogLine]:
                yield from super().logs(endpoint, since, bookmarks)
                raise PlatformError("reading the log of e: Rate exceeded (ThrottlingException)")

        platform = Throttled({"e": [CREATING, ("Failed", NEW)]}, lines("v/1", golden("hidden-size")))
        with pytest.raises(EndpointFailed, match="e failed: RuntimeError: The size of tensor a"):
            wait(platform)

    def test_a_long_silence_is_explained_once(self) -> None:
        _, told = wait(Scripted({"e": [*[CREATING] * 600, IN_SERVICE]}), timeout=3600)
        assert [said.partition(":")[2][:60] for said in told.said[:-1]] == [
            " no container has written a line for 15 minutes: nobody is f"
        ]

    @pytest.mark.parametrize(("log", "cause"), [([], "no-log"), (golden("hidden-size"), "hidden-size")])
    def test_a_log_that_can_be_read_again_is_read(self, log: Sequence[str], cause: str) -> None:
        class Throttled(Scripted):
            failures = 1

            def logs(
                self, endpoint: str, since: float = 0.0, bookmarks: MutableMapping[str, str] | None = None
            ) -> Iterator[LogLine]:
                if self.failures:
                    self.failures -= 1
                    raise PlatformError("reading the log of e: Rate exceeded (ThrottlingException)")
                yield from super().logs(endpoint, since, bookmarks)

        with pytest.raises(EndpointFailed) as caught:
            wait(Throttled({"e": [CREATING, ("Failed", NEW)]}, lines("v/1", log)))
        assert caught.value.cause
        assert caught.value.cause.code == cause

    def test_whoever_may_not_read_logs_may_still_wait(self) -> None:
        class Closed(Scripted):
            def logs(
                self, endpoint: str, since: float = 0.0, bookmarks: MutableMapping[str, str] | None = None
            ) -> Iterator[LogLine]:
                raise PlatformError("reading the log of e: not authorized (AccessDeniedException)")

        with pytest.raises(EndpointFailed) as caught:
            wait(Closed({"e": [CREATING, ("Failed", NEW)]}))
        assert caught.value.cause is None, "that nothing was read does not mean that nothing was written"

        _, told = wait(Closed({"e": [CREATING, CREATING, IN_SERVICE]}))
        assert told.said == [
            "e: cannot read its log, so its stages are not shown: "
            "reading the log of e: not authorized (AccessDeniedException)",
            "e is in service",
        ]


def test_it_does_not_wait_for_ever() -> None:
    with pytest.raises(WaitTimeout) as caught:
        wait(Scripted({"a": [IN_SERVICE], "b": [CREATING]}), "a", "b", timeout=90)
    assert str(caught.value) == (
        "not in service after 1:30 minutes: b (still waiting for an instance, weights and image)\n"
        "  See: toolkit logs b. Run the same command again to go on waiting, or give up: toolkit destroy b"
    )
    assert isinstance(caught.value, TimeoutError)


def test_an_endpoint_that_vanishes_ends_the_waiting() -> None:
    with pytest.raises(EndpointNotFound, match="there is no endpoint e"):
        wait(Scripted({"e": [CREATING, None]}))


@pytest.mark.parametrize("status", ["Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"])
def test_an_endpoint_under_way_is_let_settle_before_it_is_changed(status: str) -> None:
    clock, told = FakeClock(), Told()
    platform = Scripted({"e": [(status, OLD), (status, OLD), ("InService", OLD)]})
    wait_settled(platform, "e", 60, told, clock, clock.sleep)
    assert clock.seconds == 4.0
    assert told.updates[0] == f"e is {status.lower()}; waiting until it can be changed"


@pytest.mark.parametrize("settled", [("InService", OLD), ("Failed", OLD), ("OutOfService", OLD), None])
def test_a_settled_endpoint_is_not_waited_for(settled: tuple[str, str] | None) -> None:
    clock = FakeClock()
    wait_settled(Scripted({"e": [settled]}), "e", 60, Told(), clock, clock.sleep)
    assert clock.seconds == 0


def test_settling_does_not_take_for_ever_either() -> None:
    clock = FakeClock()
    with pytest.raises(WaitTimeout, match="e is still Creating after 30 s"):
        wait_settled(Scripted({"e": [CREATING]}), "e", 30, Told(), clock, clock.sleep)


def test_a_deletion_is_waited_for() -> None:
    clock = FakeClock()
    wait_deleted(Scripted({"e": [("Deleting", OLD), ("Deleting", OLD), None]}), "e", 60, clock, clock.sleep)
    assert clock.seconds == 4.0


def test_a_deletion_does_not_take_for_ever() -> None:
    clock = FakeClock()
    with pytest.raises(WaitTimeout, match="e is still being deleted after 30 s"):
        wait_deleted(Scripted({"e": [("Deleting", OLD)]}), "e", 30, clock, clock.sleep)


class Away(Scripted):
    """A platform that does not answer at some looks."""

    def __init__(self, *answers: bool) -> None:
        super().__init__({"e": [CREATING, IN_SERVICE]})
        self._answers = list(answers)

    def status(self, endpoint: str) -> EndpointStatus:
        if self._answers and not self._answers.pop(0):
            raise Unavailable("SageMaker does not answer")
        return super().status(endpoint)


def test_what_settles_or_is_deleted_is_waited_for_while_the_platform_does_not_answer() -> None:
    clock = FakeClock()
    assert wait_settled(Away(True, *[False] * 100), "e", 9999, Told(), clock, clock.sleep)
    assert clock.seconds == 202
    gone = Away(*[False] * 100)
    gone._left["e"] = [None]
    wait_deleted(gone, "e", 9999, clock, clock.sleep)
    assert clock.seconds == 402
    with pytest.raises(Unavailable):
        wait_settled(Away(*[False] * 1000), "e", 9999, Told(), clock, clock.sleep)


def test_a_platform_that_does_not_answer_for_a_while_is_waited_for() -> None:
    away = [False] * 100  # 200 seconds
    clock, told = wait(Away(*away, True, *away), timeout=9999)
    assert clock.seconds == 402
    assert told.said == ["e: still waiting: SageMaker does not answer", "e is in service"]


def test_a_platform_that_does_not_answer_for_five_minutes_is_an_error() -> None:
    with pytest.raises(Unavailable, match="SageMaker does not answer"):
        wait(Away(*[False] * 160), timeout=9999)
