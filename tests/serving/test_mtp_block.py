"""A target's own block for drafting, trained on: vLLM serves it beside the target, and has what the trainer says."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_vllm import ForkedVllm
from test_acceptance_of_trainer import samples_of

from tests.unit.training.heads import save_own_block_target
from toolkit.recipe.known import catalogue_dir
from toolkit.training.__main__ import main
from toolkit.training.acceptance import acceptance_of
from toolkit.training.head import build_head
from toolkit.training.job import TrainingJob
from toolkit.training.loop import walks_of
from toolkit.training.trainer import learner_of

pytestmark = pytest.mark.serving

TINY = catalogue_dir() / "tiny"
DRAFTED, TOKENS = 3, 64


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """The block has learned what its target answers; it was random before."""
    folder = tmp_path_factory.mktemp("block")
    with (TINY / "training" / "general.jsonl").open() as stream:
        (folder / "data.jsonl").write_text("".join(islice(stream, 60)))
    job = TrainingJob(
        name="block",
        method="mtp",
        target=str(save_own_block_target(folder / "target")),
        target_name="target",
        data=(str(folder / "data.jsonl"),),
        max_new_tokens=TOKENS,
        held_out=0.15,
        max_length=160,
        dtype="float32",
        layers=1,
        depth=DRAFTED,
        steps=14,
        batch_tokens=512,
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


@pytest.fixture(scope="module")
def served(vllm: ForkedVllm, job: TrainingJob) -> dict[str, Any]:
    """What vLLM answers without the block, with the one that the checkpoint has, and with the trained one."""
    prompts = [json.loads(line)["prompt"] for line in (TINY / "prompts" / "structured.jsonl").read_text().splitlines()]
    common = {"model": job.target, "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "enforce_eager": True}
    own = {"method": "mtp", "num_speculative_tokens": DRAFTED}
    found = {}
    for name, drafting in {"none": {}, "own": own, "trained": {**own, "model": job.head}}.items():
        speculating = {"speculative_config": drafting} if drafting else {}
        arguments = {**common, **speculating, "disable_log_stats": False, "kv_cache_memory_bytes": 2**26}
        (found[name],) = vllm.run("answers", arguments=arguments, texts=[prompts], tokens=TOKENS)
    return found


def in_vllm(served: dict[str, Any], name: str) -> float:
    return 1 + float(served[name]["accepted"]) / float(served[name]["steps"])


def test_it_is_served_lossless_and_accepted_more_than_the_one_before(served: dict[str, Any]) -> None:
    assert served["trained"]["tokens"] == served["own"]["tokens"] == served["none"]["tokens"]
    assert in_vllm(served, "trained") > 1.2 * in_vllm(served, "own")


def test_the_trainers_acceptance_length_is_that_of_vllm(
    job: TrainingJob, served: dict[str, Any], tmp_path: Path
) -> None:
    """Of the block as it was written, which is taken up again as one to continue."""
    again = job.model_copy(update={"start_from": job.head})
    head = build_head(again)
    head.eval()
    samples = samples_of(served["trained"]["prompts"], served["trained"]["tokens"], again, tmp_path)
    learner = learner_of(head, again, 1024, torch.device("cpu"))
    trainer = acceptance_of(walks_of(learner, samples, range(len(samples)), DRAFTED, torch.device("cpu"))[0])

    print(f"vLLM {in_vllm(served, 'trained'):.3f}, before {in_vllm(served, 'own'):.3f}, trainer {trainer}")
    assert all(share > 0.02 for share in trainer.per_depth)
    assert trainer.length == pytest.approx(in_vllm(served, "trained"), rel=0.02)
