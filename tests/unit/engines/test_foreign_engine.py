"""An engine as foreign as they come is one folder, one file of the catalogue and one container: checked and planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign import RECIPE, Product, product_with_grove


@pytest.fixture(scope="module")
def grove(tmp_path_factory: pytest.TempPathFactory) -> Product:
    return product_with_grove(tmp_path_factory.mktemp("product"))


def test_its_recipe_is_sound_and_its_flags_are_its_own(grove: Product) -> None:
    assert grove.json("check", grove.recipe())["findings"] == []

    plan = grove.json("plan", grove.recipe())

    (model,) = [action["request"] for action in plan["actions"] if action["kind"] == "Model"]
    variables = model["PrimaryContainer"]["Environment"]
    assert model["PrimaryContainer"]["Image"].endswith("/grove:2.1.0-cpu")
    assert {name: value for name, value in variables.items() if "SPECULATIVE" in name} == {
        "GROVE_SPECULATIVE_ALGORITHM": "EAGLE3",
        "GROVE_SPECULATIVE_DRAFT_MODEL_PATH": "/opt/ml/additional-model-data-sources/drafter",
        "GROVE_SPECULATIVE_EAGLE_TOPK": "4",
        "GROVE_SPECULATIVE_NUM_DRAFT_TOKENS": "16",
        "GROVE_SPECULATIVE_NUM_STEPS": "3",
    }
    assert not [name for name in variables if "VLLM" in name]


@pytest.mark.parametrize(
    ("old", "new", "code", "path"),
    [
        ("draft_tokens: 16", "draft_tokens: 90", "grove.tree", "speculation.draft_tokens"),
        (
            "  max_num_seqs",
            "  args: {max-model-len: 3}\n  max_num_seqs",
            "engine.unknown-flag",
            "engine.args.max-model-len",
        ),
        ("  max_num_seqs", "  args: {tp-sise: 2}\n  max_num_seqs", "engine.unknown-flag", "engine.args.tp-sise"),
        ("method: eagle3", "method: p-eagle", "engine.method", "speculation.method"),
    ],
)
def test_its_own_checks_speak(grove: Product, old: str, new: str, code: str, path: str) -> None:
    report = grove.json("check", grove.recipe(RECIPE.replace(old, new)), status=[1])
    assert (code, path) in [(finding["code"], finding["path"]) for finding in report["findings"]]


def test_its_memory_is_a_pool_of_tokens(grove: Product) -> None:
    sagemaker = RECIPE.replace("{name: local}", "{name: sagemaker, instance_types: [ml.g7e.2xlarge]}")
    whole, half = (
        grove.json(
            "fit",
            grove.recipe(sagemaker.replace("  max_num", f"  args: {{mem-fraction-static: {share}}}\n  max_num")),
            "--instance",
            "ml.g7e.2xlarge",
        )
        for share in (0.8, 0.4)
    )
    (all_of_it,), (half_of_it,) = whole["fits"], half["fits"]
    assert all_of_it["fits"]
    assert all_of_it["kv_tokens"] == pytest.approx(2 * half_of_it["kv_tokens"], rel=0.01)
    assert all_of_it["workspace_gib"] == 2


def test_its_words_tell_the_cause(grove: Product, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("grove 2.1.0 grows\ngrove plants {}\nthe grove withered\n")
    assert grove.json("explain", str(log))["cause"] == "grove-withered"
