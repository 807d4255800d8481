"""The table of drafting methods, held against vLLM's own words where the installed version has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from pairs import RECIPE, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.catalog import methods
from toolkit.catalog.lookup import FOLDER, version_key
from toolkit.catalog.methods import EngineMethod, Method
from toolkit.errors import UsageError
from toolkit.loading import read

DATA, VLLM = (json.loads((FOLDER / name).read_text()) for name in ("methods.json", "engines/vllm.json"))
INSTALLED = "0.32.0"
HERE = [(found.name, found.engines["vllm"]) for found in methods.methods()]


def test_every_fact_names_its_source() -> None:
    assert {name for method in DATA["methods"].values() for name in method} == set(DATA["sources"])
    of_vllm = {f"methods.{name}" for row in VLLM["methods"].values() for name in row} - {"methods.fixed"}
    assert of_vllm == {name for name in VLLM["sources"] if name.startswith("methods.")}


def test_an_engines_rows_are_of_methods_that_there_are() -> None:
    assert set(VLLM["methods"]) == set(DATA["methods"])


@pytest.mark.parametrize("found", methods.methods(), ids=lambda found: found.name)
def test_the_facts_of_a_method_do_not_contradict_each_other(found: Method) -> None:
    assert (found.drafter == "none") == (found.kind == "text")
    assert not found.reads_layers or found.kind == "head"
    assert not found.mask_token or found.parallel
    assert found.engines["vllm"].draft_slots(7) in (0, 1, 6, 7)
    if found.drafter == "optional":
        assert found.engines["vllm"].targets


@pytest.mark.parametrize(("name", "slots"), [("eagle3", 0), ("draft-model", 1), ("p-eagle", 6), ("pard", 7)])
def test_slots_of_the_token_budget(name: str, slots: int) -> None:
    assert methods.method(name).engines["vllm"].draft_slots(7) == slots


def test_a_spelling_is_its_method_under_the_engines_name() -> None:
    spelling, method = methods.method("qwen3_next_mtp"), methods.method("mtp")
    assert (spelling.spelling_of, spelling.engines["vllm"].method) == ("mtp", "qwen3_next_mtp")
    assert (spelling.drafter, spelling.default_num_speculative_tokens) == (
        method.drafter,
        method.default_num_speculative_tokens,
    )
    assert spelling not in methods.methods()
    assert spelling.name in methods.names()


def test_an_unknown_method_gets_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown drafting method `medusa`") as caught:
        methods.method("medusa")
    assert "p-eagle" in caught.value.hint


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"method": "eagle3", "parallel_drafting": True}, "p-eagle"),
        ({"method": "eagle3", "parallel_drafting": False}, "eagle3"),
        ({"method": "draft_model"}, "draft-model"),
        ({"method": "ngram"}, "ngram"),
        ({"method": "medusa"}, ""),
        ({}, ""),
    ],
)
def test_what_an_engines_own_configuration_asks_for(config: dict[str, object], name: str) -> None:
    assert methods.configured("vllm", config) == name
    assert methods.configured("another engine", config) == ""


def test_vllm_has_every_method_and_spelling_that_the_table_says() -> None:
    speculative = pytest.importorskip("vllm.config.speculative")
    theirs = set(get_args(speculative.SpeculativeMethod))
    told = [methods.method(name).engines["vllm"] for name in methods.names() if name != methods.BASELINE]
    ours = {item.method for item in told if version_key(item.since) <= version_key(INSTALLED)} - {""}
    assert ours <= theirs
    assert set(get_args(speculative.MTPModelTypes)) - ours == {"gemma4_mtp"}  # which it finds out by itself


@pytest.mark.parametrize(("name", "told"), HERE)
def test_vllm_has_every_key_that_the_table_allows(name: str, told: EngineMethod) -> None:
    speculative = pytest.importorskip("vllm.config.speculative")
    fields = speculative.SpeculativeConfig.__dataclass_fields__
    assert set(told.keys) | set(told.fixed) <= set(fields), name


NOT_IN_RECIPES = {
    "method": "the key `method` of every recipe",
    "model": "the drafter of every recipe",
    "revision": "the drafter's",
    "num_speculative_tokens": "K of every recipe",
    "synthetic_acceptance_length": "answers by chance: only a measurement may ask for it",
    "synthetic_acceptance_rates": "the same",
    "draft_load_config": "the target's is used",
    "draft_model_config": "made by vLLM itself",
    "draft_parallel_config": "made by vLLM itself",
    "target_model_config": "made by vLLM itself",
    "target_parallel_config": "made by vLLM itself",
    "tensor_parallel_size": "refused by vLLM: it is `draft_tensor_parallel_size`",
    "code_revision": "code of others does not run",
    "disable_eagle_block_drop": "an experiment of vLLM's authors",
    "disable_padded_drafter_batch": "a choice between two ways to the same drafts",
    "dspark_draft_topk": "the same",
    "index_share_for_mtp_iteration": "stands in the drafter's config.json",
    "use_local_argmax_reduction": "a choice between two ways to the same drafts",
}
OTHER_METHODS = {
    "custom_class": "code of others",
    "extract_hidden_states": "drafts nothing",
    "gemma4_mtp": "found out by vLLM itself",
    "medusa": "heads of 2023 that vLLM's documentation no longer names",
    "mlp_speculator": "the same",
}


def test_every_method_and_key_of_vllm_can_be_written_or_is_left_out_with_a_reason() -> None:
    speculative = pytest.importorskip("vllm.config.speculative")
    ours = [methods.method(name).engines["vllm"] for name in methods.names() if name != methods.BASELINE]
    keys = {key for item in ours for key in (*item.keys, *item.fixed)}

    assert set(speculative.SpeculativeConfig.__dataclass_fields__) - keys == set(NOT_IN_RECIPES)
    assert set(get_args(speculative.SpeculativeMethod)) - {item.method for item in ours} == set(OTHER_METHODS)


def test_a_key_may_need_one_of_the_two_model_runners() -> None:
    model = methods.method("draft-model").engines["vllm"]
    assert (model.runner_for({}), model.runner_for({"use_heterogeneous_vocab": False})) == ("", "")
    assert model.runner_for({"use_heterogeneous_vocab": True}) == "V1"


def test_a_method_that_is_added_can_be_written_and_checked(tmp_path: Path) -> None:
    write_pair(tmp_path)
    text = RECIPE.replace("method: p-eagle\n  model: ./drafter\n  num_speculative_tokens: 7", "method: toy")
    path = write_recipe(tmp_path, text)
    methods.register(Method("toy", drafter="none", kind="text", default_num_speculative_tokens=2))
    try:
        assert read(path).file.speculation.method == "toy"
        (finding,) = check(path).findings
    finally:
        methods.unregister("toy")
    assert (finding.code, finding.message) == ("engine.method", "vllm does not support method `toy`")
