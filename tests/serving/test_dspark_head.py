"""vLLM's own model takes a DSpark head as training writes it; what drafts with it there needs a GPU, and is not run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forked_vllm import ForkedVllm
from speculators.models.dspark import DSparkDraftModel
from torch import nn

from tests.unit.training.heads import HIDDEN, VOCAB, job_for, save_target
from toolkit.engines.vllm.convert import convert
from toolkit.training.head import build_head

pytestmark = pytest.mark.serving

DRAFTED = 5


def test_vllm_reads_the_head_and_computes_what_was_trained(vllm: ForkedVllm, tmp_path: Path) -> None:
    target = save_target(tmp_path / "target")
    job = job_for(target, method="dspark", depth=DRAFTED)
    head = build_head(job)
    assert isinstance(head, DSparkDraftModel)
    assert head.markov_head
    assert head.confidence_head
    nn.init.normal_(head.markov_head.markov_w1.weight)  # a new head hardly heeds the token before
    head.verifier_norm = head.verifier_lm_head = nn.Identity()  # type: ignore[assignment]  # not its own
    head.save_pretrained(tmp_path / "export")
    assert convert(tmp_path / "export", tmp_path / "head").method == "dspark"
    tokens = torch.randint(VOCAB, (4,))
    hidden = torch.randn(4, HIDDEN)

    found = vllm.run(
        "dspark_head",
        target=str(target),
        drafter=str(tmp_path / "head"),
        tokens=tokens.tolist(),
        hidden=hidden.tolist(),
    )

    assert found["block"] == DRAFTED
    assert found["layers"] == list(head.target_layer_ids)
    assert found["mask_token"] == head.mask_token_id
    assert found["causal"] == [False] * job.layers
    embedded = head.markov_head.prev_embeddings(tokens)
    bias = head.markov_head.block_bias(prev_token_ids=tokens[:, None], hidden_states=hidden[:, None])[:, 0]
    sure = torch.sigmoid(head.confidence_head(torch.cat([hidden, embedded], dim=-1)))
    torch.testing.assert_close(torch.tensor(found["bias"]), bias.detach())
    torch.testing.assert_close(torch.tensor(found["confidence"]), sure.detach())

    again = build_head(job.model_copy(update={"start_from": str(tmp_path / "head")}))
    for name, weight in head.named_parameters():
        assert torch.equal(again.get_parameter(name), weight), name
