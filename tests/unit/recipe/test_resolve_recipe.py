"""What a recipe means: defaults filled in, paths made absolute, the baseline derived."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pairs import RECIPE, write_recipe

from toolkit.engines.arguments import builds
from toolkit.loading import able_types, load, on_platform
from toolkit.recipe.recipe import Recipe

SHORT = """\
name: short
target: {model: ./target}
speculation: {method: p-eagle, model: ./drafter}
engine: {version: 0.32.0}
platform: {name: local}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_recipe(tmp_path, RECIPE))


def test_five_lines_suffice(tmp_path: Path) -> None:
    said = load(write_recipe(tmp_path, SHORT)).to_dict()
    where, drafting = said.pop("platform"), said.pop("speculation")
    assert (where["name"], where["instance_types"], where["weights"]) == ("local", ["ml.m7i.large"], "s3")
    assert {key: said[key] for key in said if key not in ("scaling", "rollout", "network", "observability")} == {
        "name": "short",
        "description": None,
        "target": {"model": str(tmp_path / "target"), "revision": None, "accept_eula": False},
        "engine": {
            "name": "vllm",
            "version": "0.32.0",
            "max_model_len": None,
            "max_num_seqs": 128,
            "max_num_batched_tokens": 32768,
            "warm_start": False,
            "compile": "ahead",
            "args": {},
            "env": {},
            "allow": [],
        },
        "training": None,
        "container": "aws-dlc",
        "workloads": {},
        "tags": {},
        "evidence": [],
        "unlisted": [],
        "expect": {},
    }
    assert {key: value for key, value in drafting.items() if value} == {
        "method": "p-eagle",
        "model": str(tmp_path / "drafter"),
        "num_speculative_tokens": 7,
    }


@pytest.mark.parametrize(("method", "tokens"), [("p-eagle", 7), ("eagle3", 3), ("draft-model", 5), ("pard", 8)])
def test_each_method_has_its_own_number_of_draft_tokens(tmp_path: Path, method: str, tokens: int) -> None:
    recipe = load(write_recipe(tmp_path, SHORT.replace("p-eagle", method)))
    assert recipe.speculation
    assert recipe.speculation.num_speculative_tokens == tokens


def test_flags_are_written_with_dashes(tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE.replace("enforce-eager", "enforce_eager")))
    assert recipe.engine.args == {"dtype": "float32", "enforce-eager": True}


def test_paths_are_relative_to_the_recipe_not_to_where_the_command_runs(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("recipe.yaml").target.folder == recipe.target.folder == tmp_path / "target"


def test_the_baseline_differs_in_name_and_speculation_only(recipe: Recipe) -> None:
    baseline = recipe.baseline()
    assert (baseline.name, baseline.method) == ("tiny-baseline", "none")
    assert baseline.baseline_of == recipe.speculation
    assert replace(baseline, name=recipe.name, speculation=recipe.speculation, baseline_of=None) == recipe


def test_the_baseline_of_a_baseline_is_itself(recipe: Recipe) -> None:
    assert recipe.baseline().baseline() == recipe.baseline()


def test_a_discount_comes_off_every_price_that_is_known(recipe: Recipe) -> None:
    less = replace(recipe, discount_percent=25)
    assert (recipe.discounted(8.0), less.discounted(8.0), less.discounted(None)) == (8.0, 6.0, None)


def test_loading_a_recipe_gives_it_back(recipe: Recipe) -> None:
    assert load(recipe) is recipe


def test_a_recipe_shows_itself_in_one_line(recipe: Recipe) -> None:
    assert repr(recipe) == "<Recipe tiny: target, p-eagle K=7, vllm 0.32.0, local>"


def test_a_recipe_shows_itself_in_a_notebook_without_running_what_it_says(recipe: Recipe) -> None:
    shown = replace(recipe, description="<script>")._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


TRAINIUM = """\
name: trn
target: {model: org/target}
speculation: {method: draft-model, model: org/drafter}
engine: {name: neuron, max_model_len: 1024}
platform: {name: sagemaker, instance_types: [ml.trn2.48xlarge, {type: ml.trn1.32xlarge, num_speculative_tokens: 4}]}
"""


def test_what_a_type_says_of_a_flag_counts_there_and_nowhere_else(tmp_path: Path) -> None:
    own = "engine: {name: neuron, max_model_len: 1024, args: {tensor-parallel-size: 64}}"
    text = TRAINIUM.replace("engine: {name: neuron, max_model_len: 1024}", own)
    recipe = load(write_recipe(tmp_path, text.replace("tokens: 4}", "tokens: 4, args: {tensor-parallel-size: 32}}")))
    sizes = [recipe.on(name).engine.args["tensor-parallel-size"] for name in recipe.platform.types]
    assert sizes == [64, 32]


def test_a_recipe_goes_to_a_cluster_and_back(tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, TRAINIUM))
    cluster = on_platform(recipe, "kubernetes")
    assert (cluster.platform.types, cluster.platform.weights) == (("trn2.48xlarge", "trn1.32xlarge"), "hub")
    assert not builds(cluster)
    assert on_platform(cluster, "sagemaker") == recipe
    assert builds(recipe)


def test_a_recipe_is_loaded_for_another_platform(recipe: Recipe) -> None:
    moved = load(recipe, "kubernetes")
    assert (moved.platform.name, load(recipe.path, "kubernetes")) == ("kubernetes", moved)
    assert load(recipe, None) == recipe


def test_a_clusters_secret_stays_there(tmp_path: Path) -> None:
    text = TRAINIUM.replace("name: sagemaker", "name: kubernetes, hub_token_secret: hf").replace("ml.", "")
    recipe = on_platform(load(write_recipe(tmp_path, text)), "sagemaker")
    assert (recipe.platform.hub_token_secret, recipe.platform.types[0]) == (None, "ml.trn2.48xlarge")


def test_an_engine_that_lacks_the_method_is_taken_in_its_own_newest_version(tmp_path: Path) -> None:
    text = TRAINIUM.replace("draft-model", "eagle3").replace("name: neuron", "name: nxd-inference")
    assert load(write_recipe(tmp_path, text)).engine.version == "0.16.0"


@pytest.mark.parametrize(
    ("region", "taken"),
    [("", {"ml.g6.xlarge", "ml.g7e.2xlarge", "ml.p5e.48xlarge"}), ("eu-west-1", {"ml.g6.xlarge", "ml.p5e.48xlarge"})],
)
def test_a_type_is_left_out_where_its_region_is_known_to_lack_it(tmp_path: Path, region: str, taken: set[str]) -> None:
    """Of ml.p5e.48xlarge no region is known."""
    text = SHORT.replace("{name: local}", f"{{name: sagemaker{region and f', region: {region}'}}}")
    recipe = load(write_recipe(tmp_path, text.replace("0.32.0", "0.30.0").replace("./", "org/")))
    asked = {"ml.g6.xlarge", "ml.g7e.2xlarge", "ml.p5e.48xlarge"}
    assert asked & {item.name for item in able_types(recipe)} == taken
