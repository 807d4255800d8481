"""What `check` says of the disk's room for hidden states is what the job then does."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests.unit.training.heads import HIDDEN, SHIPPED, save_own_block_target, save_target
from toolkit.api.checking import check
from toolkit.checks.run import require
from toolkit.checks.training_fit import state_bytes
from toolkit.errors import RecipeError, UsageError
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.recipe.model_files import read_folder
from toolkit.training.data import prepare_data
from toolkit.training.head import layer_config, layers_read, target_config
from toolkit.training.plan import training_job

ANSWER = "A year that can be divided by four has one day more, but not each year that can be divided by a hundred. " * 5


def written(folder: Path, target: Path, method: str = "p-eagle", dtype: str = "bfloat16", **training: object) -> Path:
    rows = [
        {"messages": [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": ANSWER}]}
        for number in range(300)
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    document = {
        "name": "my-head",
        "target": {"model": str(target)},
        "training": {"data": ["./chats.jsonl"], "responses": "keep", "max_length": 200, "steps": 1, **training},
        "speculation": {"method": method, "model": "./made/head", "num_speculative_tokens": 2},
        "engine": {"version": "0.32.0", "max_model_len": 256, "max_num_seqs": 4, "args": {"dtype": dtype}},
        "platform": {"name": "local"},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
    return folder / "recipe.yaml"


def on_states(recipe: Path) -> list[Finding]:
    return [finding for finding in check(recipe).findings if finding.code == "training.states"]


@pytest.mark.parametrize(
    ("gigabytes", "dtype", "refused"),
    [
        (0.0100, "bfloat16", False),
        (0.0075, "bfloat16", True),  # room for a step, and for the held-out samples, but not for both
        (0.0030, "bfloat16", True),
        (0.0100, "float32", True),  # states twice as large
    ],
)
def test_states_gb_is_refused_by_check_where_the_job_refuses_it(
    gigabytes: float, dtype: str, refused: bool, tmp_path: Path
) -> None:
    recipe = written(tmp_path, SHIPPED, dtype=dtype, batch_tokens=1024, states_gb=gigabytes)
    found = [one.severity for one in on_states(recipe)]
    places = {"work": str(tmp_path / "work"), "checkpoints": str(tmp_path / "checkpoints")}
    job = training_job(load(recipe)).model_copy(update=places)
    try:
        prepare_data(job, layers_read(job), lambda _: None, lambda _: None)
        message = ""
    except UsageError as error:
        message = error.message
    assert message.startswith("a step reads hidden states of") is refused
    assert found == (["error"] if refused else [])


def with_free(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, free))


def test_a_disk_that_the_jobs_own_states_fill_stops_neither_training_nor_deploying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load(written(tmp_path, SHIPPED))
    with_free(10, monkeypatch)
    for to_train in (True, False):
        if not to_train:
            shutil.copytree(SHIPPED.parent / "p-eagle", tmp_path / "made" / "head")
        report = require(recipe, to_train=to_train)
        assert [one.severity for one in report.findings if one.code == "training.states"] == ["warning"]


def test_once_the_head_is_there_what_its_states_would_need_stops_nothing(tmp_path: Path) -> None:
    recipe = written(tmp_path, SHIPPED, states_gb=0.001)
    assert [one.severity for one in on_states(recipe)] == ["error"]
    shutil.copytree(SHIPPED.parent / "p-eagle", tmp_path / "made" / "head")
    assert [one.severity for one in on_states(recipe)] == ["warning"]
    with pytest.raises(RecipeError, match="a step reads hidden states"):
        require(load(recipe), to_train=True)


def test_states_are_as_large_as_those_of_the_layers_that_the_jobs_head_reads(tmp_path: Path) -> None:
    """Of the target's own block one layer, of a head that is continued as many as it names."""
    plain, own = save_target(tmp_path / "plain"), save_own_block_target(tmp_path / "own")
    started = tmp_path / "started"
    for method, target, start in (("p-eagle", plain, None), ("mtp", own, None), ("eagle3", plain, started)):
        started_from = {"start_from": str(start)} if start else {}
        recipe = load(written(tmp_path, target, method, "bfloat16", layers=1, **started_from))
        job = training_job(recipe)
        if start:
            config = layer_config(target_config(job), job)
            config.eagle_aux_hidden_state_layer_ids = [1, 2, 3, 4]
            config.save_pretrained(start)
            save_file({"x": torch.zeros(1)}, start / "model.safetensors")
        assert state_bytes(recipe, read_folder(target)) == (len(layers_read(job)) + 1) * HIDDEN * 2, method
