"""A very small random target and random lessons from it, so that a training step takes milliseconds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from toolkit.training.job import TrainingJob
from toolkit.training.learn import Lesson
from toolkit.training.loop import Data
from toolkit.training.samples import Sample, Samples, SampleWriter, states_file, write_tensors

torch.set_num_threads(1)  # matrices are so small here that threads only wait for each other

SHIPPED = Path(__file__).parents[3] / "recipes" / "tiny" / "models" / "target"
VOCAB, HIDDEN, LAYERS = 1440, 32, 6
"""The vocabulary is that of the shipped tokenizer."""


def random_target() -> Qwen3ForCausalLM:
    """Always the same one."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]


def save_target(folder: Path) -> Path:
    """A random target with the shipped tokenizer."""
    random_target().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / name, folder)
    return folder


def job_for(target: Path, **changes: object) -> TrainingJob:
    job = TrainingJob(
        name="head", method="p-eagle", target=str(target), target_name="org/target", data=(), layers=2, depth=5, steps=1
    )
    return job.model_copy(update=changes)


def random_lesson(tokens: int, seed: int = 0) -> Lesson:
    """A prompt of four tokens, and an answer."""
    generator = torch.Generator().manual_seed(seed)
    loss_mask = torch.ones(tokens, dtype=torch.long)
    loss_mask[:4] = 0
    return Lesson(
        torch.randint(VOCAB, (tokens,), generator=generator),
        loss_mask,
        torch.randn(tokens, 3 * HIDDEN, generator=generator),
        torch.randn(tokens, HIDDEN, generator=generator),
    )


def write_samples(folder: Path, lengths: Sequence[int], seed: int) -> None:
    """Samples that all follow one rule, a cycle of tokens, with random hidden states of their tokens.

    The last ones are such that the random target would say the next token of the cycle, too.
    """
    generator = torch.Generator().manual_seed(7)
    cycle = torch.randperm(VOCAB, generator=generator)[:12]
    states = torch.randn(VOCAB, 3 * HIDDEN, generator=generator)
    said = random_target().get_input_embeddings().weight.detach().clone()  # of a token, what the target says after it
    said[cycle] = said[cycle.roll(-1)]
    random = torch.Generator().manual_seed(seed)
    with SampleWriter(folder, "tokenizer") as writer:
        shard = []
        for tokens in lengths:
            start = int(torch.randint(12, (), generator=random))
            shard.append(cycle[(torch.arange(tokens) + start) % 12].to(torch.int32))
            loss_mask = torch.ones(tokens, dtype=torch.uint8)
            loss_mask[:4] = 0
            writer.add(Sample(shard[-1], loss_mask))
    tokens_read = torch.cat(shard).long()
    parts = {"hidden_states": states[tokens_read], "last_hidden_states": said[tokens_read]}
    write_tensors(states_file(folder, 0), parts, {})


def write_data(folder: Path) -> Data:
    write_samples(folder / "train", [20] * 24, seed=1)
    write_samples(folder / "held-out", [20] * 4, seed=2)
    return Data(Samples(folder / "train"), Samples(folder / "held-out"))


def gradients(head: nn.Module, learn: Callable[[], object]) -> dict[str, Tensor]:
    head.zero_grad()
    torch.manual_seed(1)
    learn()
    return {name: value.grad.clone() for name, value in head.named_parameters() if value.grad is not None}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()), msg=name)
