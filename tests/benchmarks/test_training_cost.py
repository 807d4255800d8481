"""Memory that the partition of a sequence saves; time of a step, its masks and its optimizer. Prints; asserts nothing.

Shapes are a model's in small: the vocabulary is 64 times the hidden size, which is about Qwen3-4B's ratio, and
depth 8 with the paper's conditional drop of 0.8. Every figure of memory is that of a process of its own.

    python -m pytest tests/benchmarks/test_training_cost.py -s
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from statistics import median

import pytest
import torch
from speculators.losses.eager import kl_div_loss
from speculators.models.attention import create_float_mask
from speculators.models.peagle import PEagleDraftModel
from speculators.models.peagle.attention import create_peagle_mask_mod
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.unit.training.heads import SHIPPED, job_for
from toolkit.training.arithmetic import InFloat32, compute_dtype
from toolkit.training.head import build_head
from toolkit.training.learn import Lesson, PEagleLearner
from toolkit.training.partition import DraftMasks, sample_drafts

HIDDEN, VOCAB, DEPTH, KEEP = 256, 64 * 256, 8, 0.8
LONGEST = 4096
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> PEagleDraftModel:
    folder = tmp_path_factory.mktemp("target")
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / name, folder)
    built = build_head(job_for(folder, layers=4, depth=DEPTH))
    assert isinstance(built, PEagleDraftModel)
    for parameter in built.parameters():  # their gradients are there in every case
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    return built


def lesson(tokens: int) -> Lesson:
    return Lesson(
        torch.randint(VOCAB, (tokens,)),
        torch.ones(tokens, dtype=torch.long).index_fill(0, torch.tensor(0), 0),
        torch.randn(tokens, 3 * HIDDEN),
        torch.randn(tokens, HIDDEN),
    )


def speculators_step(head: PEagleDraftModel, sequence: Lesson) -> None:
    """One step as speculators does it: the whole sequence forth, and back."""
    _, loss, _ = head(
        hidden_states=sequence.hidden_states[None],
        input_ids=sequence.input_ids[None],
        document_ids=torch.zeros_like(sequence.input_ids)[None],
        loss_mask=sequence.loss_mask[None],
        verifier_last_hidden_states=sequence.last_hidden_states[None],
        loss_config={"kl_div": (kl_div_loss, 1.0)},
        num_depths=DEPTH,
        down_sample_ratio=KEEP,
    )
    loss.backward()


def our_step(head: PEagleDraftModel, sequence: Lesson, segments: int) -> None:
    masks = DraftMasks(len(sequence), torch.float32, CPU)
    PEagleLearner(head, masks, kl_div_loss, DEPTH, segments, KEEP).learn(sequence)


def peak_megabytes(step: Callable[[], None]) -> float:
    """By how much a step raises the process's highest use of memory."""
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()

    def measure() -> None:
        torch.set_num_threads(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step()
        found.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)

    process = context.Process(target=measure)
    process.start()
    process.join()
    assert process.exitcode == 0
    return float(found.get())


def test_memory_by_sequence_length(head: PEagleDraftModel) -> None:
    print(f"\npeak memory of a step, MB; 4 layers, hidden size {HIDDEN}, {VOCAB} tokens, depth {DEPTH}")
    rows = [(f"{segments} segments", segments) for segments in (1, 4, 16)]
    lengths = {"speculators": (128, 256, 512), "1 segments": (512,), "4 segments": (512, 1024), "16 segments": ()}
    lengths["16 segments"] = (512, 1024, 2048)
    for tokens in lengths["speculators"]:
        used = peak_megabytes(lambda tokens=tokens: speculators_step(head, lesson(tokens)))
        print(f"  whole sequence (speculators)  {tokens:5} tokens  {used:7.0f}")
    for name, segments in rows:
        for tokens in lengths[name]:
            used = peak_megabytes(lambda tokens=tokens, segments=segments: our_step(head, lesson(tokens), segments))
            print(f"  {name:28}  {tokens:5} tokens  {used:7.0f}")


def test_time_of_mask_preparation() -> None:
    torch.set_num_threads(1)
    started = time.perf_counter()
    masks = DraftMasks(LONGEST, torch.float32, CPU)
    print(f"\nmasks: once for {LONGEST} tokens {time.perf_counter() - started:.3f} s; then by sequence, seconds")
    for tokens in (256, 512, 1024):
        drafts = sample_drafts(lesson(tokens).loss_mask, DEPTH, KEEP, 0.2)
        started = time.perf_counter()
        masks.of(drafts, tokens)
        sliced = time.perf_counter() - started
        anchor = torch.cat([torch.arange(tokens), drafts.anchor])
        depth = torch.cat([torch.zeros(tokens, dtype=torch.long), drafts.depth])
        mask_mod = create_peagle_mask_mod(anchor, depth, torch.zeros(tokens, dtype=torch.long))
        started = time.perf_counter()
        create_float_mask(mask_mod, Q_LEN=len(anchor), KV_LEN=len(anchor), device="cpu", dtype=torch.float32)
        fresh = time.perf_counter() - started
        print(f"  {tokens:5} tokens  sliced {sliced:.4f}  anew (speculators) {fresh:.4f}  {fresh / sliced:5.0f} x")


def test_tokens_per_second_of_a_step(head: PEagleDraftModel) -> None:
    """By turns, on one core, in CPU time: what else the machine does counts little."""
    torch.set_num_threads(1)
    learner = PEagleLearner(head, DraftMasks(LONGEST, torch.float32, CPU), kl_div_loss, DEPTH, 1, KEEP)
    print("\ntokens a second of a core, forth and back; median of 5 steps by turns")
    for tokens in (128, 256, 512):
        took: dict[str, list[float]] = {"ours": [], "speculators": []}
        for _ in range(5):
            sequence = lesson(tokens)
            for name, step in (("ours", learner.learn), ("speculators", partial(speculators_step, head))):
                started = time.process_time()
                step(sequence)
                took[name].append(time.process_time() - started)
        ours, theirs = (tokens / median(took[name]) for name in ("ours", "speculators"))
        print(f"  {tokens:5} tokens  ours {ours:6.0f}  speculators {theirs:6.0f}  {ours / theirs:5.2f} x")


def test_time_of_an_optimizers_step(head: PEagleDraftModel) -> None:
    """Muon multiplies in bfloat16; by turns, on one core, in CPU time."""
    torch.set_num_threads(1)
    matrices = [parameter for parameter in head.layers.parameters() if parameter.ndim == 2]
    optimizer: torch.optim.Optimizer = torch.optim.Muon([nn.Parameter(torch.randn_like(matrix)) for matrix in matrices])
    contexts = {"in float32": InFloat32, "as the CPU does it": nullcontext}
    took: dict[str, list[float]] = {name: [] for name in contexts}
    for _ in range(3):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.randn_like(parameter)
        for name, context in contexts.items():
            with context():
                started = time.process_time()
                optimizer.step()
                took[name].append(time.process_time() - started)
    (ours, plain) = map(median, took.values())
    weights, has_it = sum(matrix.numel() for matrix in matrices), compute_dtype(CPU) == torch.bfloat16
    print(f"\na step of Muon, {weights / 1e6:.1f} M weights; arithmetic in bfloat16: {has_it}")
    print(f"  in float32 {ours:.2f} s  as the CPU does it {plain:.2f} s  {plain / ours:.1f} x")
