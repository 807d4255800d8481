"""What each stage of a pipeline holds, on one node or on several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from models import LLAMA_8B, QWEN3_14B, facts
from pairs import recipe_with
from test_fit import EIGHT_H100, FOUR_L4, L4, recipe

from toolkit.engines.vllm.stages import Stage, stages
from toolkit.errors import ToolkitError
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import fit

STAGES = "    pipeline-parallel-size: {}\n    tensor-parallel-size: 1\n"


@pytest.mark.parametrize(
    ("layers", "count", "sizes"),
    [(61, 1, [61]), (61, 2, [31, 30]), (61, 4, [15, 15, 16, 15]), (62, 4, [15, 16, 16, 15]), (63, 4, [16, 16, 16, 15])],
)
def test_layers_are_divided_as_vllm_does_it(layers: int, count: int, sizes: list[int]) -> None:
    """Its get_pp_indices gives these, in 0.32."""
    found = stages(layers, count)
    assert [stage.end - stage.first for stage in found] == sizes
    assert [found[0].first, found[-1].end, *(stage.is_last for stage in found[:-1])] == [
        0,
        layers,
        *[False] * (count - 1),
    ]


def test_layers_are_divided_as_the_recipe_says(tmp_path: Path) -> None:
    """All but one of 32 layers are on the first stage, whose accelerator is the fuller one."""
    halves = fit(with_layers(tmp_path / "halves", "16,16"), Lock(facts(LLAMA_8B)), FOUR_L4)
    uneven = fit(with_layers(tmp_path / "uneven", "31,1"), Lock(facts(LLAMA_8B)), FOUR_L4)
    embedding = 128256 * 4096 * 2 / 1024**3
    assert uneven.weights_gib - embedding == pytest.approx((halves.weights_gib - embedding) * 31 / 16, rel=0.01)


@pytest.mark.parametrize("written", ["16,15", "16,8,8", "33,-1,0"])
def test_a_division_that_vllm_refuses_does_not_fit(tmp_path: Path, written: str) -> None:
    found = fit(with_layers(tmp_path / "it", written), Lock(facts(LLAMA_8B)), FOUR_L4)
    assert found.reason == f"VLLM_PP_LAYER_PARTITION {written} does not divide 32 layers among 2 stages"


def test_a_division_that_is_no_list_of_numbers_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match=r"engine\.env\.VLLM_PP_LAYER_PARTITION: '16\+16' is no list"):
        fit(with_layers(tmp_path / "it", "16+16"), Lock(facts(LLAMA_8B)), FOUR_L4)


def with_layers(folder: Path, written: str) -> Recipe:
    folder.mkdir()
    two = recipe(folder, STAGES.format(2))
    return recipe_with(two, engine=two.engine.edit(env={"VLLM_PP_LAYER_PARTITION": written}))


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("model.layers.1.mlp.weight", [1, 0]),
        ("model.layers.{0-3}.mlp.weight", [0.5, 0.5]),
        ("model.layers.{0,2-3}.mlp.experts.{0-7}.weight", [1 / 3, 2 / 3]),
        ("model.layers.4.eh_proj.weight", [0, 1]),  # the model's own draft layer comes after its last
        ("model.embed_tokens.weight", [1, 0]),
        ("lm_head.weight", [0, 1]),
    ],
)
def test_a_tensor_is_on_the_stage_of_its_layer(name: str, shares: list[float]) -> None:
    assert [stage.share(name, tied=False) for stage in (Stage(0, 2, 4), Stage(2, 4, 4))] == pytest.approx(shares)


def test_a_tied_embedding_is_on_the_first_and_on_the_last_stage() -> None:
    assert [stage.share("embed_tokens.weight", tied=True) for stage in stages(6, 3)] == [1, 0, 1]


def test_two_stages_hold_what_one_accelerator_does_not(tmp_path: Path) -> None:
    small = replace(FOUR_L4, memory_per_accelerator_mib=16 * 1024)
    models = Lock(facts(LLAMA_8B))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    whole = fit(recipe(tmp_path / "one", STAGES.format(1)), models, small)
    halves = fit(recipe(tmp_path / "two", STAGES.format(2)), models, small)
    assert (whole.fits, halves.fits) == (False, True)
    embedding = 128256 * 4096 * 2 / 1024**3
    assert halves.weights_gib == pytest.approx((whole.weights_gib - 2 * embedding) / 2 + embedding, rel=0.01)
    assert halves.copies == 2


def on_nodes(recipe: Recipe, nodes: int) -> Recipe:
    section = KubernetesSection(nodes=nodes)
    return recipe_with(recipe, platform="kubernetes", kubernetes=section, instance_types=("g6.xlarge",))


def test_accelerators_and_price_are_those_of_all_nodes(tmp_path: Path) -> None:
    models = Lock(facts(QWEN3_14B))
    two_stages = recipe(tmp_path, STAGES.format(2))
    alone, together = (fit(on_nodes(two_stages, nodes), models, L4) for nodes in (1, 2))
    assert alone.reason == "pipeline-parallel-size 2 needs that many accelerators"
    assert (together.fits, together.nodes, together.price_per_hour) == (True, 2, 2.2)


def test_more_stages_than_layers_are_refused(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path, STAGES.format(8)), Lock(facts({**LLAMA_8B, "num_hidden_layers": 4})), EIGHT_H100)
    assert found.reason == "4 layers cannot be divided among 8 stages"
