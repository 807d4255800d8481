"""A very small random target and random lessons from it, so that a training step takes milliseconds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM

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
    return _with_tokenizer(folder)


def save_own_block_target(folder: Path, layer_types: Sequence[str] = ("full_attention",) * 2) -> Path:
    """A target with a random block of its own to draft with, by the names that Qwen3-Next's checkpoints have.

    What it says next is often the token before its last one in the vocabulary, so that something can be learned.
    """
    torch.manual_seed(0)
    config = Qwen3NextConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=len(layer_types),
        layer_types=list(layer_types),
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # the least that vLLM takes on a CPU
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        max_position_embeddings=256,
        initializer_range=0.1,
    )
    target = Qwen3NextForCausalLM(config)  # type: ignore[no-untyped-call]
    target.model.embed_tokens.weight.data.normal_()
    target.lm_head.weight.data = target.model.embed_tokens.weight.data.roll(1, 0)
    target.save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    last = f"model.layers.{len(layer_types) - 1}."
    layer = {name.replace(last, "mtp.layers.0."): value for name, value in stored.items() if name.startswith(last)}
    norms = {
        f"mtp.{name}.weight": 0.1 * torch.randn(HIDDEN)
        for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
    }
    block = {name: value + 0.02 * torch.randn_like(value) for name, value in layer.items()}
    stored |= block | norms | {"mtp.fc.weight": 0.1 * torch.randn(HIDDEN, 2 * HIDDEN)}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    return _with_tokenizer(folder)


def _with_tokenizer(folder: Path) -> Path:
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
