"""A target on the hub is read at the revision that the recipe pins, also by speculators, which knows no revisions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.unit.training.heads import SHIPPED, job_for, save_target
from toolkit.errors import HubError
from toolkit.training.head import build_head, within_positions
from toolkit.training.states import with_local_target

PINNED, NEWER = "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The hub's cache with two revisions of a model: the pinned one, and a wider one that is `main` now."""
    model = tmp_path / "models--org--target"
    save_target(model / "snapshots" / PINNED)
    config = Qwen3Config.from_pretrained(model / "snapshots" / PINNED)
    config.hidden_size = 64
    Qwen3ForCausalLM(config).save_pretrained(model / "snapshots" / NEWER)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(NEWER)
    return tmp_path


def test_the_head_has_the_size_of_the_pinned_revision(cache: Path) -> None:
    download = partial(snapshot_download, cache_dir=cache, local_files_only=True)
    job = job_for(Path("org/target"), target_revision=PINNED, layers=1)
    head = build_head(with_local_target(job, download))
    assert head.embed_tokens.weight.shape[1] == 32


def test_without_a_revision_it_is_the_newest(cache: Path) -> None:
    download = partial(snapshot_download, cache_dir=cache, local_files_only=True)
    assert with_local_target(job_for(Path("org/target")), download).target.endswith(NEWER)


@pytest.mark.parametrize(("written", "used"), [(4096, 256), (256, 256), (100, 100)])
def test_sequences_are_no_longer_than_the_target_has_positions(written: int, used: int, tmp_path: Path) -> None:
    assert within_positions(job_for(save_target(tmp_path), max_length=written)).max_length == used


def test_a_folder_stays_as_it_is() -> None:
    job = job_for(SHIPPED)
    assert with_local_target(job) == job


def test_a_target_that_cannot_be_downloaded_is_named(cache: Path) -> None:
    download = partial(snapshot_download, cache_dir=cache, local_files_only=True)
    with pytest.raises(HubError, match=r"the target org/other at v1 cannot be downloaded") as raised:
        with_local_target(job_for(Path("org/other"), target_revision="v1"), download)
    assert "HF_TOKEN" in raised.value.hint
