"""A training in several processes: the same curve as in one, stopped and resumed, and what their exit codes say."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.unit.training.forked_processes import in_processes
from tests.unit.training.heads import job_for, save_target, write_samples
from tests.unit.training.job_process import kept_curve, stopped_amid_training
from toolkit.training import checkpoint
from toolkit.training.__main__ import main
from toolkit.training.head import build_head
from toolkit.training.job import TrainingJob
from toolkit.training.launch import Machines, environment_of, exit_code, job_machines, launch
from toolkit.training.loop import Data, Loop
from toolkit.training.samples import Samples
from toolkit.training.trainer import learner_of

CPU = torch.device("cpu")
STEPS = 24
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


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


@pytest.mark.timeout(900)  # four new processes import all that trains, two at a time
def test_two_processes_stopped_and_resumed_learn_what_one_learns(job: TrainingJob, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    job.write(one)
    job.write(two)
    assert main(one) == 0
    command = [sys.executable, "-m", "toolkit.training", "--processes", "2", str(two)]
    assert stopped_amid_training(command) == 128 + signal.SIGTERM
    stopped = kept_curve(two)[-1][0]
    assert 0 < stopped < STEPS

    before = [signal.getsignal(number) for number in SIGNALS]
    assert main(two, processes=2) == 0
    assert [signal.getsignal(number) for number in SIGNALS] == before

    found, expected = kept_curve(two), kept_curve(one)
    assert [line[:2] for line in found] == [line[:2] for line in expected]
    assert [line[2] for line in found] == pytest.approx([line[2] for line in expected], rel=2e-3)
    assert (two / "head" / "config.json").is_file()


def test_a_program_that_fails_gives_its_exit_code(tmp_path: Path) -> None:
    """It has no job to train."""
    assert launch(tmp_path, 1, job_machines(), "eagle3") == 2


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


def gradients(rank: int, ranks: int, job: TrainingJob, folder: Path, meeting: Path) -> None:
    """Those of a step, as one of so many processes, in a file."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    data = Data(Samples(folder / "train"), Samples(folder / "held-out"))
    head = build_head(job)
    outcome, _ = Loop(job, head, learner_of(head, job, 64, CPU), data, CPU).learn(1)
    found = {name: weights.grad for name, weights in head.named_parameters() if weights.grad is not None}
    torch.save({**found, "loss": outcome.loss, "drafts": outcome.drafts}, f"{meeting}-{rank}")


@pytest.mark.parametrize("method", ["p-eagle", "eagle3"])
def test_two_processes_have_the_gradients_that_one_has(method: str, tmp_path: Path) -> None:
    """Also of P-EAGLE, which leaves out positions at random; float32 sums differ in their order alone."""
    write_samples(tmp_path / "train", [40, 6, 9, 30, 12, 21, 7, 15], seed=1)
    write_samples(tmp_path / "held-out", [10], seed=2)
    settings = {"method": method, "batch_tokens": 60, "steps": 2, "layers": 1, "depth": 3}
    job = job_for(save_target(tmp_path / "target"), **settings, checkpoints=str(tmp_path))
    for ranks in (1, 2):
        in_processes(gradients, [(rank, ranks, job, tmp_path, tmp_path / f"of-{ranks}") for rank in range(ranks)])

    alone, first, second = (torch.load(tmp_path / name) for name in ("of-1-0", "of-2-0", "of-2-1"))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, alone, rtol=1e-4, atol=1e-6)


def whole_training(rank: int, jobs: list[TrainingJob], folder: Path) -> None:
    """As one process of several machines, each of which has a folder of its own for checkpoints."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=len(jobs))
    data = Data(Samples(folder / "train"), Samples(folder / "held-out"))
    head = build_head(jobs[rank])
    result = Loop(jobs[rank], head, learner_of(head, jobs[rank], 64, CPU), data, CPU).run()
    assert result
    torch.save(head.state_dict(), folder / f"head-{rank}")


def test_machines_end_with_the_best_weights_that_the_first_one_keeps(tmp_path: Path) -> None:
    write_samples(tmp_path / "train", [20] * 8, seed=1)
    write_samples(tmp_path / "held-out", [10], seed=2)
    settings = {"batch_tokens": 60, "steps": 2, "layers": 1, "depth": 3, "learning_rate": 0.01}
    job = job_for(save_target(tmp_path / "target"), **settings)
    jobs = [job.model_copy(update={"checkpoints": str(tmp_path / f"of-{rank}")}) for rank in range(2)]
    in_processes(whole_training, [(rank, jobs, tmp_path) for rank in range(2)])

    best = torch.load(tmp_path / "of-0" / checkpoint.BEST)
    heads = [torch.load(tmp_path / f"head-{rank}") for rank in range(2)]
    for head in heads:
        torch.testing.assert_close({name: head[name] for name in best}, best, rtol=0, atol=0)
    assert not (tmp_path / "of-1").exists()
