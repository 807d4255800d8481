"""Heads of three methods, trained side by side for a short time: vLLM serves all, and has what the comparison says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_vllm import ForkedVllm, llm_arguments
from test_acceptance_of_trainer import samples_of

import toolkit
from toolkit.api.head_comparison import compare_heads
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.model_files import read_folder
from toolkit.training.__main__ import main
from toolkit.training.acceptance import acceptance_of
from toolkit.training.head import build_head
from toolkit.training.job import ComparedHead, TrainingJob
from toolkit.training.loop import walks_of
from toolkit.training.trainer import learner_of

pytestmark = pytest.mark.serving

TINY = catalogue_dir() / "tiny"
TARGET = TINY / "models" / "target"
DRAFTED, TOKENS = 5, 96
HEADS = (
    ComparedHead(method="p-eagle", layers=1, depth=6),
    ComparedHead(method="eagle3", layers=1, depth=DRAFTED),
    ComparedHead(method="dflash", layers=1, depth=DRAFTED),
)
METHODS: list[str] = [head.method for head in HEADS]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """All have learned a little of records in JSON, and nothing of other texts; that of EAGLE-3 is one of EAGLE-3.1."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "data.jsonl").write_text("".join(islice(records(), 100)))
    job = TrainingJob(
        name="compared",
        method="p-eagle",
        compare=HEADS,
        norms=True,
        target=str(TARGET),
        target_name="target",
        data=(str(folder / "data.jsonl"),),
        responses="keep",
        held_out=0.08,
        max_length=160,
        dtype="float32",
        steps=40,
        batch_tokens=384,
        learning_rate=0.01,
        num_speculative_tokens=DRAFTED,
        checkpoints=str(folder / "checkpoints"),
        work=str(folder / "work"),
        head=str(folder / "head"),
    )
    job.write(folder)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices are so small that threads only wait for each other
    try:
        assert main(folder) == 0
    finally:
        torch.set_num_threads(before)
    return job


def records() -> Iterator[str]:
    with (TINY / "training" / "general.jsonl").open() as stream:
        yield from (line for line in stream if '{\\"' in line)


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return [json.loads(line)["prompt"] for line in (TINY / "prompts" / "structured.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def served(vllm: ForkedVllm, job: TrainingJob, prompts: list[str]) -> dict[str, Any]:
    """What vLLM answers with each head, and without one."""
    arguments = llm_arguments(toolkit.load("tiny/p-eagle").baseline())
    found = {}
    for method in ("none", *METHODS):
        drafting = {
            "method": "dflash" if method == "dflash" else "eagle3",
            "model": str(Path(job.head) / method),
            "num_speculative_tokens": DRAFTED,
            **({"parallel_drafting": True} if method == "p-eagle" else {}),
        }
        speculating = {} if method == "none" else {"speculative_config": drafting}
        (found[method],) = vllm.run("answers", arguments=arguments | speculating, texts=[prompts], tokens=TOKENS)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_each_head_is_served_lossless_and_accepted(served: dict[str, Any], method: str) -> None:
    assert served[method]["tokens"] == served["none"]["tokens"]
    assert served[method]["drafted"] == DRAFTED * served[method]["steps"]
    assert 1 + served[method]["accepted"] / served[method]["steps"] > 1.05  # after 40 steps of training


@pytest.mark.parametrize("method", METHODS)
def test_the_trainers_acceptance_length_is_that_of_vllm(
    job: TrainingJob, served: dict[str, Any], tmp_path: Path, method: str
) -> None:
    """Of the head as it was written, which is taken up again as one to continue."""
    (own,) = (head for head in job.heads if head.method == method)
    again = own.model_copy(update={"start_from": str(Path(job.head) / method)})
    head = build_head(again)
    head.eval()
    samples = samples_of(served[method]["prompts"], served[method]["tokens"], again, tmp_path)
    learner = learner_of(head, again, 1024, torch.device("cpu"))
    trainer = acceptance_of(walks_of(learner, samples, range(len(samples)), DRAFTED, torch.device("cpu"))[0])

    in_vllm = 1 + served[method]["accepted"] / served[method]["steps"]
    print(f"{method}: vLLM {in_vllm:.3f}, trainer {trainer}")
    assert trainer.low is not None
    assert trainer.high is not None
    assert trainer.low <= in_vllm <= trainer.high
    assert trainer.length == pytest.approx(in_vllm, rel=0.05)


def test_the_comparison_takes_the_head_with_more_tokens_for_what_it_reads(job: TrainingJob) -> None:
    reports = {method: json.loads((Path(job.head) / method / "report.json").read_text()) for method in METHODS}
    found = compare_heads(Path(job.head), reports, read_folder(TARGET))
    print(found.to_dict())
    speeds = [head.expected_speed for head in found.heads]
    assert None not in speeds
    assert len({head.held_out_conversations for head in found.heads}) == 1
    assert found.heads[0].held_out_conversations > 5
    assert all(head.read_share is not None and 0 < head.read_share < DRAFTED for head in found.heads)
    assert found.best == max(found.heads, key=lambda head: head.expected_speed or 0).method
