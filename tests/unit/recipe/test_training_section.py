"""`training`: where its data lie, how much of each source is used, and what it takes for keys that are not written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import write_pair

from toolkit.errors import RecipeError
from toolkit.loading import load, on_platform
from toolkit.recipe.trained import as_compared
from toolkit.training.plan import training_job, training_key


def recipe(folder: Path, data: str = "[./own.jsonl]", more: str = "", method: str = "p-eagle") -> Path:
    path = write_pair(folder)
    text = path.read_text().replace("method: p-eagle", f"method: {method}")
    path.write_text(f"{text}\ntraining: {{data: {data}{more}}}\n")
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


@pytest.mark.parametrize(
    ("method", "written", "expected"),
    [
        ("p-eagle", "", {"layers": 4, "depth": 8, "epochs": 3, "batch_tokens": 8192, "warmup": 0.05}),
        ("eagle3", "", {"layers": 1, "depth": 7, "epochs": 3}),
        ("eagle3", ", depth: 5", {"layers": 1, "depth": 5}),
        ("p-eagle", ", preset: paper", {"layers": 4, "depth": 8}),
        ("eagle3", ", preset: paper", {"layers": 1, "depth": 7, "epochs": 20}),
        ("dflash", ", preset: paper", {"layers": 5, "epochs": 20}),
        ("dflash", ", preset: quick", {"layers": 1}),
        ("dspark", "", {"layers": 5, "depth": 7}),
        ("mtp", ", preset: tiny", {"layers": 1, "depth": 3, "steps": 400}),
        (
            "p-eagle",
            ", preset: paper",
            {"max_length": 8192, "epochs": 20, "batch_tokens": 524_288, "warmup": 0.0025, "learning_rate": 1e-4},
        ),
        ("p-eagle", ", preset: paper, batch_tokens: 65536, warmup: 0", {"batch_tokens": 65536, "warmup": 0}),
        ("p-eagle", ", preset: paper, steps: 10", {"steps": 10, "epochs": None}),
        ("p-eagle", ", preset: tiny", {"steps": 400, "epochs": None, "layers": 2, "depth": 16}),
        ("p-eagle", ", preset: tiny, epochs: 2", {"steps": None, "epochs": 2}),
        ("p-eagle", ", preset: quick", {"layers": 1, "epochs": 1, "max_length": 2048, "depth": 8}),
    ],
)
def test_what_is_not_written_is_the_presets_then_the_methods(
    tmp_path: Path, method: str, written: str, expected: dict[str, object]
) -> None:
    job = training_job(load(recipe(tmp_path, more=written, method=method)))
    assert {key: getattr(job, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("machines", "tokens"),
    [
        ("instance_type: ml.g6e.2xlarge", 8192),
        ("instance_type: ml.p5.48xlarge", 8 * 8192),
        ("instance_type: ml.p5.48xlarge, instance_count: 2", 16 * 8192),
        ("instance_type: ml.p5.48xlarge, batch_tokens: 4096", 4096),
        ("instance_type: ml.p5.48xlarge, preset: paper", 64 * 8192),
        ("instance_types: [ml.p5.48xlarge, ml.g6e.2xlarge]", 8 * 8192),
        ("instance_types: [ml.p5.48xlarge, {type: ml.p4d.24xlarge, count: 2}]", 8 * 8192),
        ("instance_types: [{type: ml.g6.12xlarge, count: 8}, {type: ml.p5.48xlarge, count: 1}]", 32 * 8192),
        ("instance_types: [ml.of-tomorrow.xlarge, ml.g6.12xlarge]", 8192),
    ],
)
def test_a_step_has_8192_tokens_for_each_gpu_unless_it_says_how_many(
    tmp_path: Path, machines: str, tokens: int
) -> None:
    on_aws = on_platform(load(recipe(tmp_path, more=f", {machines}")), "sagemaker")
    assert training_job(on_aws).batch_tokens == tokens


def test_how_often_a_checkpoint_is_written_makes_no_other_head(tmp_path: Path) -> None:
    keys = {training_key(load(recipe(tmp_path, more=more))) for more in ("", ", checkpoint_seconds: 60")}
    assert len(keys) == 1


def test_a_comparison_has_each_methods_own_sizes_also_with_the_presets_of_the_paper(tmp_path: Path) -> None:
    compared = as_compared(load(recipe(tmp_path, more=", preset: paper")), ("p-eagle", "eagle3", "dflash"))
    assert [(one.method, one.layers) for one in training_job(compared).compare] == [
        ("p-eagle", 4), ("eagle3", 1), ("dflash", 5)
    ]  # fmt: skip


def test_a_shipped_template_leaves_the_size_to_the_method() -> None:
    compared = as_compared(load("qwen3-8b/train-p-eagle"), ("p-eagle", "eagle3", "dflash"))
    assert [one.layers for one in training_job(compared).compare] == [4, 1, 5]


def test_the_tiny_preset_is_how_the_tiny_heads_are_trained() -> None:
    shipped, keys = load("tiny/train-p-eagle").training, ("layers", "depth", "max_length", "steps", "batch_tokens")
    assert shipped
    preset = type(shipped)(data=["a"], preset="tiny").filled("p-eagle")
    assert [getattr(preset, key) for key in (*keys, "learning_rate")] == [
        getattr(shipped, key) for key in (*keys, "learning_rate")
    ]
