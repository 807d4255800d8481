"""A sequence in segments teaches the same as the whole one, and the same as speculators' own forward pass."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from speculators.losses.eager import kl_div_loss
from speculators.models.attention import create_float_mask
from speculators.models.peagle import PEagleDraftModel
from speculators.models.peagle.attention import create_peagle_mask_mod
from torch.torch_version import TorchVersion

from tests.unit.training.heads import assert_same, gradients, job_for, random_lesson, save_target
from toolkit.training.head import build_head
from toolkit.training.learn import Eagle3Learner, Lesson, PEagleLearner, loss_function
from toolkit.training.partition import DraftMasks, partition, sample_drafts
from toolkit.training.trainer import learner_of

DEPTHS, TOKENS = 5, 48


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> PEagleDraftModel:
    built = build_head(job_for(save_target(tmp_path_factory.mktemp("target")), depth=DEPTHS))
    assert isinstance(built, PEagleDraftModel)
    return built


def learner(head: PEagleDraftModel, segments: int) -> PEagleLearner:
    masks = DraftMasks(TOKENS, torch.float32, torch.device("cpu"))
    return PEagleLearner(head, masks, kl_div_loss, DEPTHS, segments)


@pytest.mark.parametrize("segments", [2, 3, 8, TOKENS])
def test_the_gradients_of_segments_are_those_of_the_whole_sequence(head: PEagleDraftModel, segments: int) -> None:
    sequence = random_lesson(TOKENS)

    whole = gradients(head, lambda: learner(head, 1).learn(sequence))
    parts = gradients(head, lambda: learner(head, segments).learn(sequence))

    assert "mask_hidden" in whole
    assert_same(parts, whole)


def test_what_saves_time_on_a_cpu_leaves_the_gradients_as_they_are(head: PEagleDraftModel, tmp_path: Path) -> None:
    """Short segments, matrices of few different shapes, and plain attention."""
    sequence, rows = random_lesson(TOKENS + 1), list[int]()
    quick_head = build_head(job_for(save_target(tmp_path), depth=DEPTHS))
    quick = learner_of(quick_head, job_for(tmp_path, depth=DEPTHS), TOKENS + 1, torch.device("cpu"))
    assert isinstance(quick, PEagleLearner)
    assert quick.longest_segment
    quick = replace(quick, longest_segment=8)
    for layer in quick.head.layers:
        layer.register_forward_hook(lambda _, __, output: rows.append(output.shape[1]))

    assert_same(gradients(quick.head, lambda: quick.learn(sequence)), gradients(head, lambda: whole(head, sequence)))

    assert len(rows) > 2 * (TOKENS // 8)  # two layers, each with depth 0 and all segments
    assert all(count % quick.rows == 0 for count in rows)


def whole(head: PEagleDraftModel, sequence: Lesson) -> object:
    masks = DraftMasks(len(sequence), torch.float32, torch.device("cpu"))
    return PEagleLearner(head, masks, kl_div_loss, DEPTHS, segments=1).learn(sequence)


def with_options(head: PEagleDraftModel, window: int | None, **options: bool) -> PEagleDraftModel:
    """The same head with other options; the second of its layers has the sliding window."""
    config = deepcopy(head.config)
    for name, value in options.items():
        setattr(config, name, value)
    if window:
        config.transformer_layer_config.layer_types = ["full_attention", "sliding_attention"]
        config.transformer_layer_config.sliding_window = window
    torch.manual_seed(3)
    other = PEagleDraftModel(config)
    other.load_state_dict(head.state_dict(), strict=False)
    for name, weight in other.named_parameters():
        if "fc_norm" in name or "input_norm" in name:
            weight.data.normal_(1.0, 0.3)
    other.embed_tokens.weight.requires_grad_(True)
    other.lm_head.weight.requires_grad_(True)
    return other


@pytest.mark.parametrize(
    ("window", "options"),
    [
        (None, {}),
        (None, {"fc_norm": True}),
        (None, {"norm_before_fc": True}),
        (None, {"norm_before_residual": True}),
        (9, {}),
        (9, {"fc_norm": True, "norm_before_fc": True}),
    ],
)
def test_loss_and_gradients_are_those_of_speculators(
    head: PEagleDraftModel, window: int | None, options: dict[str, bool]
) -> None:
    """Whatever the head's config says."""
    sequence = random_lesson(TOKENS)
    head = with_options(head, window, **options)
    ours = learner(head, 4)

    def upstream() -> float:
        _, loss, metrics = head(
            hidden_states=sequence.hidden_states[None],
            input_ids=sequence.input_ids[None],
            document_ids=torch.zeros(1, TOKENS, dtype=torch.long),
            loss_mask=sequence.loss_mask[None],
            verifier_last_hidden_states=sequence.last_hidden_states[None],
            loss_config={"kl_div": (kl_div_loss, 1.0)},
            num_depths=DEPTHS,
            down_sample_ratio=ours.keep,
            down_sample_ratio_min=ours.keep_least,
        )
        count = float(sum(metrics[f"position_{depth}_acc_total"] for depth in range(DEPTHS)))
        (loss * count).backward()
        return float(loss.detach())

    head.zero_grad()
    theirs = gradients(head, upstream)
    torch.manual_seed(1)
    found = ours.learn(sequence)

    torch.manual_seed(1)
    assert float(found.loss) / found.count == pytest.approx(upstream(), rel=1e-4)
    assert_same(gradients(head, lambda: ours.learn(sequence)), theirs)


@pytest.mark.parametrize("length", [9, 30, TOKENS])
def test_a_slice_of_the_mask_is_the_mask_that_speculators_computes_anew(length: int) -> None:
    masks = DraftMasks(TOKENS, torch.float32, torch.device("cpu"))
    torch.manual_seed(length)
    drafts = sample_drafts(random_lesson(length).loss_mask, DEPTHS, 0.7, 0.2)
    anchor = torch.cat([torch.arange(length), drafts.anchor])
    depth = torch.cat([torch.zeros(length, dtype=torch.long), drafts.depth])

    fresh = create_float_mask(
        create_peagle_mask_mod(anchor, depth, torch.zeros(length, dtype=torch.long)),
        Q_LEN=len(anchor),
        KV_LEN=len(anchor),
        device="cpu",
        dtype=torch.float32,
    )

    assert len(drafts) > 0
    assert torch.equal(masks.of(drafts, length), fresh[:, :, length:])


def test_a_segment_has_every_draft_that_goes_on_within_it() -> None:
    """Depths 0 and 1 by position, deeper ones where their predecessor is; together they are all positions, once."""
    torch.manual_seed(0)
    drafts = sample_drafts(random_lesson(TOKENS).loss_mask, DEPTHS, 0.8, 0.2)
    segments = partition(drafts, TOKENS, 4)

    assert [segment.start for segment in segments[1:]] == [segment.end for segment in segments[:-1]]
    assert (segments[0].start, segments[-1].end) == (0, TOKENS)
    assert torch.equal(torch.cat([segment.drafts.anchor for segment in segments]), drafts.anchor)
    assert torch.equal(torch.cat([segment.drafts.depth for segment in segments]), drafts.depth)
    for segment in segments:
        first = segment.drafts.anchor + 1
        assert bool(((first >= segment.start) & (first < segment.end)).all())


def test_segments_have_about_the_same_number_of_positions() -> None:
    torch.manual_seed(0)
    loss_mask = torch.zeros(400, dtype=torch.long)
    loss_mask[300:] = 1  # a long prompt has no drafts
    drafts = sample_drafts(loss_mask, DEPTHS, 0.9, 0.2)
    sizes = [segment.end - segment.start + len(segment.drafts) for segment in partition(drafts, 400, 4)]

    assert max(sizes) - min(sizes) <= 2 * DEPTHS


@pytest.mark.parametrize(
    ("torch_version", "is_compiled", "implementation"),
    [("2.11.0+cu130", True, "eager"), ("2.11.0+cu130", False, "utils"), ("2.12.0", True, "utils")],
)
def test_a_gpu_computes_the_loss_by_triton_unless_its_torch_cannot_compile_that(
    torch_version: str, is_compiled: bool, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion(torch_version))
    assert (
        loss_function(torch.device("cuda"), is_compiled=is_compiled).__module__
        == f"speculators.losses.{implementation}"
    )


def test_speculators_compiles_an_eagle3_head_with_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0"))
    job = job_for(save_target(tmp_path), method="eagle3", layers=1)
    learner = learner_of(build_head(job), job, TOKENS, torch.device("cuda"))
    assert isinstance(learner, Eagle3Learner)
    assert learner.loss is kl_div_loss
