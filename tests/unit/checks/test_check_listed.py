"""Public drafters that the catalogue lists: what is wrong with their use is found without a lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import HUB_RECIPE, write_recipe

from toolkit.api.checking import check
from toolkit.findings import Finding

YUHUILI = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
HEAD_20B, HEAD_120B = "amazon/GPT-OSS-20B-P-EAGLE", "amazon/gpt-oss-120b-p-eagle"


def found(root: Path, code: str, target: str, drafter: str, *edits: tuple[str, str]) -> list[Finding]:
    """Findings with that code on a recipe of the hub that has no lock."""
    text = HUB_RECIPE.replace("org/target", target).replace("org/drafter", drafter)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return [finding for finding in check(write_recipe(root, text)).findings if finding.code == code]


def test_more_tokens_than_the_head_was_trained_for(tmp_path: Path) -> None:
    deep = ("tokens: 7", "tokens: 11")
    (finding,) = found(tmp_path, "pair.trained-depth", "openai/gpt-oss-20b", HEAD_20B, deep)
    assert finding.severity == "warning"
    assert "(10)" in finding.message
    assert not found(tmp_path, "pair.trained-depth", "openai/gpt-oss-20b", HEAD_20B, ("tokens: 7", "tokens: 10"))


def test_the_head_of_another_public_model_is_an_error(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "pair.other-target", "openai/gpt-oss-20b", HEAD_120B)
    assert finding.severity == "error"
    assert "trained for openai/gpt-oss-120b, not for openai/gpt-oss-20b" in finding.message
    assert HEAD_20B in finding.hint


def test_a_target_that_may_be_a_fine_tune_is_a_warning(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "pair.other-target", "our/gpt-oss-20b-sft", HEAD_20B)
    assert finding.severity == "warning"


def test_a_fine_tune_may_have_a_head_of_its_own(tmp_path: Path) -> None:
    head = "RedHatAI/Qwen3-32B-speculator.eagle3"
    (finding,) = found(tmp_path, "pair.other-target", "nex-agi/Qwen3-32B-Nex-N1", head, ("p-eagle", "eagle3"))
    assert finding.severity == "warning"


@pytest.mark.parametrize("code", ["pair.unverified", "pair.licence"])
def test_what_speaks_against_a_public_drafter_is_a_warning(tmp_path: Path, code: str) -> None:
    dflash = ("p-eagle", "dflash")
    (finding,) = found(tmp_path, code, "zai-org/GLM-5.3", "incoai/GLM-5.3-DFlash2", dflash)
    assert finding.severity == "warning"
    assert not found(tmp_path, code, "openai/gpt-oss-20b", "z-lab/gpt-oss-20b-DFlash", dflash)


def test_a_head_whose_readme_asks_for_a_later_change_of_vllm_needs_that_version(tmp_path: Path) -> None:
    pair, dflash = ("Qwen/Qwen3.5-27B", "z-lab/Qwen3.5-27B-DFlash"), ("p-eagle", "dflash")
    assert found(tmp_path, "engine.version", *pair, dflash, ("0.30.0", "0.25.0"))
    assert not found(tmp_path, "engine.version", *pair, dflash)


@pytest.mark.parametrize(
    "target",
    [
        "RedHatAI/Qwen3-Coder-30B-A3B-Instruct-FP8-dynamic",
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "RedHatAI/Qwen3-Coder-30B-A3B-Instruct-quantized.w4a16",
    ],
)
def test_another_precision_is_the_same_model(tmp_path: Path, target: str) -> None:
    assert not found(tmp_path, "pair.other-target", target, "amazon/Qwen3-Coder-30B-A3B-Instruct-P-EAGLE")


def test_fewer_positions_than_a_request_may_have(tmp_path: Path) -> None:
    """vLLM issue 48894, fixed in 0.27."""
    eagle3, long = ("method: p-eagle", "method: eagle3"), ("1024", "8192")
    target = "meta-llama/Llama-3.1-8B-Instruct"
    (finding,) = found(tmp_path, "pair.positions", target, YUHUILI, eagle3, long, ("0.30.0", "0.26.0"))
    assert "supports 2048 positions" in finding.message
    assert not found(tmp_path, "pair.positions", target, YUHUILI, eagle3, long)
    assert not found(tmp_path, "pair.positions", target, YUHUILI, eagle3, ("0.30.0", "0.26.0"))
