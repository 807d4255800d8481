"""The acceptance length that the trainer tells is the one that vLLM has, on the same tokens."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from forked_vllm import ForkedVllm, llm_arguments
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

import toolkit
from toolkit.recipe.known import catalogue_dir
from toolkit.training.acceptance import Acceptance, acceptance_of
from toolkit.training.head import build_head, layers_read
from toolkit.training.job import TrainingJob
from toolkit.training.learn import Learner, lesson
from toolkit.training.loop import walks_of
from toolkit.training.samples import Sample, Samples, SampleWriter, states_file, write_tensors
from toolkit.training.states import Extractor, load_target
from toolkit.training.trainer import learner_of
from toolkit.training.vocabulary import Vocabulary, draft_vocabulary, head_vocabulary

pytestmark = pytest.mark.serving

TINY = catalogue_dir() / "tiny"
TARGET, SHIPPED = TINY / "models" / "target", TINY / "models"
TOKENS, REDUCED = 128, 500
CPU = torch.device("cpu")
PROMPTS = {
    "easy": [json.loads(line)["prompt"] for line in (TINY / "prompts" / "structured.jsonl").read_text().splitlines()],
    "hard": [
        "Tell me a story about the owl and the kite.",
        "Why do the otters sleep?",
        "Write a poem about a lamp, a lemon and 12 books.",
        "What is left of the old harbour?",
        "Compare the fox with the river.",
        "Name three things that a baker never says.",
        "Explain to a child how rain is made.",
        "The violin and the lantern: who wins?",
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Of one head and text: what the trainer says, with every position alike for comparison, and what vLLM had."""

    trainer: Acceptance
    all_alike: float
    vllm: float


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped P-EAGLE head, drafting some tokens only: those that its training data has most often."""
    folder = tmp_path_factory.mktemp("reduced") / "p-eagle"
    shutil.copytree(SHIPPED / "p-eagle", folder)
    tensors = load_file(folder / "model.safetensors")
    texts = (TINY / "training" / "general.jsonl").read_text()[:200_000]
    tokens = AutoTokenizer.from_pretrained(TARGET)(texts)["input_ids"]
    counts = torch.bincount(torch.tensor(tokens), minlength=len(tensors["lm_head.weight"]))
    vocabulary = draft_vocabulary(counts, REDUCED, range(8))
    tensors |= {"lm_head.weight": tensors["lm_head.weight"][vocabulary.t2d], **vars(vocabulary)}
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "draft_vocab_size": REDUCED}))
    return folder


@pytest.mark.parametrize("head", ["p-eagle", "eagle3", "reduced"])
def test_the_trainers_acceptance_length_is_that_of_vllm(
    vllm: ForkedVllm, tmp_path: Path, reduced: Path, head: str
) -> None:
    folder = reduced if head == "reduced" else SHIPPED / head
    found = told(vllm, "eagle3" if head == "eagle3" else "p-eagle", folder, tmp_path)

    for text, one in found.items():
        print(f"{head}, {text}: vLLM {one.vllm:.3f}, trainer {one.trainer}, all positions alike {one.all_alike:.3f}")
        assert one.trainer.conversations == len(PROMPTS[text])
        assert one.trainer.low is not None
        assert one.trainer.high is not None
        assert one.trainer.low <= one.vllm <= one.trainer.high
        assert one.trainer.length == pytest.approx(one.vllm, rel=0.05)
    assert found["hard"].all_alike > 1.1 * found["hard"].vllm  # what the walk is for


def told(vllm: ForkedVllm, method: str, head: Path, folder: Path) -> dict[str, Told]:
    """vLLM answers with the head, and the trainer walks over these answers."""
    recipe = toolkit.load(f"tiny/{method}")
    arguments = llm_arguments(recipe)
    arguments["speculative_config"]["model"] = str(head)
    drafted = arguments["speculative_config"]["num_speculative_tokens"]
    job = TrainingJob(
        name="x",
        method="p-eagle" if method == "p-eagle" else "eagle3",
        target=str(TARGET),
        target_name="target",
        data=(),
        layers=json.loads((head / "config.json").read_text())["num_hidden_layers"],
        depth=drafted,
        num_speculative_tokens=drafted,
        start_from=str(head),
    )
    built = build_head(job, vocabulary_of(head))
    built.eval()
    learner = learner_of(built, job, 1024, CPU)
    found = {}
    served = vllm.run("answers", arguments=arguments, texts=list(PROMPTS.values()), tokens=TOKENS)
    for text, one in zip(PROMPTS, served, strict=True):
        samples = samples_of(one["prompts"], one["tokens"], job, folder / text)
        walks, _ = walks_of(learner, samples, range(len(samples)), drafted, CPU)
        alike = mean_over_positions(learner, samples)
        found[text] = Told(acceptance_of(walks), alike, 1 + one["accepted"] / one["steps"])
    return found


def mean_over_positions(learner: Learner, samples: Samples) -> float:
    """The acceptance length if an engine stood at each position as often as at any other."""
    right = [learner.evaluate(lesson(samples[i], samples.states(i), CPU)).right for i in range(len(samples))]
    learned = [samples[i].loss_mask[1:].bool() for i in range(len(samples))]
    runs = torch.cat([one[mask].long().cumprod(dim=1) for one, mask in zip(right, learned, strict=True)])
    return 1 + float(runs.sum(dim=1).float().mean())


def samples_of(prompts: list[list[int]], answers: list[list[int]], job: TrainingJob, folder: Path) -> Samples:
    """vLLM's answers with the target's states, as a training has them."""
    with SampleWriter(folder, "tokenizer") as writer:
        for prompt, answer in zip(prompts, answers, strict=True):
            mask = [0] * len(prompt) + [1] * len(answer)
            writer.add(Sample(torch.tensor(prompt + answer, dtype=torch.int32), torch.tensor(mask, dtype=torch.uint8)))
    samples = Samples(folder)
    assert len(samples.shards) == 1
    extractor = Extractor(load_target(job.target, dtype="float32"), layers_read(job))
    write_tensors(states_file(folder, 0), vars(extractor.states([one.input_ids for one in samples])), {})
    return samples


def vocabulary_of(head: Path) -> Vocabulary | None:
    return head_vocabulary(head, json.loads((head / "config.json").read_text())["vocab_size"])
