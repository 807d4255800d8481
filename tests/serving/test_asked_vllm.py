"""The installed vLLM is asked: on this machine's CPU, and on GPUs that are not here."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pairs import write_recipe

from toolkit.api.checking import check
from toolkit.api.deployment import plan
from toolkit.errors import RecipeError
from toolkit.recipe.known import catalogue_dir

pytestmark = pytest.mark.serving

MODELS = catalogue_dir() / "tiny" / "models"
RECIPE = """\
name: asked
target: {model: TARGET}
speculation: {method: p-eagle, model: DRAFTER, num_speculative_tokens: 7}
engine:
  version: 0.32.0
  max_model_len: 1024
  max_num_seqs: 16
  max_num_batched_tokens: 2048
  args: ARGS
platform: PLATFORM
container: CONTAINER
"""


def write(root: Path, args: Mapping[str, Any], *types: str) -> Path:
    listed = f"{{name: sagemaker, instance_types: [{', '.join(types)}]}}" if types else "{name: local}"
    text = RECIPE
    for word, value in {
        "TARGET": str(MODELS / "target"),
        "DRAFTER": str(MODELS / "p-eagle"),
        "ARGS": json.dumps(dict(args)),
        "PLATFORM": listed,
        "CONTAINER": "{base: 'vllm/vllm-openai:v0.32.0'}" if types else "aws-dlc",
    }.items():
        text = text.replace(word, value)
    return write_recipe(root, text)


def refused(root: Path, args: Mapping[str, Any], *types: str) -> list[tuple[str, str]]:
    report = check(write(root, args, *types), ask=True)
    assert report.engine
    assert not report.engine.why_not
    return [(one.path, one.message) for one in report.findings if one.code == "engine.refused"]


ON_CPU: list[tuple[dict[str, Any], str, str]] = [
    ({"long-prefill-token-threshold": 4096}, "long-prefill-token-threshold", "greater than the max_model_len (1024)"),
    ({"sse-keep-alive-interval": -1}, "sse-keep-alive-interval", "must be a non-negative integer"),
]


@pytest.mark.parametrize(("args", "flag", "words"), ON_CPU, ids=lambda value: value if isinstance(value, str) else "")
def test_what_vllm_refuses_is_found_at_its_flag(tmp_path: Path, args: dict[str, Any], flag: str, words: str) -> None:
    ((path, message),) = refused(tmp_path, {"dtype": "float32", "enforce-eager": True, **args})
    assert path == f"engine.args.{flag}"
    assert message.startswith("vLLM 0.32.0 refuses this: ")
    assert words in message


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"attention-backend": "NONSENSE"}, "engine.flag-value"),
        ({"pipeline-parallel-size": 0}, "engine.flag-value"),
        ({"max-lora-rank": 7, "enable-lora": True}, "engine.flag-value"),
        ({"structured-outputs-config": {"backend": "x"}}, "engine.flag-value"),
        ({"kv-transfer-config": {"kv_role": "x"}}, "engine.flag-value"),
        ({"reasoning-parser": "nonsense"}, "engine.flag-value"),
        ({"enable-expert-parallel": True}, "engine.experts"),
        ({"enable-elastic-ep": True}, "engine.combination"),
        ({"enable-batch-sharded-sampling": True}, "engine.combination"),
        ({"hf-overrides": 5}, "engine.flag-value"),
        ({"lora-modules": 4096}, "engine.flag-value"),
        ({"quantization": "awq"}, "engine.quantization"),
    ],
    ids=lambda value: next(iter(value)),
)
def test_what_is_known_without_vllm_it_refuses_too_and_it_is_said_once(
    tmp_path: Path, args: dict[str, Any], code: str
) -> None:
    report = check(write(tmp_path, {"dtype": "float32", "enforce-eager": True, **args}), ask=True)
    assert report.engine
    assert [one.path for one in report.engine.findings] == [f"engine.args.{next(iter(args))}"]
    assert [one.code for one in report.errors] == [code]


def test_what_it_takes_has_no_finding(tmp_path: Path) -> None:
    assert refused(tmp_path, {"dtype": "float32", "enforce-eager": True, "kv-cache-memory-bytes": 2**28}) == []


def test_the_recipe_s_gpus_are_pretended(tmp_path: Path) -> None:
    old, several, one = "ml.g4dn.xlarge", "ml.g6e.12xlarge", "ml.g6e.2xlarge"
    assert refused(tmp_path, {"quantization": "experts_int8"}, several) == []
    ((path, message),) = refused(tmp_path, {"quantization": "experts_int8"}, old, several)
    assert path == "engine.args.quantization"
    assert (
        f"refuses this on {old}: The quantization method experts_int8 is not supported for the current GPU" in message
    )
    assert refused(tmp_path, {"tensor-parallel-size": 2}, several) == []
    ((path, message),) = refused(tmp_path, {"tensor-parallel-size": 2}, one)
    assert path == "engine.args.tensor-parallel-size"
    assert "World size (2) is larger than the number of available GPUs (1)" in message


def test_what_only_builds_for_gpus_have_is_not_missed_there(tmp_path: Path) -> None:
    assert refused(tmp_path, {"enable-sleep-mode": True}, "ml.g6e.2xlarge") == []
    path = write(tmp_path, {"seed": 3}, "ml.g6e.2xlarge")
    path.write_text(path.read_text().replace("p-eagle", "eagle3"))
    path.write_text(path.read_text().replace("  args:", "  env: {VLLM_USE_V2_MODEL_RUNNER: '1'}\n  args:"))
    report = check(path, ask=True)
    assert report.engine
    assert (report.engine.why_not, [one for one in report.findings if one.path.startswith("engine.env")]) == ("", [])
    assert [one.message for one in report.errors] == []


def test_the_answer_counts_from_then_on_and_costs_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, {"long-prefill-token-threshold": 4096, "seed": 4})
    assert check(path)
    assert not check(path, ask=True)
    started = time.process_time()
    assert not check(path)
    assert time.process_time() - started < 5  # importing vLLM takes longer
    with pytest.raises(RecipeError, match="long-prefill-token-threshold"):
        plan(path, platform="local")
