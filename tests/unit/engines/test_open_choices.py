"""A version or instance type that a recipe leaves out is chosen for its models, and the plan says which and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.api.checking import check
from toolkit.api.deployment import plan
from toolkit.loading import able_types, load, on_platform
from toolkit.recipe.facts import Lock
from toolkit.recipe.known import known_model
from toolkit.recipe.lock import write_lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import by_weights

OPEN = """\
name: open
target: {model: Qwen/Qwen3-32B}
speculation: {method: eagle3, model: RedHatAI/Qwen3-32B-speculator.eagle3}
engine: {max_model_len: 8192}
platform: {name: sagemaker}
"""
NEURON = """\
name: open
target: {model: Qwen/Qwen3-32B}
speculation: {method: draft-model, model: Qwen/Qwen3-0.6B}
engine: {name: neuron, max_model_len: 1024, args: {tensor-parallel-size: 32}}
platform: {name: sagemaker}
"""


def recipe(folder: Path, text: str) -> Recipe:
    path = folder / "open.yaml"
    path.write_text(text)
    return load(path)


def test_the_newest_version_and_the_cheapest_type_that_fits(tmp_path: Path) -> None:
    found = recipe(tmp_path, OPEN)
    assert (found.engine.version, found.platform.types) == ("0.31.0", ("ml.g7e.2xlarge",))
    assert check(found.path).ok
    notes = plan(found).notes
    assert "Left open, so chosen: engine.version vllm 0.31.0: the newest with an image there" in notes
    assert any(
        "ml.g7e.2xlarge (4.20 $/h): the cheapest that fits; others that fit: ml.g7e.4xlarge" in note for note in notes
    )


def test_a_version_that_does_not_work_is_passed_over_with_the_reason(tmp_path: Path) -> None:
    text = OPEN.replace("max_model_len: 8192", "max_model_len: 8192, args: {weird-flag: 1}")
    assert "none works" in recipe(tmp_path, text).chosen["engine.version"]


def test_tensor_parallelism_comes_with_a_type_that_needs_it(tmp_path: Path) -> None:
    text = OPEN.replace("Qwen/Qwen3-32B}", "meta-llama/Llama-3.3-70B-Instruct}").replace(
        "eagle3, model: RedHatAI/Qwen3-32B-speculator.eagle3", "ngram"
    )
    found = recipe(tmp_path, text)
    assert found.engine.args["tensor-parallel-size"] == 2
    assert check(found.path).ok


def test_a_lock_of_another_target_tells_nothing_of_this_one(tmp_path: Path) -> None:
    found = recipe(tmp_path, OPEN)
    larger = known_model("meta-llama/Llama-3.3-70B-Instruct")
    assert larger
    write_lock(found, Lock(larger))
    assert load(found.path).platform.types == found.platform.types


def test_by_the_size_of_weights_alone_there_is_room_for_all_copies(tmp_path: Path) -> None:
    model = known_model("Qwen/Qwen3-32B")
    assert model
    types = {}
    for copies in (1, 4):
        text = OPEN.replace("max_model_len: 8192", f"max_model_len: 8192, args: {{data-parallel-size: {copies}}}")
        found = recipe(tmp_path, text)
        fitting = by_weights(found, Lock(model), able_types(found))
        types[copies] = {one.instance for one in fitting}
        assert all(one.tensor_parallel * copies <= one.accelerators for one in fitting)
    assert types[4] < types[1]


def test_of_an_unknown_model_the_plan_says_how_it_becomes_known(tmp_path: Path) -> None:
    text = OPEN.replace("Qwen/Qwen3-32B}", "org/unknown}").replace(
        "eagle3, model: RedHatAI/Qwen3-32B-speculator.eagle3", "ngram"
    )
    found = recipe(tmp_path, text)
    assert "toolkit lock" in found.chosen["platform.instance_types"]
    assert "lock.missing" in [finding.code for finding in check(found.path).errors]


@pytest.mark.parametrize("platform", ["sagemaker", "kubernetes"])
def test_where_no_type_is_known_to_fit_it_gets_one_with_arithmetic_for_its_dtype(platform: str, tmp_path: Path) -> None:
    """A T4 is the cheapest of all, and has none for bfloat16."""
    text = OPEN.replace("Qwen/Qwen3-32B}", "org/unknown}").replace("sagemaker", platform)
    on_any, on_able = (
        recipe(tmp_path, text.replace("max_model_len: 8192", f"args: {{dtype: {dtype}}}"))
        for dtype in ("float16", "bfloat16")
    )
    assert "g4dn" in on_any.platform.types[0]
    assert "g4dn" not in on_able.platform.types[0]


def test_on_trainium_a_type_of_a_generation_with_the_method(tmp_path: Path) -> None:
    found = recipe(tmp_path, NEURON)
    assert (found.engine.name, found.platform.types) == ("nxd-inference", ("ml.trn1.32xlarge",))


@pytest.mark.parametrize("platform", ["local", "kubernetes"])
def test_on_another_platform_it_is_chosen_anew(platform: str, tmp_path: Path) -> None:
    """Also how many accelerators: by EC2's prices the cheapest node is another one, with smaller GPUs."""
    here = recipe(tmp_path, OPEN)
    moved = on_platform(here, platform)
    assert moved.platform.types != here.platform.types
    back = on_platform(moved, "sagemaker")
    assert (back.platform.types, back.engine) == (here.platform.types, here.engine)


def test_a_model_that_the_toolkit_knows_is_checked_without_a_lock(tmp_path: Path) -> None:
    found = [item for item in check(recipe(tmp_path, OPEN).path).findings if item.code == "lock.missing"]
    assert [item.severity for item in found] == ["warning", "warning"]
