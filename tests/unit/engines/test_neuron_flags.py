"""What the engines for Trainium are told, to the letter: each recipe that comes with the toolkit, each generation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairs import recipe_with

from toolkit.engines.arguments import environment
from toolkit.engines.neuron import generations as neuron
from toolkit.loading import load
from toolkit.recipe.known import catalogue
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import InstanceType

Golden = Callable[[str, object], None]
SHIPPED = [name for name in catalogue() if load(name).engine_rules.compilation]
SPECULATION = {"draft-model": "org/drafter", "eagle3": "org/eagle3", "dflash": "org/dflash"}


def recipe_of(root: Path, method: str = "eagle3", **engine: Any) -> Recipe:
    """A recipe on Kubernetes, whose container fetches both models itself; JSON is YAML."""
    speculation = {"method": method} | ({"model": SPECULATION[method]} if method != "none" else {})
    written = {
        "name": "trainium",
        "target": {"model": "org/target"},
        "speculation": speculation,
        "engine": {"name": "neuron", "max_model_len": 1024, "max_num_seqs": 2} | engine,
        "platform": {"name": "kubernetes", "instance_types": ["trn2.48xlarge"]},
    }
    path = root / "recipe.yaml"
    path.write_text(json.dumps(written))
    return load(path)


def flags_of(root: Path, method: str, **engine: Any) -> dict[str, Any]:
    return recipe_of(root, method, **engine).flags


@pytest.mark.parametrize("name", SHIPPED)
def test_the_environment_of_a_shipped_recipe_and_of_its_baseline(name: str, golden: Golden) -> None:
    recipe = load(name)
    arms = {"speculative": environment(recipe), "baseline": environment(recipe.baseline())}
    golden(f"neuron/{recipe.name}", arms)


@pytest.mark.parametrize("generation", neuron.generations(), ids=str)
def test_the_environment_of_each_generation(tmp_path: Path, generation: neuron.Generation, golden: Golden) -> None:
    engine = {"name": generation.engine, "version": generation.version}
    told = {method: environment(recipe_of(tmp_path, method, **engine)) for method in ("none", *generation.methods)}
    golden(f"neuron/{generation.engine}-{generation.version}", told)


@pytest.mark.parametrize("name", SHIPPED)
def test_both_arms_of_a_shipped_recipe_differ_by_the_drafter_only(name: str) -> None:
    """Fused speculation is how the fork runs a drafter at all."""
    recipe = load(name)
    with_drafter, without = recipe.flags, recipe.baseline().flags
    differing = {flag for flag in with_drafter if with_drafter[flag] != without.get(flag)}
    assert differing - {"override-neuron-config"} == {"served-model-name", "speculative-config"}
    assert with_drafter.keys() - without.keys() == {"speculative-config"}


@pytest.mark.parametrize("method", ["eagle3", "dflash"])
def test_a_baseline_is_told_the_same_but_for_the_drafter(tmp_path: Path, method: str) -> None:
    recipe = recipe_of(tmp_path, method)
    told = {"served-model-name": recipe.name, "speculative-config": recipe.flags["speculative-config"]}
    assert recipe.baseline().flags | told == recipe.flags


def test_a_flag_that_is_false_is_off_where_vllms_default_is_on(tmp_path: Path) -> None:
    """As on GPUs; the images leave a flag out that is false, and code that was compiled with it on does not fit."""
    recipe = recipe_of(tmp_path, args={"enable-prefix-caching": False, "disable-log-stats": False})
    told = environment(recipe)
    assert told["SM_VLLM_NO_ENABLE_PREFIX_CACHING"] == "true"
    assert "SM_VLLM_NO_DISABLE_LOG_STATS" not in told
    compilation = recipe.engine_rules.compilation
    assert compilation
    assert compilation.parts(recipe, "image", "target", "drafter")["switched_off"] == [
        "SM_VLLM_NO_ENABLE_PREFIX_CACHING"
    ]


def test_a_baseline_has_room_for_the_drafts_of_its_instance_type(tmp_path: Path) -> None:
    """33 blocks of 32 hold 1024 tokens and 32 drafts, 34 hold one more."""
    differs = {"trn2.3xlarge": InstanceType(type="trn2.3xlarge", num_speculative_tokens=33)}
    recipe = recipe_with(recipe_of(tmp_path, "dflash", max_num_seqs=1), overrides=differs)
    blocks = recipe.baseline().on("trn2.3xlarge").flags["num-gpu-blocks-override"]
    assert blocks == recipe.on("trn2.3xlarge").flags["num-gpu-blocks-override"] == 34 + 1


def test_the_toolkit_and_the_recipe_write_the_configuration_together(tmp_path: Path) -> None:
    args = {"additional-config": {"neuron_config": {"num_seqs_buckets": [2]}}}
    assert flags_of(tmp_path, "eagle3", args=args)["additional-config"] == {
        "neuron_config": {"on_device_sampling_config": {"all_greedy": True}, "num_seqs_buckets": [2]}
    }


def test_a_key_that_the_recipe_sets_too_is_the_recipes(tmp_path: Path) -> None:
    args = {"override-neuron-config": {"save_sharded_checkpoint": False}}
    config = flags_of(tmp_path, "draft-model", args=args)["override-neuron-config"]
    assert config == {"save_sharded_checkpoint": False, "enable_fused_speculation": True}


def test_a_flag_that_the_recipe_sets_too_is_the_recipes(tmp_path: Path) -> None:
    flags = flags_of(tmp_path, "dflash", args={"num-gpu-blocks-override": 1200, "dtype": "auto"})
    assert (flags["num-gpu-blocks-override"], flags["dtype"]) == (1200, "auto")


def test_a_variable_that_the_recipe_sets_too_is_the_recipes(tmp_path: Path) -> None:
    told = environment(recipe_of(tmp_path, env={"VLLM_NEURON_COMPILATION_TIMEOUT": "7200"}))
    assert told["VLLM_NEURON_COMPILATION_TIMEOUT"] == "7200"
    assert told["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "3600"


def test_dflash_has_a_kv_cache_for_its_longest_requests_and_vllms_null_block(tmp_path: Path) -> None:
    """8192 tokens and K=15 are 257 blocks of 32."""
    flags = flags_of(tmp_path, "dflash", max_model_len=8192, max_num_seqs=4)
    assert flags["num-gpu-blocks-override"] == 4 * 257 + 1


def test_dflash_reads_a_prompt_in_one_step_unless_told_otherwise(tmp_path: Path) -> None:
    assert flags_of(tmp_path, "dflash", max_model_len=8192)["max-num-batched-tokens"] == 8192
    more = flags_of(tmp_path, "dflash", max_model_len=8192, max_num_batched_tokens=16384)
    assert more["max-num-batched-tokens"] == 16384


def test_the_forks_drafter_takes_no_longer_requests_than_its_target(tmp_path: Path) -> None:
    assert flags_of(tmp_path, "draft-model")["speculative-config"]["max_model_len"] == 1024


def test_a_drafter_that_the_engine_fetches_is_pinned(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    assert recipe.speculation
    pinned = replace(recipe, speculation=recipe.speculation.edit(revision="0123abc"))
    assert pinned.flags["speculative-config"]["revision"] == "0123abc"


def test_a_staged_drafter_has_no_revision(tmp_path: Path) -> None:
    recipe = recipe_with(recipe_of(tmp_path), platform="sagemaker", weights="s3")
    assert recipe.speculation
    staged = replace(recipe, speculation=recipe.speculation.edit(revision="0123abc"))
    assert staged.flags["speculative-config"] == {
        "method": "eagle3",
        "model": "/opt/ml/additional-model-data-sources/drafter",
        "num_speculative_tokens": 3,
    }
