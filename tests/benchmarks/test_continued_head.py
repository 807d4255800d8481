"""What the shipped head gains from chats of four questions, and what it forgets of single ones: docs/training.md.

Five minutes on two cores, a quarter of an hour on busy ones.

    python -m pytest tests/benchmarks/test_continued_head.py -s
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from toolkit.measure.statistics import Pair, speedup
from toolkit.training.__main__ import prepare, run
from toolkit.training.acceptance import Walk, acceptance_of
from toolkit.training.head import build_head
from toolkit.training.job import TrainingJob
from toolkit.training.loop import walks_of
from toolkit.training.samples import TRAIN, Samples
from toolkit.training.trainer import learner_of
from tools.tiny.conversations import Conversation, Target, answered, conversation, lines, shifted
from tools.tiny.corpus import examples

TINY = Path(__file__).parents[2] / "recipes" / "tiny"
SHIPPED = TINY / "models" / "p-eagle"
K, UNSEEN_CHATS, UNSEEN_QUESTIONS = 7, 18, 19  # seeds of which nothing else is made


def job_of(folder: Path, data: Sequence[Path], **changes: object) -> TrainingJob:
    job = TrainingJob(
        name="continued",
        method="p-eagle",
        target=str(TINY / "models" / "target"),
        target_name="target",
        data=tuple(map(str, data)),
        responses="keep",
        layers=2,
        depth=16,
        max_length=1024,
        steps=60,
        batch_tokens=2048,
        learning_rate=1e-3,
        start_from=str(SHIPPED),
        dtype="float32",
        checkpoints=str(folder / "checkpoints"),
        work=str(folder / "work"),
        head=str(folder / "head"),
    )
    return job.model_copy(update=changes)


def walks(job: TrainingJob, head: Path) -> list[Walk]:
    """How an engine with the head would go through each of the job's samples."""
    samples, cpu = Samples(Path(job.work) / TRAIN), torch.device("cpu")
    built = build_head(job.model_copy(update={"start_from": str(head)}))
    built.eval()
    learner = learner_of(built, job, max(samples.lengths), cpu)
    return walks_of(learner, samples, range(len(samples)), K, cpu)[0]


def ratio(before: list[Walk], after: list[Walk]) -> tuple[float, float, float]:
    """The ratio of acceptance lengths at K, with its interval over the paired samples."""
    both = enumerate(zip(before, after, strict=True))
    pairs = [Pair(index, new.tokens, new.steps, old.tokens, old.steps) for index, (old, new) in both]
    found = speedup(pairs)
    assert found
    return found.ratio, found.low, found.high


@pytest.mark.timeout(1200)
def test_a_continued_head_gains_on_its_new_traffic_and_forgets_little(tmp_path: Path) -> None:
    target = Target(TINY / "models" / "target")
    asked = answered(list(examples(UNSEEN_QUESTIONS, 60)), target)
    unseen: dict[str, Sequence[Conversation]] = {
        "chats": target.talk(shifted(UNSEEN_CHATS, 48)),
        "single questions": [conversation(one) for one in asked],
    }
    some = tmp_path / "general.jsonl"
    general = (TINY / "training" / "general.jsonl").read_text().splitlines(keepends=True)
    some.write_text("".join(general[:200]))
    run(job_of(tmp_path, [TINY / "training" / "shifted.jsonl", some]))
    gains = {}
    for name, conversations in unseen.items():
        data = tmp_path / f"{name}.jsonl"
        data.write_text(lines(conversations))
        job = job_of(tmp_path / name, [data], held_out=0.001)
        prepare(job)
        gains[name] = ratio(walks(job, SHIPPED), walks(job, tmp_path / "head"))
        for which, head in (("before", SHIPPED), ("after", tmp_path / "head")):
            print(f"{name}, {which}: {acceptance_of(walks(job, head))}")
        print(f"{name}: {gains[name][0]:.3f} times ({gains[name][1]:.3f}-{gains[name][2]:.3f})")
    assert gains["chats"][1] > 1.05
    assert gains["single questions"][2] > 0.97
