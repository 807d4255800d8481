"""A DFlash or DSpark head to continue from, in its authors' layout: which layers it reads, what is not continued."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from speculators.models.dspark import DSparkDraftModel

from tests.unit.training.heads import HIDDEN, VOCAB, job_for
from toolkit.errors import UsageError
from toolkit.training.head import _former, _new_head, layers_read
from toolkit.training.job import TrainingJob


def continued(target: Path, folder: Path, columns: int, **config: object) -> TrainingJob:
    """A job that continues a head whose `fc` reads so many layers."""
    written = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "num_hidden_layers": 2,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 3]},
        **config,
    }
    (folder / "config.json").write_text(json.dumps(written))
    save_file({"fc.weight": torch.zeros(HIDDEN, columns * HIDDEN)}, folder / "model.safetensors")
    return job_for(target, method="dflash", start_from=str(folder))


def test_its_authors_count_layers_where_an_engine_counts_the_states_before_them(target: Path, tmp_path: Path) -> None:
    assert layers_read(continued(target, tmp_path, 2)) == (1, 4)


@pytest.mark.parametrize("nested", ["dflash_config", "eagle_config"])
def test_the_key_that_engines_read_comes_first(nested: str, target: Path, tmp_path: Path) -> None:
    """A head that `convert` makes of SpecForge's has both, and the numbers of another engine below `eagle_config`."""
    key = "eagle_aux_hidden_state_layer_ids"
    job = continued(target, tmp_path, 2, **{nested: {key: [1, 2], "target_layer_ids": [0, 3]}, key: [2, 3]})
    assert layers_read(job) == (2, 3)


@pytest.mark.parametrize(
    ("columns", "config", "said"),
    [
        (3, {}, f"has {3 * HIDDEN} columns, and the 2 layers that it reads by its config have {2 * HIDDEN}"),
        (3, {"dflash_config": {}}, "the 2 layers"),
        (2, {"dflash_config": {"target_layer_ids": "all"}}, "`target_layer_ids` of "),
        (2, {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}, "has sliding windows"),
        (2, {"sample_from_anchor": True}, "drafts at other positions of a block"),
    ],
)
def test_what_cannot_be_continued_is_said_before_anything_is_computed(
    target: Path, tmp_path: Path, columns: int, config: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        layers_read(continued(target, tmp_path, columns, **config))
    assert said in error.value.message


def test_of_a_dspark_head_layers_and_rank_are_its_own(target: Path, tmp_path: Path) -> None:
    """Its authors write at the top of the config what DFlash's write below `dflash_config`."""
    own = {"dflash_config": None, "mask_token_id": 3, "target_layer_ids": [0, 3], "markov_rank": 8}
    job = continued(target, tmp_path, 2, **own).model_copy(update={"method": "dspark"})
    assert layers_read(job) == (1, 4)
    head = _new_head(job, _former(job), None)
    assert isinstance(head, DSparkDraftModel)
    assert head.markov_head
    assert head.markov_head.markov_rank == 8


def test_a_dspark_head_that_does_not_draft_at_its_anchor_is_not_continued(target: Path, tmp_path: Path) -> None:
    job = continued(target, tmp_path, 2, sample_from_anchor=False).model_copy(update={"method": "dspark"})
    with pytest.raises(UsageError, match="drafts at other positions of a block"):
        layers_read(job)
