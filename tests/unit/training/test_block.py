"""Heads that draft in blocks learn what they learn in speculators' own forward pass, whatever goes at a time."""

from dataclasses import replace

import pytest
import torch
from speculators.losses.eager import kl_div_loss, tv_loss
from speculators.models.dflash import DFlashDraftModel
from speculators.models.dspark import DSparkDraftModel
from torch import Tensor
from torch.nn import functional

from tests.unit.training.heads import VOCAB, assert_same, gradients, job_for, random_lesson, save_target
from toolkit.training.block import MOST_BLOCKS, BlockLearner
from toolkit.training.head import build_head
from toolkit.training.job import IN_BLOCKS, TrainingJob
from toolkit.training.learn import Lesson
from toolkit.training.trainer import learner_of
from toolkit.training.vocabulary import Vocabulary

DEPTHS, TOKENS = 5, 48


@pytest.fixture(scope="module", params=IN_BLOCKS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    return job_for(save_target(tmp_path_factory.mktemp("target")), method=request.param, depth=DEPTHS)


@pytest.fixture(scope="module")
def head(job: TrainingJob) -> DFlashDraftModel:
    return built(job)


def built(job: TrainingJob, vocabulary: Vocabulary | None = None) -> DFlashDraftModel:
    """With all that depends on the token before a draft in the order of all else: a new head hardly heeds it."""
    head = build_head(job, vocabulary)
    assert isinstance(head, DFlashDraftModel)
    if isinstance(head, DSparkDraftModel):
        assert head.markov_head
        torch.nn.init.normal_(head.markov_head.markov_w1.weight)
    return head


def in_speculators(head: DFlashDraftModel, sequence: Lesson) -> Tensor:
    """Its mean loss. It reads a token beside its own hidden state; the first token and the last state are not used."""
    without_triton = {"tv_loss_fn": tv_loss} if isinstance(head, DSparkDraftModel) else {}
    loss: Tensor = head(
        hidden_states=functional.pad(sequence.hidden_states, (0, 0, 0, 1))[None],
        input_ids=functional.pad(sequence.input_ids, (1, 0))[None],
        loss_mask=functional.pad(sequence.loss_mask, (1, 0))[None],
        verifier_last_hidden_states=functional.pad(sequence.last_hidden_states, (0, 0, 1, 0))[None],
        document_ids=torch.zeros(1, len(sequence) + 1, dtype=torch.long),
        loss_config={"kl_div": (kl_div_loss, 1.0)},
        max_anchors=MOST_BLOCKS,
        **without_triton,
    )[1]
    return loss


@pytest.mark.parametrize("drafted", [VOCAB, VOCAB // 3])
def test_loss_and_gradients_are_those_of_speculators(job: TrainingJob, drafted: int) -> None:
    ids = torch.arange(0, VOCAB, VOCAB // drafted)
    t2d = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, value=True)
    head = built(job, Vocabulary(t2d=t2d, d2t=ids - torch.arange(drafted)) if drafted < VOCAB else None)
    sequence = random_lesson(TOKENS)
    sequence.loss_mask[20:24] = 0  # between two answers
    learner = BlockLearner(head, kl_div_loss, DEPTHS)
    torch.manual_seed(1)
    found = learner.learn(sequence)

    def upstream() -> None:
        torch.autograd.backward(in_speculators(head, sequence) * found.count)

    assert found.count > TOKENS
    assert float(found.loss) / found.count == pytest.approx(float(in_speculators(head, sequence).detach()), rel=1e-4)
    theirs = gradients(head, upstream)
    assert {name for name, _ in head.named_parameters()} - theirs.keys() == {
        *("embed_tokens.weight", "lm_head.weight"),
        *(name for name, _ in head.named_parameters() if name.startswith("verifier_")),
    }
    assert_same(gradients(head, lambda: learner.learn(sequence)), theirs)


@pytest.mark.parametrize("blocks", [1, 7])
def test_the_gradients_of_a_few_blocks_at_a_time_are_those_of_all_at_once(head: DFlashDraftModel, blocks: int) -> None:
    sequence = random_lesson(TOKENS)
    whole = BlockLearner(head, kl_div_loss, DEPTHS)

    assert_same(
        gradients(head, lambda: replace(whole, blocks_at_once=blocks).learn(sequence)),
        gradients(head, lambda: whole.learn(sequence)),
    )


def test_what_saves_time_on_a_cpu_leaves_the_gradients_as_they_are(head: DFlashDraftModel, job: TrainingJob) -> None:
    """Plain attention, and padding behind the end."""
    sequence = random_lesson(TOKENS + 1)
    same = built(job)
    quick = learner_of(same, job, TOKENS + 1, torch.device("cpu"))
    assert isinstance(quick, BlockLearner)
    assert (TOKENS + 1) % quick.rows

    slow = BlockLearner(head, kl_div_loss, DEPTHS)
    assert_same(
        gradients(same, lambda: quick.learn(sequence)),
        gradients(head, lambda: slow.learn(sequence)),
    )


def test_nothing_is_learned_of_an_answer_that_is_shorter_than_a_block(head: DFlashDraftModel) -> None:
    learner = BlockLearner(head, kl_div_loss, DEPTHS)
    short = random_lesson(head.block_size + 3)
    assert learner.learn(short).count == 0
    assert learner.evaluate(short).count > 0


def test_every_token_of_an_answer_begins_a_block_when_a_head_is_evaluated(head: DFlashDraftModel) -> None:
    """Also the last ones, whose blocks reach beyond the end, where no draft is right."""
    sequence = random_lesson(TOKENS)
    anchors = sequence.loss_mask.nonzero()[:, 0].tolist()
    # A text that goes on as the head drafts from the fifth token before its end
    before_end = len(anchors) - 5
    told = sequence.input_ids.clone()
    told[-4:] = torch.tensor(drafts(head, sequence)[before_end][:4])
    found = BlockLearner(head, kl_div_loss, DEPTHS).evaluate(replace(sequence, input_ids=told))

    assert found.right[anchors[before_end]].tolist() == [True] * 4 + [False]
    assert not found.right[-1].any()
    learned = len(sequence) - (1 if type(head) is DFlashDraftModel else 0)
    assert found.count == sum(min(DEPTHS, learned - anchor) for anchor in anchors)


@torch.no_grad()
def drafts(head: DFlashDraftModel, sequence: Lesson) -> list[list[int]]:
    """What an engine drafts from each token of the answer; with DSpark, each token by the one that it drafted before.

    As vLLM 0.32 does it (v1/worker/gpu/spec_decode/dspark/speculator.py, `_sample_sequential`).
    """
    scored: list[Tensor] = []
    hook = head.lm_head.register_forward_hook(lambda _, __, logits: scored.append(logits))
    BlockLearner(head, kl_div_loss, DEPTHS).evaluate(sequence)
    hook.remove()
    before, drafted = sequence.input_ids[sequence.loss_mask.bool()], []
    for logits in scored[0].unbind(dim=1):
        if isinstance(head, DSparkDraftModel):
            assert head.markov_head
            logits = logits + head.markov_head.markov_w2(head.markov_head.markov_w1(before))
        before = logits.argmax(dim=-1)
        drafted.append(before)
    return torch.stack(drafted, dim=1).tolist()
