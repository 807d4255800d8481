"""A head that is divided over processes learns what one process learns, takes less memory, and is kept whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import profile

from tests.unit.training.forked_processes import in_processes
from tests.unit.training.heads import job_for, save_target, write_samples
from toolkit.training import checkpoint
from toolkit.training.arithmetic import compute_dtype
from toolkit.training.head import build_head
from toolkit.training.job import TrainingJob, is_divided
from toolkit.training.loop import Data, Loop
from toolkit.training.samples import Samples
from toolkit.training.sharded import gathered, is_part, own, shard
from toolkit.training.trainer import learner_of, train

CPU = torch.device("cpu")
STEPS = 4


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


def job_in(folder: Path, target: Path, method: str = "p-eagle", checkpoints: str = "checkpoints") -> TrainingJob:
    """Steps of samples that processes cannot share evenly; of one step there is but one."""
    write_samples(folder / "train", [40, 6, 9, 30, 12, 21, 7, 62], seed=1)
    write_samples(folder / "held-out", [10], seed=2)
    settings = {"method": method, "batch_tokens": 60, "layers": 2, "depth": 3, "partitions": 2, "steps": STEPS}
    return job_for(target, **settings, learning_rate=0.01, checkpoints=str(folder / checkpoints))


def data_in(folder: Path) -> Data:
    return Data(Samples(folder / "train"), Samples(folder / "held-out"))


def meet(rank: int, ranks: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/met-{ranks}", rank=rank, world_size=ranks)


def learned(rank: int, ranks: int, job: TrainingJob, folder: Path) -> None:
    """Gradients of each step, and the bytes of weights and gradients here, in a file of the first process."""
    meet(rank, ranks, folder)
    head = build_head(job)
    if ranks > 1:
        shard(head, CPU, compute_dtype(CPU))
    loop = Loop(job, head, learner_of(head, job, 64, CPU), data_in(folder), CPU)
    found: dict[str, Tensor] = {}
    for step in range(STEPS):
        outcome, norm = loop.learn(step)
        of_all = gathered({name: one.grad for name, one in head.named_parameters() if one.grad is not None})
        found |= {f"{step} {name}": gradient.clone() for name, gradient in of_all.items()}
        found |= {f"{step} loss": outcome.loss, f"{step} drafts": outcome.drafts, f"{step} norm": torch.tensor(norm)}
        here = [own(one).nbytes for weight in head.parameters() for one in (weight, weight.grad) if one is not None]
        head.zero_grad()
    if rank == 0:
        torch.save((found, sum(here)), folder / f"of-{ranks}")


@pytest.mark.parametrize("method", ["p-eagle", "eagle3"])
def test_a_divided_head_has_the_gradients_of_a_whole_one_in_half_the_memory(
    method: str, target: Path, tmp_path: Path
) -> None:
    """To the rounding of what is multiplied in: norms of layers are rounded to it, too."""
    job = job_in(tmp_path, target, method)
    for ranks in (1, 2):
        in_processes(learned, [(rank, ranks, job, tmp_path) for rank in range(ranks)])
    (alone, whole), (divided, here) = (torch.load(tmp_path / f"of-{ranks}") for ranks in (1, 2))
    assert here < 0.51 * whole
    assert divided.keys() == alone.keys()
    for name, wanted in alone.items():
        rounding = 2 * torch.finfo(compute_dtype(CPU)).eps * float(wanted.abs().max())
        torch.testing.assert_close(divided[name], wanted, rtol=0, atol=rounding, msg=name)


def trained(rank: int, ranks: int, job: TrainingJob, folder: Path, end: int) -> None:
    """Up to a step, by processes that divide the head; the first one writes it to a file."""
    meet(rank, ranks, folder)
    head, result = train(job, data_in(folder), end=end, memory=lambda _: 0)
    if rank == 0:
        torch.save((head.state_dict(), result), folder / f"head-of-{ranks}")


def copies(rank: int, job: TrainingJob, folder: Path) -> None:
    """What a divided training keeps: whether a later step would change it, and how often the writer copies it."""
    meet(rank, 2, folder)
    head = build_head(job)
    shard(head, CPU, compute_dtype(CPU))
    weights = {name: weight.detach() for name, weight in head.named_parameters() if weight.requires_grad}
    kept = gathered(weights)
    before = {name: tensor.clone() for name, tensor in kept.items()}
    for weight in weights.values():
        own(weight).fill_(7)
    if rank == 0:
        stored = checkpoint.Checkpoint(1, kept, [], [], 0.0)
        with checkpoint.Writer(folder, job) as writer, profile() as told:
            writer.save(stored, best=False, is_copy=True)
        copied = sum(one.count for one in told.key_averages() if one.key == "aten::copy_")
        torch.save((before, kept, copied), folder / "kept")


def divides(rank: int, memories: tuple[int, ...], job: TrainingJob, folder: Path) -> None:
    meet(rank, len(memories), folder)
    head, _ = train(job, data_in(folder), end=1, memory=lambda _: memories[rank])
    (folder / f"divided-{rank}").write_text(str(any(map(is_part, head.parameters()))))


def test_processes_divide_a_head_where_the_one_with_the_least_memory_needs_it(target: Path, tmp_path: Path) -> None:
    job, memories = job_in(tmp_path, target), (10**12, 0)
    in_processes(divides, [(rank, memories, job, tmp_path) for rank in range(2)])
    assert [(tmp_path / f"divided-{rank}").read_text() for rank in range(2)] == ["True", "True"]


def test_what_is_kept_of_a_divided_head_is_copied_once(target: Path, tmp_path: Path) -> None:
    """Also of those of its tensors that each process has whole."""
    in_processes(copies, [(rank, job_in(tmp_path, target), tmp_path) for rank in range(2)])
    before, kept, copied = torch.load(tmp_path / "kept")
    torch.testing.assert_close(kept, before, rtol=0, atol=0)
    assert copied == 0


def in_checkpoint(job: TrainingJob) -> dict[str, Any]:
    found = torch.load(Path(job.checkpoints) / checkpoint.FILE)
    return {"weights": found["weights"], "states": [one["state"] for one in found["optimizers"]]}


def test_a_divided_head_is_kept_whole_and_taken_up_by_any_number_of_processes_to_the_last_byte(
    target: Path, tmp_path: Path
) -> None:
    """For another K the checkpoint is written again as soon as it is taken up."""
    job = job_in(tmp_path, target)
    in_processes(trained, [(rank, 2, job, tmp_path, 2) for rank in range(2)])
    kept = in_checkpoint(job)
    for ranks, drafted in ((1, 2), (3, 3)):  # parts of three processes are not alike
        other = job.model_copy(update={"num_speculative_tokens": drafted})
        in_processes(trained, [(rank, ranks, other, tmp_path, 2) for rank in range(ranks)])
        assert torch.load(Path(job.checkpoints) / checkpoint.FILE)["drafted"] == drafted
        torch.testing.assert_close(in_checkpoint(job), kept, rtol=0, atol=0)


def test_a_divided_training_ends_with_the_head_that_a_whole_one_makes(target: Path, tmp_path: Path) -> None:
    """Nearly: Muon multiplies in bfloat16, in another order where a matrix is divided. For each part alone it would
    bring other weights by half of what is learned.
    """
    heads = {}
    for ranks in (1, 2):
        job = job_in(tmp_path, target, checkpoints=f"checkpoints-{ranks}")
        in_processes(trained, [(rank, ranks, job, tmp_path, STEPS) for rank in range(ranks)])
        heads[ranks], result = torch.load(tmp_path / f"head-of-{ranks}", weights_only=False)
        assert result.steps == STEPS
        best = torch.load(Path(job.checkpoints) / checkpoint.BEST)
        torch.testing.assert_close({name: heads[ranks][name] for name in best}, best, rtol=0, atol=0)
    assert heads[2].keys() == heads[1].keys()
    begun = build_head(job).state_dict()
    for name in best:
        learned = heads[1][name] - begun[name]
        assert (heads[2][name] - heads[1][name]).norm() < 0.25 * learned.norm(), name


@pytest.mark.parametrize(
    ("method", "weights", "memory", "processes", "divided"),
    [("p-eagle", 100, 3_000, 2, True), ("p-eagle", 100, 3_200, 2, False), ("eagle3", 100, 3_000, 1, False),
     ("eagle3", 100, 3_000, 8, True), ("dflash", 100, 3_000, 8, False)],
)  # fmt: skip
def test_a_head_is_divided_where_it_takes_more_than_half_of_a_memory(
    method: str, weights: int, memory: float, processes: int, divided: bool
) -> None:
    assert is_divided(method, weights, memory, processes) is divided
