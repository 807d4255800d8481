"""What the container is told, to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pairs import HUB_RECIPE, RECIPE, write_recipe

from toolkit.engines.arguments import environment
from toolkit.engines.vllm.flags import draft_slots
from toolkit.loading import load

DRAFTER = "/opt/ml/additional-model-data-sources/drafter"
ALWAYS = {
    "CUSTOM_SCRIPT_FILENAME": "/dev/null/none.py",
    "STANDARD_AUTO_INSTALL_REQ": "false",
    "HF_HUB_OFFLINE": "1",
    "SM_VLLM_DTYPE": "float32",
    "SM_VLLM_ENFORCE_EAGER": "true",
    "SM_VLLM_ENABLE_PROMPT_TOKENS_DETAILS": "true",
    "SM_VLLM_MAX_MODEL_LEN": "1024",
    "SM_VLLM_MAX_NUM_BATCHED_TOKENS": "2048",
    "SM_VLLM_MAX_NUM_SEQS": "16",
}
SPECULATIVE = {"SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS": "summary", "SM_VLLM_SERVED_MODEL_NAME": "tiny"}
PARALLEL = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def speculative_config(method: str, more: str = "") -> dict[str, str]:
    text = f'{{"method":"{method}","model":"{DRAFTER}","num_speculative_tokens":7{more}}}'
    return {"SM_VLLM_SPECULATIVE_CONFIG": text}


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("p-eagle", {**PARALLEL, **speculative_config("eagle3", ',"parallel_drafting":true')}),
        ("eagle3", speculative_config("eagle3")),
        ("draft-model", speculative_config("draft_model")),
        ("pard", {**PARALLEL, **speculative_config("draft_model", ',"parallel_drafting":true')}),
    ],
)
def test_the_environment_of_each_method(tmp_path: Path, method: str, told: dict[str, str]) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE.replace("p-eagle", method)))
    assert environment(recipe) == {**ALWAYS, **SPECULATIVE, **told}


def test_the_environment_of_a_baseline(tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE)).baseline()
    assert environment(recipe) == {**ALWAYS, "SM_VLLM_SERVED_MODEL_NAME": "tiny-baseline"}


def test_an_engine_before_0_29_is_not_asked_for_metrics_that_it_lacks(tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE.replace("0.32.0", "0.28.0")))
    assert "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS" not in environment(recipe)


def test_a_container_that_fetches_its_target_is_told_one_commit_for_weights_and_tokenizer(tmp_path: Path) -> None:
    """A tokenizer of another day may count its tokens otherwise, and vLLM pins it by a flag of its own."""
    pinned = HUB_RECIPE.replace("org/target", "org/target, revision: v2")
    told = environment(load(write_recipe(tmp_path, pinned.replace("name: sagemaker", "name: sagemaker, weights: hub"))))
    assert {key: value for key, value in told.items() if value in ("org/target", "v2")} == {
        "SM_VLLM_MODEL": "org/target",
        "SM_VLLM_REVISION": "v2",
        "SM_VLLM_TOKENIZER_REVISION": "v2",
    }


@pytest.mark.parametrize(("platform", "told"), [("sagemaker, weights: hub", "v3"), ("sagemaker", None)])
def test_the_commit_of_a_drafter_is_told_where_the_container_fetches_it(
    tmp_path: Path, platform: str, told: str | None
) -> None:
    """In a folder that was filled beforehand there are no commits."""
    pinned = HUB_RECIPE.replace("model: org/drafter", "model: org/drafter\n  revision: v3")
    recipe = load(write_recipe(tmp_path, pinned.replace("name: sagemaker", f"name: {platform}")))
    assert json.loads(environment(recipe)["SM_VLLM_SPECULATIVE_CONFIG"]).get("revision") == told


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("x", "x"),
        ("0.5", "0.5"),
        ("false", "false"),
        ("[a, 1]", '["a",1]'),
        ("{a: {b: 1}}", '{"a":{"b":1}}'),
        ("''", ""),
    ],
)
def test_values_of_flags_are_written_as_json_except_text(tmp_path: Path, written: str, told: str) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE.replace("dtype: float32", f"some-flag: {written}")))
    assert environment(recipe)["SM_VLLM_SOME_FLAG"] == told


def test_a_flag_that_is_false_is_off_where_vllms_default_is_on(tmp_path: Path) -> None:
    """Entrypoints leave a flag out that is false (`containers/vllm/README.md`): its negative says it."""
    off = "enable-prefix-caching: false\n    disable-log-stats: false"
    told = environment(load(write_recipe(tmp_path, RECIPE.replace("dtype: float32", off))))
    assert told["SM_VLLM_NO_ENABLE_PREFIX_CACHING"] == "true"
    assert "SM_VLLM_NO_DISABLE_LOG_STATS" not in told  # vLLM has no such flag


def test_the_folder_of_the_drafter_does_not_make_vllm_guess_another_method() -> None:
    assert "eagle" not in DRAFTER


@pytest.mark.parametrize(("method", "slots"), [("p-eagle", 6), ("eagle3", 0), ("draft-model", 1), ("pard", 7)])
def test_slots_for_seven_draft_tokens(tmp_path: Path, method: str, slots: int) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE.replace("p-eagle", method)))
    assert draft_slots(recipe) == slots
    assert draft_slots(recipe.baseline()) == 0
