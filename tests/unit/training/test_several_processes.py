"""A training in several processes: the same curve as in one, stopped and resumed, and what their exit codes say."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.training.heads import job_for, save_target
from tests.unit.training.job_process import kept_curve, stopped_amid_training
from toolkit.training.__main__ import main
from toolkit.training.job import TrainingJob
from toolkit.training.launch import Machines, environment_of, exit_code, job_machines

STEPS = 24
TAKEN_OVER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """EAGLE-3 drops no position at random, so that its curve does not depend on who learns which sample."""
    folder = tmp_path_factory.mktemp("job")
    rows = [
        {"messages": [{"role": "user", "content": f"Count to {n}."}, {"role": "assistant", "content": "1 2 3 " * n}]}
        for n in range(4, 24)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {"steps": STEPS, "batch_tokens": 200, "learning_rate": 0.003, "layers": 1, "depth": 3, "held_out": 0.2}
    data = (str(folder / "data.jsonl"),)
    return job_for(
        save_target(folder / "target"),
        **changes,
        method="eagle3",
        responses="keep",
        data=data,
        num_speculative_tokens=2,
        max_length=64,
    )


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    """A training takes some over, as befits a process of its own."""
    before = {number: signal.getsignal(number) for number in TAKEN_OVER}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals_as_before")
def test_two_processes_stopped_and_resumed_learn_what_one_learns(job: TrainingJob, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    job.write(one)
    job.write(two)
    assert main(one) == 0
    command = [sys.executable, "-m", "toolkit.training", "--processes", "2", str(two)]
    assert stopped_amid_training(command) == 128 + signal.SIGTERM
    stopped = kept_curve(two)[-1][0]
    assert 0 < stopped < STEPS

    assert main(two, processes=2) == 0

    found, expected = kept_curve(two), kept_curve(one)
    assert [line[:2] for line in found] == [line[:2] for line in expected]
    assert [line[2] for line in found] == pytest.approx([line[2] for line in expected], rel=2e-3)
    assert (two / "head" / "config.json").is_file()


def test_the_users_mistake_ends_all_with_its_own_exit_code() -> None:
    assert exit_code([]) == 0
    assert exit_code([1, 2]) == 2
    assert exit_code([-signal.SIGKILL, 3]) == 3
    assert exit_code([-signal.SIGKILL]) == 128 + signal.SIGKILL


def test_processes_of_one_machine_open_no_port_to_others(tmp_path: Path) -> None:
    found = environment_of(1, 8, Machines(["localhost"], 0), tmp_path)
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == ("1", "1", "8")
    assert found["TOOLKIT_MEETING"] == f"file://{tmp_path}/meeting"


def test_processes_of_several_machines_meet_at_the_first(tmp_path: Path) -> None:
    found = environment_of(3, 8, Machines(["algo-1", "algo-2"], 1), tmp_path)
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == ("11", "3", "16")
    assert (found["TOOLKIT_MEETING"], found["MASTER_ADDR"]) == ("env://", "algo-1")


def test_machines_are_those_that_sagemaker_lists(tmp_path: Path) -> None:
    assert job_machines(tmp_path) == (["localhost"], 0)
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-2", "hosts": ["algo-2", "algo-1"]}))
    assert job_machines(tmp_path) == (["algo-1", "algo-2"], 1)
