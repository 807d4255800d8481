"""What compiled code depends on: the key changes with all of it, and with nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairs import recipe_with, write_pair, write_recipe

from toolkit.errors import UsageError
from toolkit.loading import load, on_platform
from toolkit.planning import artifacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

REVISION = ", revision: 0123456789abcdef0123456789abcdef01234567"
RECIPE = f"""\
name: sd
target: {{model: org/target{REVISION}}}
speculation: {{method: draft-model, model: org/drafter, num_speculative_tokens: 7}}
engine: {{name: neuron, max_model_len: 1024, max_num_seqs: 4, args: {{tensor-parallel-size: 32}}}}
platform: {{name: sagemaker, instance_types: [ml.trn2.48xlarge]}}
"""
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_recipe(tmp_path, RECIPE))


def test_the_parts_of_a_pair(recipe: Recipe) -> None:
    parts = artifacts.parts(recipe)
    assert len(parts.pop("settings")) == 12
    assert parts == {
        "engine": "nxd-inference",
        "version": "0.9.1",
        "sdk": "2.26.1",
        "image": "catalogue",
        "instance_family": "trn2",
        "logical_cores": "default",
        "tensor_parallel": "32",
        "max_num_seqs": "4",
        "max_model_len": "1024",
        "method": "draft-model",
        "target": "org/target@0123456789ab",
        "drafter": "org/drafter@main",
        "num_speculative_tokens": "7",
    }


def with_engine(**changes: Any) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, engine=recipe.engine.edit(**changes))


def with_speculation(**changes: Any) -> Callable[[Recipe], Recipe]:
    def change(recipe: Recipe) -> Recipe:
        assert recipe.speculation
        return replace(recipe, speculation=recipe.speculation.edit(**changes))

    return change


def with_args(**args: Any) -> Callable[[Recipe], Recipe]:
    named = {name.replace("_", "-"): value for name, value in args.items()}
    return lambda recipe: replace(recipe, engine=recipe.engine.edit(args={**recipe.engine.args, **named}))


def with_container(**section: Any) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, container=ContainerSection(**section))


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("version", with_engine(version="0.13.0")),
        ("instance_family", lambda recipe: recipe.on("ml.trn1.32xlarge")),
        ("logical_cores", with_engine(env={"NEURON_LOGICAL_NC_CONFIG": "1"})),
        ("tensor_parallel", with_args(tensor_parallel_size=64)),
        ("max_num_seqs", with_engine(max_num_seqs=8)),
        ("max_model_len", with_engine(max_model_len=2048)),
        ("num_speculative_tokens", with_speculation(num_speculative_tokens=5)),
        ("target", lambda recipe: replace(recipe, target=recipe.target.edit(model="org/target", revision=COMMIT))),
        ("drafter", with_speculation(model="org/drafter", revision=COMMIT)),
        ("settings", with_args(override_neuron_config={"sequence_parallel_enabled": True})),
        ("settings", with_engine(env={"NEURON_CC_FLAGS": "-O1"})),
        ("image", with_container(base="registry.example/neuron:1")),
        ("image", with_container(wheels=["neuronx-cc==2.21.33363"])),
    ],
)
def test_what_changes_the_code_changes_its_key(recipe: Recipe, part: str, change: Callable[[Recipe], Recipe]) -> None:
    changed = change(recipe)
    before, after = artifacts.parts(recipe), artifacts.parts(changed)
    assert part in {name for name in before if before[name] != after[name]}
    assert artifacts.key(changed) != artifacts.key(recipe)


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: replace(recipe, name="another", description="other words", evidence=()),
        lambda recipe: recipe_with(recipe, weights="hub"),
        lambda recipe: recipe_with(recipe, tags={"team": "x"}, health_check_timeout=60),
        lambda recipe: on_platform(recipe, "kubernetes"),
        with_container(),
        with_container(builder="docker", repository="mine"),
    ],
)
def test_what_does_not_change_the_code_keeps_its_key(recipe: Recipe, change: Callable[[Recipe], Recipe]) -> None:
    assert artifacts.key(change(recipe)) == artifacts.key(recipe)


def test_each_base_and_each_compiler_has_a_key_of_its_own(recipe: Recipe) -> None:
    sections: list[dict[str, Any]] = [
        {"base": "registry.example/neuron:1"},
        {"base": "registry.example/neuron:2"},
        {"base": "registry.example/neuron:1", "wheels": ["neuronx-cc==2.21.1"]},
        {"base": "registry.example/neuron:1", "wheels": ["neuronx-cc==2.22.1"]},
        {"base": "registry.example/neuron:1", "wheels": ["neuronx-cc==2.22.1"], "python": "3.11"},
    ]
    assert len({artifacts.key(with_container(**section)(recipe)) for section in sections}) == len(sections)


def test_another_text_of_the_dockerfile_changes_the_key(recipe: Recipe, tmp_path: Path) -> None:
    fragment = tmp_path / "Dockerfile"
    built = with_container(dockerfile=str(fragment))(recipe)
    fragment.write_text("RUN pip install neuronx-cc==2.21.1\n")
    before = artifacts.key(built)
    fragment.write_text("RUN pip install neuronx-cc==2.22.1\n")
    assert artifacts.key(built) != before


def test_a_dockerfile_that_cannot_be_read_is_named(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere cannot be read"):
        artifacts.key(with_container(dockerfile=str(tmp_path / "nowhere"))(recipe))


def test_a_pinned_drafter_has_one_key_wherever_it_is_fetched_from(tmp_path: Path) -> None:
    pinned = RECIPE.replace("draft-model, model: org/drafter", f"eagle3, model: org/drafter{REVISION}")
    eagle3 = load(write_recipe(tmp_path, pinned))
    assert artifacts.key(recipe_with(eagle3, weights="hub")) == artifacts.key(eagle3)


def test_a_size_of_the_same_family_keeps_the_key(recipe: Recipe) -> None:
    assert artifacts.key(recipe.on("ml.trn2.3xlarge")) == artifacts.key(recipe)


def test_the_baseline_has_code_of_its_own_whoever_runs_it(recipe: Recipe) -> None:
    twin, arm = recipe.baseline(), replace(recipe, speculation=None)
    assert artifacts.key(twin) == artifacts.key(arm) != artifacts.key(recipe)


def test_other_weights_in_the_same_folder_change_the_key(tmp_path: Path) -> None:
    write_pair(tmp_path, "draft-model")
    recipe = load(write_recipe(tmp_path, RECIPE.replace("org/", "./").replace(REVISION, "")))
    before = artifacts.key(recipe)
    (tmp_path / "drafter" / "model.safetensors").write_bytes(b"others")
    assert artifacts.key(recipe) != before


def test_the_container_is_told_where_and_what(recipe: Recipe) -> None:
    told = artifacts.variables(recipe, "/compiled")
    assert (told["TOOLKIT_ARTIFACTS"], told["TOOLKIT_ARTIFACTS_KEY"]) == ("/compiled", artifacts.key(recipe))
    assert json.loads(told["TOOLKIT_ARTIFACTS_PARTS"]) == artifacts.parts(recipe)


def test_parts_that_are_too_long_are_left_out(recipe: Recipe) -> None:
    named = replace(recipe, target=recipe.target.edit(model=f"s3://bucket/{'long/' * 200}"))
    assert artifacts.variables(named, "/compiled").keys() == {"TOOLKIT_ARTIFACTS", "TOOLKIT_ARTIFACTS_KEY"}


def test_an_engine_that_compiles_at_start_is_told_nothing(recipe: Recipe) -> None:
    assert artifacts.variables(with_engine(compile="at-start")(recipe), "/compiled") == {}


def test_an_estimate_grows_with_the_weights(recipe: Recipe) -> None:
    assert artifacts.expected_seconds(replace(recipe, weight_bytes=69_000_000_000)) == 69 * 60
    assert artifacts.expected_seconds(recipe) == 0
