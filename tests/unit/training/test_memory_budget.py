"""The memory that a target's answers may take: the recipe's, else what is free; and a job that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.checks.run import check
from toolkit.checks.training import head_parameters, training_bytes
from toolkit.checks.training_needs import require_memory
from toolkit.engines.vllm.budget import limits
from toolkit.errors import PlatformError
from toolkit.loading import load
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.trained import as_compared, with_method
from toolkit.sizing.shape import shape_of
from toolkit.training.head import build_head
from toolkit.training.job import IN_BLOCKS, Method, TrainingJob

GIB = 1024**3
TARGET = Path(__file__).parents[3] / "recipes" / "tiny" / "models" / "target"


def test_without_a_word_of_the_recipe_answers_take_a_part_of_what_is_free() -> None:
    assert limits({}, 4 * GIB, None) == {"kv_cache_memory_bytes": GIB}
    assert limits({}, 400 * GIB, None) == {"kv_cache_memory_bytes": 8 * GIB}
    assert limits({}, 4 * GIB, (80 * GIB, 80 * GIB)) == {"gpu_memory_utilization": 0.92}
    (share,) = limits({}, 4 * GIB, (50 * GIB, 80 * GIB)).values()
    assert 0.55 < share < 50 / 80


@pytest.mark.parametrize("args", [{"kv-cache-memory-bytes": 5 * GIB}, {"gpu-memory-utilization": 0.5}])
def test_what_the_recipe_says_counts_for_answers_too(args: dict[str, float]) -> None:
    (name,) = args
    for gpu in (None, (80 * GIB, 80 * GIB)):
        assert limits({**args, "dtype": "float32"}, GIB, gpu) == {name.replace("-", "_"): args[name]}


def test_a_target_that_cannot_answer_beside_others_is_an_error_before_the_job() -> None:
    recipe, target, said = load("tiny/train-p-eagle"), read_folder(TARGET), []
    asks = recipe.training and recipe.edit(training={"responses": "target"})
    assert asks
    require_memory(asks, target, 8 * GIB, said.append)
    assert said == []
    with pytest.raises(PlatformError) as error:
        require_memory(asks, target, 2 * GIB, said.append)
    assert "0.2 of KV cache" in error.value.message
    assert "2.0 are free" in error.value.message
    assert "engine.args" in error.value.hint
    assert "toolkit local stop" in error.value.hint
    require_memory(recipe, target, 2 * GIB + 2**27, said.append)  # `keep`: nothing is answered
    assert said == []


def test_a_training_that_may_not_fit_is_said() -> None:
    recipe, said = load("tiny/train-p-eagle"), []
    require_memory(recipe.edit(training={"max_length": 100_000}), read_folder(TARGET), 4 * GIB, said.append)
    assert "training may need" in said[0]
    assert "4.0 are free: a smaller `max_length`" in said[0]


@pytest.mark.parametrize("method", IN_BLOCKS)
def test_a_head_that_drafts_in_blocks_keeps_no_optimizer_state_of_what_is_the_targets(method: Method) -> None:
    """The same numbers as the head that is trained has: its weights, of which only some learn."""
    recipe, shape = load("tiny/train-p-eagle").edit(training={"layers": 2}), shape_of(read_folder(TARGET))
    blocks = with_method(recipe, method)
    job = TrainingJob(name="x", method=method, target=str(TARGET), target_name="x", data=(), layers=2)
    head = build_head(job)
    learned = sum(weight.numel() for weight in head.parameters() if weight.requires_grad)
    there = sum(weight.numel() for name, weight in head.named_parameters() if not name.startswith("verifier_"))
    whole, vocabulary = head_parameters(blocks, shape), 2 * shape.vocabulary * shape.hidden
    assert whole - vocabulary == pytest.approx(learned, rel=0.02)
    assert whole == pytest.approx(there, rel=0.02)
    assert training_bytes(blocks, shape) < training_bytes(recipe, shape)


def test_of_a_head_that_is_divided_each_accelerator_has_a_part_and_the_largest_matrix() -> None:
    recipe, shape = load("tiny/train-p-eagle"), shape_of(read_folder(TARGET))
    learned, output = 16 * head_parameters(recipe, shape), shape.vocabulary * shape.hidden
    whole = training_bytes(recipe, shape)
    assert training_bytes(recipe, shape, 8, 3 * learned) == training_bytes(recipe, shape, 1, learned) == whole
    assert training_bytes(recipe, shape, 8, learned) == pytest.approx(
        whole - (learned + 6 * output) * 7 / 8 + 12 * output
    )
    blocks = with_method(recipe, "dflash")
    assert training_bytes(blocks, shape, 8, learned) == training_bytes(blocks, shape)


@pytest.mark.parametrize(("method", "offered"), [("p-eagle", True), ("eagle3", False), ("dflash", False)])
def test_partitions_are_offered_to_the_method_that_reads_them(method: str, offered: bool) -> None:
    recipe, said = with_method(load("tiny/train-p-eagle"), method), list[str]()
    require_memory(recipe.edit(training={"max_length": 1_000_000}), read_folder(TARGET), 2 * GIB + 2**27, said.append)
    assert ["`partitions`" in one for one in said] == [offered]


def test_of_heads_that_are_compared_the_largest_counts() -> None:
    recipe, said = load("tiny/train-p-eagle").edit(training={"max_length": 100_000}), list[str]()
    require_memory(as_compared(recipe, ("p-eagle", "dflash")), read_folder(TARGET), 4 * GIB, said.append)
    assert "or more `partitions`" in said[0]


def test_parts_that_a_method_does_not_know_are_told() -> None:
    recipe = load("tiny/train-p-eagle").edit(training={"partitions": 2})
    found = {one.code: one.severity for one in check(with_method(recipe, "eagle3"), to_train=True).findings}
    assert found["training.partitions"] == "warning"
    assert "training.partitions" not in {one.code for one in check(recipe, to_train=True).findings}
