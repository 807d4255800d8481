"""What public issues of vLLM report, found in the files of a pair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.api.checking import check
from toolkit.findings import Finding

DRAFTER = "method: p-eagle"
DRAFT_MODEL = (DRAFTER, "method: draft-model")
DFLASH = (DRAFTER, "method: dflash")
KINDS = ["sliding_attention"] * 3 + ["full_attention"]
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def found(root: Path, code: str, *edits: tuple[str, str], **configs: Mapping[str, Any]) -> list[Finding]:
    text = HUB_RECIPE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    facts = {name: {"config": config} for name, config in configs.items()}
    return [finding for finding in check(write_hub_pair(root, text, **facts)).findings if finding.code == code]


def args(text: str) -> tuple[str, str]:
    return ("  max_model_len", f"  args: {{{text}}}\n  max_model_len")


@pytest.mark.parametrize(("version", "severity"), [("0.30.0", "error"), ("0.25.0", "error"), ("0.24.0", "warning")])
def test_a_dflash_drafter_with_too_few_positions(tmp_path: Path, version: str, severity: str) -> None:
    """Issue 57941: only the V2 runner, with dense targets the default since 0.25.0, reads beyond its positions."""
    edits = (DFLASH, ("0.30.0", version))
    (finding,) = found(tmp_path, "pair.positions", *edits, drafter={"max_position_embeddings": 512})
    assert finding.severity == severity
    assert not found(tmp_path, "pair.positions", *edits, drafter={"max_position_embeddings": 1024}), "as many as asked"


def test_a_draft_model_with_two_kinds_of_attention(tmp_path: Path) -> None:
    """Issue 33133."""
    mixed = {"layer_types": KINDS, "sliding_window": 128}
    (finding,) = found(tmp_path, "engine.kv-groups", DRAFT_MODEL, drafter=mixed)
    assert finding.message.startswith("the draft model has full attention and sliding attention layers")
    assert not found(tmp_path, "engine.kv-groups", DRAFT_MODEL)


@pytest.mark.parametrize(("instance_type", "count"), [("ml.g6.xlarge", 1), ("ml.p6-b200.48xlarge", 0)])
def test_flashinfer_and_attention_sinks(tmp_path: Path, instance_type: str, count: int) -> None:
    sinks = {"model_type": "gpt_oss"}
    by_flag = args("attention-backend: FLASHINFER")
    by_variable = ("  max_model_len", "  env: {VLLM_ATTENTION_BACKEND: FLASHINFER}\n  max_model_len")
    paths = ("engine.args.attention-backend", "engine.env.VLLM_ATTENTION_BACKEND")
    for chosen, path in zip((by_flag, by_variable), paths, strict=True):
        edits = (chosen, ("ml.g6.xlarge", instance_type))
        findings = found(tmp_path, "engine.attention-backend", *edits, target=sinks)
        assert [finding.path for finding in findings] == [path] * count


@pytest.mark.parametrize(("size", "count"), [(512, 1), (1023, 1), (1024, 0)])
def test_graphs_for_fewer_tokens_than_full_batches(tmp_path: Path, size: int, count: int) -> None:
    """128 requests with seven draft tokens each."""
    assert len(found(tmp_path, "engine.capture-size", args(f"max-cudagraph-capture-size: {size}"))) == count


@pytest.mark.parametrize(("shortest", "count"), [("", 1), ("prompt_lookup_min: 7", 1), ("prompt_lookup_min: 8", 0)])
def test_tool_calls_with_drafts_from_short_matches(tmp_path: Path, shortest: str, count: int) -> None:
    """Issue 40875. vLLM's own shortest match is of five tokens."""
    ngram = ("  method: p-eagle\n  model: org/drafter\n", f"  method: ngram\n  {shortest}\n")
    tools = args("enable-auto-tool-choice: true, tool-call-parser: hermes")
    assert len(found(tmp_path, "quality.short-matches", ngram, tools)) == count


def test_prefix_caching_with_uneven_kinds_of_layers(tmp_path: Path) -> None:
    """Issue 40624."""
    uneven = {"layer_types": KINDS, "sliding_window": 128}
    assert found(tmp_path, "quality.prefix-cache", target=uneven)
    assert not found(tmp_path, "quality.prefix-cache", args("no-enable-prefix-caching: true"), target=uneven)
    assert not found(tmp_path, "quality.prefix-cache")


@pytest.mark.parametrize(
    ("method", "config", "made_for"),
    [
        ("draft-model", {"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"),
        ("eagle3", {"architectures": ["EagleLlamaForCausalLM"]}, "eagle"),
        ("p-eagle", {"speculators_model_type": "dflash"}, "dflash"),
        ("dflash", {"model_type": "eagle", "architectures": None}, "eagle"),
    ],
)
def test_a_drafter_of_another_kind(tmp_path: Path, method: str, config: Mapping[str, Any], made_for: str) -> None:
    (finding,) = found(tmp_path, "pair.method", (DRAFTER, f"method: {method}"), drafter=config)
    assert f"made for method `{made_for}`, not `{method}`" in finding.message


def test_an_eagle3_head_cannot_draft_in_parallel(tmp_path: Path) -> None:
    head = ("org/drafter", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert found(tmp_path, "pair.method", head)
    assert not found(tmp_path, "pair.method", head, (DRAFTER, "method: eagle3"))


def test_an_eagle3_head_on_the_v2_runner(tmp_path: Path) -> None:
    """Issue 40551."""
    eagle3 = (DRAFTER, "method: eagle3")
    asked = ("  max_model_len", '  env: {VLLM_USE_V2_MODEL_RUNNER: "1"}\n  max_model_len')
    assert found(tmp_path, "quality.runner", eagle3)[0].severity == "info"
    assert found(tmp_path, "quality.runner", eagle3, asked)[0].severity == "warning"


@pytest.mark.parametrize(
    ("version", "experts", "count"),
    [("0.24.0", {}, 0), ("0.25.0", {}, 1), ("0.28.0", EXPERTS, 0), ("0.29.0", EXPERTS, 1)],
)
def test_the_runner_that_a_version_takes(tmp_path: Path, version: str, experts: Mapping[str, Any], count: int) -> None:
    """V2 is the default of dense models since 0.25.0 (pull request 44443), of all since 0.29.0."""
    edits = ((DRAFTER, "method: eagle3"), ("0.30.0", version))
    assert len(found(tmp_path, "quality.runner", *edits, target=experts)) == count


@pytest.mark.parametrize(("version", "severity"), [("0.30.0", "error"), ("0.32.0", "warning")])
def test_a_draft_model_of_two_kinds_on_the_v2_runner(tmp_path: Path, version: str, severity: str) -> None:
    """Of plain draft models 0.32.0 is the first with a speculator on that runner, which has no such assertion."""
    mixed = {"layer_types": KINDS, "sliding_window": 128}
    (finding,) = found(tmp_path, "engine.kv-groups", DRAFT_MODEL, ("0.30.0", version), drafter=mixed)
    assert finding.severity == severity


def test_a_plain_draft_model_beside_a_target_with_several_kv_groups(tmp_path: Path) -> None:
    """Three of the target's layers are sliding, one is full, as are the four of the draft model."""
    mixed = {"layer_types": KINDS, "sliding_window": 128}
    (finding,) = found(tmp_path, "engine.kv-groups", DRAFT_MODEL, target=mixed)
    assert "in KV groups of 3" in finding.message
    assert not found(tmp_path, "engine.kv-groups", DRAFT_MODEL, ("0.30.0", "0.32.0"), target=mixed)


def test_layers_of_one_kind_are_one_group_whatever_their_heads(tmp_path: Path) -> None:
    assert not found(tmp_path, "engine.kv-groups", drafter={"num_key_value_heads": 1, "num_hidden_layers": 4})


@pytest.mark.parametrize("method", ["eagle", "eagle3", "dflash"])
def test_a_whole_model_is_no_head(tmp_path: Path, method: str) -> None:
    whole = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28, "target_hidden_size": None}
    base = (DRAFTER, "method: draft-model")  # the files of a plain model
    text = HUB_RECIPE.replace(*base)
    recipe = write_hub_pair(tmp_path, text, drafter={"config": {k: v for k, v in whole.items() if v}})
    recipe.write_text(text.replace("method: draft-model", f"method: {method}"))
    (finding,) = [finding for finding in check(recipe).findings if finding.code == "pair.method"]
    assert finding.message == f"this drafter is a whole language model (28 layers), not a head for `{method}`"


@pytest.mark.parametrize(("version", "count"), [("0.30.0", 1), ("0.29.0", 0)])
def test_a_sibling_of_a_head_with_a_map_of_the_whole_vocabulary(tmp_path: Path, version: str, count: int) -> None:
    """Nobody has read its tensors; the publisher's other head has the `d2t` that 0.30.0 refuses."""
    text = HUB_RECIPE.replace("org/drafter", "amazon/gpt-oss-120b-p-eagle").replace("0.30.0", version)
    unread = {"model": "amazon/gpt-oss-120b-p-eagle", "tensors": None, "partial": True}
    findings = check(write_hub_pair(tmp_path, text, drafter=unread)).findings
    assert [finding.severity for finding in findings if finding.code == "pair.d2t"] == ["warning"] * count


@pytest.mark.parametrize(
    ("code", "edits"),
    [
        ("quality.eager", [args("enforce-eager: false")]),
        ("quality.long-draft", [(DRAFTER, "method: eagle3"), ("tokens: 7", "tokens: 5")]),
        ("quality.long-draft", [("tokens: 7", "tokens: 12")]),
        ("engine.pipeline", [args("pipeline-parallel-size: 1")]),
        ("engine.draft-kv-cache", [("tokens: 7", "tokens: 7\n  kv_cache_dtype: auto")]),
    ],
)
def test_ordinary_settings_are_no_finding(tmp_path: Path, code: str, edits: list[tuple[str, str]]) -> None:
    assert not found(tmp_path, code, *edits)


def test_eager_mode_is_slow_with_a_drafter(tmp_path: Path) -> None:
    assert found(tmp_path, "quality.eager", args("enforce-eager: true"))
