"""gpt-oss in a container without a network: its chat format's vocabulary is downloaded by older vLLM.

vllm-project/vllm#22525: "openai_harmony.HarmonyError: error downloading or loading vocab file".
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.checks.run import check
from toolkit.findings import Finding

ISOLATED = "network: {isolation: true}\n"
FOLDER = "  env: {TIKTOKEN_ENCODINGS_BASE: /opt/ml/model}\n  max_model_len"


def found(root: Path, text: str, model_type: str = "gpt_oss") -> list[Finding]:
    path = write_hub_pair(root, text, target={"config": {"model_type": model_type}})
    return [finding for finding in check(path).findings if finding.code == "engine.vocabulary"]


def test_an_isolated_gpt_oss_cannot_download_its_vocabulary(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, HUB_RECIPE.replace("0.30.0", "0.29.0") + ISOLATED)
    assert (finding.severity, finding.path) == ("error", "network.isolation")
    assert "0.30.0 or newer" in finding.hint
    assert "TIKTOKEN_ENCODINGS_BASE" in finding.hint


@pytest.mark.parametrize(
    ("text", "model_type"),
    [
        (HUB_RECIPE.replace("0.30.0", "0.29.0"), "gpt_oss"),  # it has a network
        (HUB_RECIPE + ISOLATED, "gpt_oss"),  # this version downloads nothing
        (HUB_RECIPE.replace("0.30.0", "0.29.0") + ISOLATED, "llama"),
        (HUB_RECIPE.replace("0.30.0", "0.29.0").replace("  max_model_len", FOLDER) + ISOLATED, "gpt_oss"),
    ],
    ids=["network", "newer", "other model", "own file"],
)
def test_what_starts_without_a_download(tmp_path: Path, text: str, model_type: str) -> None:
    assert found(tmp_path, text, model_type) == []
