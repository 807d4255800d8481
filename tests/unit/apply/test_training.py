"""Waiting for training jobs: their stages, their ends, and a log that may not be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import asdict

import pytest
from fakes import FakeClock, Told

from toolkit.apply.progress import Progress
from toolkit.apply.training import TrainingJob, wait_completed
from toolkit.apply.waiter import LogLine
from toolkit.errors import PlatformError, TrainingJobFailed, Unavailable
from toolkit.training.progress import PREFIX, TrainingProgress

Look = tuple[str, str]
RUNS: Look = ("InProgress", "Training")
DONE: Look = ("Completed", "Completed")


class Jobs:
    """Each job goes through its looks, one a second, and writes its lines at the second of them."""

    name = "sagemaker"
    poll_seconds = 60.0

    def __init__(self, clock: FakeClock, reason: str = "", log: Sequence[str] = (), **looks: Sequence[Look]) -> None:
        self._clock, self._reason, self._log, self._looks = clock, reason, log, looks
        self._entered: dict[tuple[str, str], float] = {}
        self.seen: dict[str, int] = dict.fromkeys(looks, 0)

    def training_job(self, name: str) -> TrainingJob:
        looks = self._looks[name]
        status, stage = looks[min(self.seen[name], len(looks) - 1)]
        self.seen[name] += 1
        entered = self._entered.setdefault((name, stage), self._clock())
        return TrainingJob(name, status, stage, self._reason, 0.0, entered)

    def training_log(self, name: str, bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
        if self.seen[name] > 1 and name not in bookmarks:
            bookmarks[name] = "read"
            yield from (LogLine(f"{name}/algo-1", 0.0, text) for text in self._log)

    def log_command(self, name: str) -> str:
        return f"cat {name}/log"

    def leave(self, name: str, progress: Progress) -> str:
        return f"{name} goes on"


class Unreadable(Jobs):
    """Jobs of somebody who may not read logs."""

    def training_log(self, name: str, bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
        raise PlatformError("not authorized to perform: logs:GetLogEvents")


class Away(Jobs):
    """Jobs of a platform that is not reached from its second look on, so many times."""

    def __init__(self, clock: FakeClock, times: int, **looks: Sequence[Look]) -> None:
        super().__init__(clock, "", (), **looks)
        self._times = times

    def training_job(self, name: str) -> TrainingJob:
        if self.seen[name] and self._times:
            self._times -= 1
            raise Unavailable("SageMaker does not answer")
        return super().training_job(name)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_stages_are_told_with_their_times(clock: FakeClock) -> None:
    told = Told()
    platform = Jobs(clock, sd=[("InProgress", "DownloadingTrainingImage"), RUNS, RUNS, DONE])
    wait_completed(platform, {"sd": 3600}, told, clock, clock.sleep)
    assert told.said == [
        "sd: downloading training image took 1:00",
        "sd: training took 2:00",
        "sd has compiled, in 3:00",
    ]
    assert told.updates[-1] == "sd: training 1:00, in total 2:00 of about 60 min"


def test_a_stage_took_until_the_next_began_not_until_we_looked(clock: FakeClock) -> None:
    told = Told()
    jobs = iter(
        TrainingJob("sd", status, stage, "", 0.0, entered)
        for status, stage, entered in [("InProgress", "Starting", 0.0), ("InProgress", "Training", 15.0), (*DONE, 70.0)]
    )

    class Seen(Jobs):
        def training_job(self, name: str) -> TrainingJob:
            return next(jobs)

    wait_completed(Seen(clock, sd=[]), {"sd": 0}, told, clock, clock.sleep)
    assert told.said == ["sd: starting took 0:15", "sd: training took 0:55", "sd has compiled, in 2:00"]


def test_the_programs_own_lines_are_kept_and_the_engines_last_one_is_shown(clock: FakeClock) -> None:
    told = Told()
    log = ("compile: 1 min 00 s: the engine compiles and loads", "neuronx-cc: pass 3 of 9")
    wait_completed(Jobs(clock, log=log, sd=[RUNS, RUNS, DONE]), {"sd": 0}, told, clock, clock.sleep)
    assert told.said[0] == "sd: compile: 1 min 00 s: the engine compiles and loads"
    assert told.updates[-1].endswith(": neuronx-cc: pass 3 of 9")


def test_of_training_what_is_held_out_is_kept_and_a_short_line_is_shown(clock: FakeClock) -> None:
    """A live line that changed with each kind of progress would fill a log."""
    told = Told()
    log = (
        'train: {"stage": "train", "done": 4, "total": 9, "loss": 2.5, "accuracy": [0.5], "seconds_left": 300}',
        'train: {"stage": "train", "done": 4, "total": 9, "loss": 2.7, "accuracy": [0.4], "held_out": true}',
    )
    wait_completed(Jobs(clock, log=log, sd=[RUNS, RUNS, DONE]), {"sd": 0}, told, clock, clock.sleep)
    assert told.said[0] == "sd: train 4/9, held-out loss 2.700, right by depth 40%"
    assert told.updates[-1].endswith(": train 4/9, 5 min left, loss 2.500")


def test_the_last_of_several_jobs_is_waited_for(clock: FakeClock) -> None:
    platform = Jobs(clock, one=[DONE], other=[RUNS, RUNS, DONE])
    wait_completed(platform, {"one": 0, "other": 0}, Told(), clock, clock.sleep)
    assert platform.seen == {"one": 1, "other": 3}


def test_a_failure_carries_reason_and_last_lines(clock: FakeClock) -> None:
    platform = Jobs(clock, "AlgorithmError: boom", ("last words",), sd=[RUNS, ("Failed", "Failed")])
    with pytest.raises(TrainingJobFailed, match="sd failed: AlgorithmError: boom") as raised:
        wait_completed(platform, {"sd": 0}, Told(), clock, clock.sleep)
    assert raised.value.logs == ("last words",)
    assert "cat sd/log" in raised.value.hint


def test_a_job_that_somebody_stopped_has_failed_too(clock: FakeClock) -> None:
    with pytest.raises(TrainingJobFailed, match=r"sd was stopped \(Stopped\)"):
        wait_completed(Jobs(clock, sd=[RUNS, ("Stopped", "Stopped")]), {"sd": 0}, Told(), clock, clock.sleep)


def test_a_log_that_may_not_be_read_is_told_once(clock: FakeClock) -> None:
    told = Told()
    wait_completed(Unreadable(clock, sd=[RUNS, RUNS, DONE]), {"sd": 0}, told, clock, clock.sleep)
    assert [line for line in told.said if "cannot read" in line] == [
        "sd: cannot read its log: not authorized to perform: logs:GetLogEvents"
    ]


def test_a_platform_that_does_not_answer_for_a_while_is_waited_for(clock: FakeClock) -> None:
    told = Told()
    wait_completed(Away(clock, 4, a=[RUNS, DONE]), {"a": 0}, told, clock, clock.sleep)
    assert told.said[0] == "a: still waiting: SageMaker does not answer"
    assert clock.seconds == 300


def test_a_platform_that_does_not_answer_for_five_minutes_is_an_error(clock: FakeClock) -> None:
    with pytest.raises(Unavailable, match="SageMaker does not answer"):
        wait_completed(Away(clock, 100, a=[RUNS, DONE]), {"a": 0}, Told(), clock, clock.sleep)
    assert clock.seconds == 420


def test_a_machine_that_has_slept_asks_again_when_its_network_is_not_back_at_once(clock: FakeClock) -> None:
    told = Told()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds if clock() else 7200)

    wait_completed(Away(clock, 2, a=[RUNS, DONE]), {"a": 0}, told, clock, sleep)
    assert told.said[-1].startswith("a has compiled")


def test_steps_are_for_the_live_line_and_what_was_measured_stays(clock: FakeClock) -> None:
    lines = [
        TrainingProgress("train", 1, 9, loss=2.0),
        TrainingProgress("train", 5, 9, loss=1.5, accuracy=(0.5,), held_out=True),
        TrainingProgress("train", 6, 9, loss=1.25),
    ]
    told, log = Told(), [PREFIX + json.dumps(asdict(line)) for line in lines]
    wait_completed(Jobs(clock, log=log, sd=[RUNS, RUNS, DONE]), {"sd": 0}, told, clock, clock.sleep, done="has trained")
    assert told.said[0] == "sd: train 5/9, held-out loss 1.500, right by depth 50%"
    assert told.updates[-1].endswith("train 6/9, loss 1.250")
    assert told.said[-1].startswith("sd has trained")


def test_ctrl_c_says_what_becomes_of_the_job_and_how_to_go_on(clock: FakeClock) -> None:
    def press(seconds: float) -> None:
        raise KeyboardInterrupt

    told = Told()
    with pytest.raises(KeyboardInterrupt):
        wait_completed(Jobs(clock, sd=[RUNS]), {"sd": 0}, told, clock, press, again="toolkit train my.yaml")
    assert told.said == ["sd goes on. Go on: toolkit train my.yaml"]


@pytest.mark.parametrize(
    ("reports", "shown"),
    [(True, "data 3/9"), (False, "INFO a line of an engine that says how it starts, at the full …")],
)
def test_lines_of_an_engine_are_whole_words_and_give_way_to_the_jobs_own(
    clock: FakeClock, reports: bool, shown: str
) -> None:
    told = Told()
    own = PREFIX + json.dumps({"stage": "data", "done": 3, "total": 9})
    engine = "INFO a line of an engine that says how it starts, at the full length-that-a-log-of-an-engine-has"
    platform = Jobs(clock, log=[*([own] if reports else []), engine], sd=[RUNS, RUNS, RUNS, DONE])
    wait_completed(platform, {"sd": 0}, told, clock, clock.sleep)
    assert told.updates[-1].endswith(f"in total 2:00: {shown}")
