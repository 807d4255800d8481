"""A DFlash head learns what it learns in speculators' own forward pass, however many blocks go through it at a time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from speculators.losses.eager import kl_div_loss
from speculators.models.dflash import DFlashDraftModel
from torch import Tensor
from torch.nn import functional

from tests.unit.training.heads import job_for, random_lesson, save_target
from toolkit.training.block import MOST_BLOCKS, DFlashLearner
from toolkit.training.head import build_head
from toolkit.training.learn import Lesson
from toolkit.training.trainer import learner_of

DEPTHS, TOKENS = 5, 48


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> DFlashDraftModel:
    built = build_head(job_for(save_target(tmp_path_factory.mktemp("target")), method="dflash", depth=DEPTHS))
    assert isinstance(built, DFlashDraftModel)
    return built


def gradients(head: DFlashDraftModel, learn: Callable[[], object]) -> dict[str, Tensor]:
    head.zero_grad()
    torch.manual_seed(1)
    learn()
    return {name: value.grad.clone() for name, value in head.named_parameters() if value.grad is not None}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()), msg=name)


def in_speculators(head: DFlashDraftModel, sequence: Lesson) -> Tensor:
    """Its mean loss. It reads a token beside its own hidden state; the first token and the last state are not used."""
    loss: Tensor = head(
        hidden_states=functional.pad(sequence.hidden_states, (0, 0, 0, 1))[None],
        input_ids=functional.pad(sequence.input_ids, (1, 0))[None],
        loss_mask=functional.pad(sequence.loss_mask, (1, 0))[None],
        verifier_last_hidden_states=functional.pad(sequence.last_hidden_states, (0, 0, 1, 0))[None],
        document_ids=torch.zeros(1, len(sequence) + 1, dtype=torch.long),
        loss_config={"kl_div": (kl_div_loss, 1.0)},
        max_anchors=MOST_BLOCKS,
    )[1]
    return loss


def test_loss_and_gradients_are_those_of_speculators(head: DFlashDraftModel) -> None:
    sequence = random_lesson(TOKENS)
    learner = DFlashLearner(head, kl_div_loss, DEPTHS)
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
    whole = DFlashLearner(head, kl_div_loss, DEPTHS)

    assert_same(
        gradients(head, lambda: replace(whole, blocks_at_once=blocks).learn(sequence)),
        gradients(head, lambda: whole.learn(sequence)),
    )


def test_what_saves_time_on_a_cpu_leaves_the_gradients_as_they_are(head: DFlashDraftModel, tmp_path: Path) -> None:
    """Plain attention, and padding behind the end."""
    sequence, job = random_lesson(TOKENS + 1), job_for(save_target(tmp_path), method="dflash", depth=DEPTHS)
    same = build_head(job)
    assert isinstance(same, DFlashDraftModel)
    quick = learner_of(same, job, TOKENS + 1, torch.device("cpu"))
    assert isinstance(quick, DFlashLearner)
    assert (TOKENS + 1) % quick.rows

    slow = DFlashLearner(head, kl_div_loss, DEPTHS)
    assert_same(
        gradients(same, lambda: quick.learn(sequence)),
        gradients(head, lambda: slow.learn(sequence)),
    )


def test_nothing_is_learned_of_an_answer_that_is_shorter_than_a_block(head: DFlashDraftModel) -> None:
    learner = DFlashLearner(head, kl_div_loss, DEPTHS)
    short = random_lesson(DEPTHS + 4)
    assert learner.learn(short).count == 0
    assert learner.evaluate(short).count > 0


def test_every_token_of_an_answer_begins_a_block_when_a_head_is_evaluated(head: DFlashDraftModel) -> None:
    """Also the last ones, whose blocks reach beyond the end, where no draft is right."""
    sequence = random_lesson(TOKENS)
    said: dict[int, list[int]] = {}
    head.lm_head.register_forward_hook(lambda _, __, logits: said.update(enumerate(logits.argmax(dim=-1).tolist())))
    anchors = sequence.loss_mask.nonzero()[:, 0].tolist()
    DFlashLearner(head, kl_div_loss, DEPTHS).evaluate(sequence)
    # A text that goes on as the head drafts from the fifth token before its end
    before_end = len(anchors) - 5
    told = sequence.input_ids.clone()
    told[-4:] = torch.tensor(said[before_end][:4])
    found = DFlashLearner(head, kl_div_loss, DEPTHS).evaluate(replace(sequence, input_ids=told))

    assert found.right[anchors[before_end]].tolist() == [True] * 4 + [False]
    assert not found.right[-1].any()
    assert found.count == sum(min(DEPTHS, len(sequence) - 1 - anchor) for anchor in anchors)
