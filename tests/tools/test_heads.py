import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from transformers import Qwen3ForCausalLM

from tests.tools.conftest import HIDDEN, MASK_TOKEN, TOKENS, VOCAB
from tools.tiny.checkpoint import save_head
from tools.tiny.eagle3 import Eagle3Head
from tools.tiny.head import DraftHead, HeadConfig
from tools.tiny.optimize import Schedule, fit
from tools.tiny.peagle import PEagleHead
from tools.tiny.positions import DraftPositions, sample_positions, visible
from tools.tiny.targets import Observed


@pytest.fixture
def embedding(target: Qwen3ForCausalLM) -> Tensor:
    return target.get_input_embeddings().weight.data


@pytest.fixture(params=[PEagleHead, Eagle3Head])
def head(request: pytest.FixtureRequest, head_config: HeadConfig, embedding: Tensor) -> DraftHead:
    head_class: type[DraftHead] = request.param
    return head_class(head_config, embedding, embedding)


def test_a_draft_sees_verified_tokens_up_to_its_anchor_and_its_own_chain() -> None:
    #                                        verified  drafts of anchor 0 and 1
    positions = DraftPositions(torch.tensor([0, 1, 2, 0, 1, 0]), torch.tensor([0, 0, 0, 1, 1, 2]))

    assert visible(positions, positions).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 0, 0, 1, 0, 0],  # depth 1 of anchor 0
        [1, 1, 0, 0, 1, 0],  # depth 1 of anchor 1
        [1, 0, 0, 1, 0, 1],  # depth 2 of anchor 0
    ]


def test_an_anchor_kept_at_a_depth_was_kept_at_all_before() -> None:
    positions = sample_positions(tokens=100, depths=4, keep=0.5)
    kept = [positions.at(depth).anchor.tolist() for depth in range(4)]

    assert [len(anchors) for anchors in kept] == [96, 48, 24, 12]
    for shallower, deeper in pairwise(kept):
        assert shallower[: len(deeper)] == deeper


def test_a_draft_does_not_depend_on_tokens_after_its_anchor(
    head_config: HeadConfig, embedding: Tensor, observed: Observed
) -> None:
    head = PEagleHead(head_config, embedding, embedding)
    positions = sample_positions(TOKENS, depths=3, keep=1.0)
    tokens, aux_hidden = observed.tokens.clone(), observed.aux_hidden.clone()
    tokens[:, 12:], aux_hidden[:, 11:] = 0, 0.0  # an anchor has its hidden state and the token after it
    with torch.no_grad():
        before = head.draft(observed, positions)
        after = head.draft(Observed(tokens, aux_hidden, observed.greedy), positions)

    same = (before == after).all(dim=-1).all(dim=0)
    assert same[positions.anchor <= 10].all()
    assert not same[positions.anchor > 10].any()


def test_training_lowers_the_loss(head: DraftHead, observed: Observed) -> None:
    positions = sample_positions(TOKENS, depths=4, keep=0.8)
    before = head.loss(observed, positions)[0].item()

    fit(head, lambda: head.loss(observed, positions)[0], Schedule(20, 5e-3), log=lambda _: None)

    assert head.loss(observed, positions)[0].item() < before


def test_the_checkpoint_has_what_vllm_reads(head: DraftHead, tmp_path: Path) -> None:
    save_head(head, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        assert file.metadata() == {"format": "pt"}

    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert not any(name.startswith("model.") for name in tensors)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert tensors["fc.weight"].shape == (HIDDEN, 3 * HIDDEN)
    assert tensors["layers.0.self_attn.q_proj.weight"].shape == (HIDDEN, 2 * HIDDEN)
    assert tensors["layers.1.self_attn.q_proj.weight"].shape == (HIDDEN, HIDDEN)
    assert tensors["lm_head.weight"].shape == (VOCAB, HIDDEN)
    assert {"embed_tokens.weight", "norm.weight", "layers.0.hidden_norm.weight"} <= tensors.keys()


def test_only_a_p_eagle_head_names_a_mask(head: DraftHead, tmp_path: Path) -> None:
    save_head(head, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        shape = file.get_slice("mask_hidden").get_shape() if "mask_hidden" in file.keys() else None  # noqa: SIM118

    if isinstance(head, PEagleHead):
        assert (config["ptd_token_id"], config["pard_token"], shape) == (MASK_TOKEN, MASK_TOKEN, [1, 1, 3 * HIDDEN])
    else:
        assert (config.get("ptd_token_id"), config.get("pard_token"), shape) == (None, None, None)
