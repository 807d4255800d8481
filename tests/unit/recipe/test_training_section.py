"""`training.data`: where it lies, and how much of each source is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import write_pair

from toolkit.errors import RecipeError
from toolkit.loading import load
from toolkit.training.plan import training_job, training_key


def recipe(folder: Path, data: str) -> Path:
    path = write_pair(folder)
    path.write_text(f"{path.read_text()}\ntraining: {{data: {data}}}\n")
    for name in ("own.jsonl", "general.jsonl"):
        (folder / name).write_text('{"prompt": "a"}\n')
    return path


def test_a_source_has_a_share_and_its_path_counts_from_the_recipe(tmp_path: Path) -> None:
    job = training_job(load(recipe(tmp_path, "[./own.jsonl, {from: ./general.jsonl, share: 0.3}]")))
    assert job.data == (str(tmp_path / "own.jsonl"), str(tmp_path / "general.jsonl"))
    assert job.shares == (None, 0.3)


def test_another_share_is_another_head(tmp_path: Path) -> None:
    keys = {
        training_key(load(recipe(tmp_path, f"[./own.jsonl, {item}]")))
        for item in ("./general.jsonl", "{from: ./general.jsonl, share: 0.3}", "{from: ./general.jsonl, share: 0.4}")
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("[./own.jsonl, {from: ./general.jsonl, share: 1}]", "share"),
        ("[{from: ./own.jsonl, share: 0.5}, {from: ./general.jsonl, share: 0.3}]", "0.8 together, and should be 1"),
        ("[./own.jsonl, {from: a, share: 0.6}, {from: b, share: 0.4}]", "should be less than 1"),
        ("[{from: ftp://x, share: 0.5}]", "from"),
        ("[{form: a, share: 0.5}]", "Did you mean `from`"),
    ],
)
def test_what_cannot_be_mixed_is_refused_at_its_line(tmp_path: Path, data: str, said: str) -> None:
    with pytest.raises(RecipeError, match="training") as error:
        load(recipe(tmp_path, data))
    assert said in str(error.value)
