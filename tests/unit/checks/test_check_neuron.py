"""Recipes for Trainium: one case for each code, a small edit away from a recipe that is good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from neuron_recipes import (
    ALWAYS,
    BASELINE,
    CLUSTER,
    DFLASH,
    DRAFT_MODEL,
    EAGLE3,
    Edit,
    all_findings,
    args,
    config,
    env,
    findings,
    on,
    tensor_parallel,
)
from pairs import HUB_RECIPE, RECIPE, write_hub_pair, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.loading import load, on_platform
from toolkit.recipe.facts import Tokenizer


@pytest.mark.parametrize("text", [DRAFT_MODEL, EAGLE3, DFLASH, BASELINE, CLUSTER], ids=["model", "e", "d", "b", "k"])
def test_a_good_recipe_has_no_findings(tmp_path: Path, text: str) -> None:
    assert findings(tmp_path, text) == ()


@pytest.mark.parametrize("text", [EAGLE3, DFLASH])
def test_the_requests_that_a_recipe_leaves_open_are_no_more_than_the_method_was_published_with(
    tmp_path: Path, text: str
) -> None:
    requests = "".join(f"  max_num_seqs: {number}\n" for number in (1, 2) if f"max_num_seqs: {number}" in text)
    assert findings(tmp_path, text, (requests, "")) == ()


def test_what_there_is_to_say_of_every_recipe(tmp_path: Path) -> None:
    found = {finding.code: finding for finding in all_findings(tmp_path, EAGLE3)}
    assert set(found) == ALWAYS
    assert found["neuron.support"].message == "vllm-neuron 0.29.0.1.2.0 (Neuron SDK 2.33.0): beta"
    assert found["neuron.compiled-in"].hint == f"Run: toolkit compile {tmp_path / 'recipe.yaml'}"
    assert found["neuron.last-tokens"].message.startswith("nothing is drafted once a request has more than 1017 tokens")
    assert "needs Neuron driver 2.27 on trn2" in found["neuron.driver"].message
    assert "Kubernetes is the safer platform" in found["neuron.driver"].hint
    assert "capacity_reservation" in found["neuron.availability"].hint
    assert {finding.severity for finding in found.values()} == {"info", "warning"}


BUCKETS = "additional-config: {neuron_config: {%s}}"
CASES = [
    (DRAFT_MODEL, [("name: neuron", "name: nxd-inference\n  version: 0.9.2")], {},
     "neuron.version", "error", "engine.version", "nxd-inference 0.9.2 is unknown"),
    (DRAFT_MODEL, [("name: neuron", "name: nxd-inference\n  version: 0.9.2"),
                   ("platform:", "container: {base: mine:1}\nplatform:")], {},
     "neuron.version", "warning", "engine.version", "neither its methods nor its flags"),
    (DRAFT_MODEL, [on("ml.g6.xlarge"), ("name: neuron", "name: nxd-inference\n  version: 0.9.1")], {},
     "neuron.hardware", "error", "platform.instance_types.0", "ml.g6.xlarge has L4"),
    (EAGLE3, [on("ml.trn1.32xlarge"), ("eagle3", "none"), ("  model: org/drafter\n  num_speculative_tokens: 7\n", ""),
              ("name: neuron", "name: vllm-neuron\n  version: 0.29.0.1.2.0")], {},
     "neuron.hardware", "error", "platform.instance_types.0", "does not run on trn1"),
    (DRAFT_MODEL, [args("speculative-config: {method: ngram}")], {},
     "engine.own-flag", "error", "engine.args.speculative-config", "is set by the toolkit"),
    (DRAFT_MODEL, [args("override-neuron-config: {enable_eagle_speculation: true}")], {},
     "neuron.by-hand", "error", "engine.args.override-neuron-config", "`enable_eagle_speculation` configures drafting"),
    (EAGLE3, [args("additional-config: '{}'")], {},
     "neuron.config-form", "error", "engine.args.additional-config", "is not a mapping"),
    (EAGLE3, [args("additional-config: {override_neuron_config: {async_mode: true}}")], {},
     "neuron.config-place", "error", "engine.args.additional-config", "does not read `override_neuron_config`"),
    (EAGLE3, [args("override-neuron-config: {async_mode: true}")], {},
     "neuron.config-place", "error", "engine.args.override-neuron-config", "does not read `override-neuron-config`"),
    (BASELINE, [("name: neuron", "name: nxd-inference"),
                args("additional-config: {override-neuron-config: {async_mode: true}}")], {},
     "neuron.config-place", "error", "engine.args.additional-config", "would have no effect"),
    (DRAFT_MODEL, [args("additional-config: {override_neuron_config: {}}")], {},
     "neuron.config-place", "error", "engine.args.additional-config", "nxd-inference 0.9.1 does not read"),
    (EAGLE3, [args("device: neuron")], {},
     "engine.unknown-flag", "error", "engine.args.device", "older versions were told to use Neuron"),
    (DRAFT_MODEL, [("  max_model_len: 1024\n", "")], {},
     "neuron.max-model-len", "error", "engine.max_model_len", "compiled for one length"),
    (DRAFT_MODEL, [("max_num_seqs: 4", "max_num_seqs: 5")], {},
     "neuron.requests", "warning", "engine.max_num_seqs", "`draft-model` with 5 concurrent requests"),
    (EAGLE3, [("max_num_seqs: 2", "max_num_seqs: 3")], {},
     "neuron.requests", "warning", "engine.max_num_seqs", "the limit of vllm-neuron's tutorial is 2"),
    (DFLASH, [("max_num_seqs: 1", "max_num_seqs: 4")], {},
     "neuron.requests", "warning", "engine.max_num_seqs", "0.35x"),
    (DRAFT_MODEL, [("tokens: 7", "tokens: 7\n  draft_tensor_parallel_size: 1")], {},
     "recipe.no-effect", "error", "speculation.draft_tensor_parallel_size", "has no effect with engine"),
    (DRAFT_MODEL, [("tokens: 7", "tokens: 7\n  num_speculative_tokens_per_batch_size: [[1, 8, 7]]")], {},
     "recipe.no-effect", "error", "speculation.num_speculative_tokens_per_batch_size", "has no effect with engine"),
    (DFLASH, [args("num-gpu-blocks-override: 31")], {},
     "neuron.blocks", "error", "engine.args.num-gpu-blocks-override", "31 blocks are too few for 1 x 1024 tokens"),
    (DFLASH, [args("num-gpu-blocks-override: 33")], {},
     "neuron.blocks", "error", "engine.args.num-gpu-blocks-override", "33 blocks are too few for 1 x 1024 tokens"),
    (BASELINE, [("name: neuron", "name: nxd-inference"), args("num-gpu-blocks-override: 5")], {},
     "neuron.blocks", "error", "engine.args.num-gpu-blocks-override", "one block for each of 4 requests, not 5"),
    (BASELINE, [("name: neuron", "name: nxd-inference"),
                args("additional-config: {override_neuron_config: {is_block_kv_layout: true, pa_block_size: 32}}")], {},
     "neuron.blocks", "error", "engine.args.num-gpu-blocks-override", "4 blocks are too few for 4 x 1024 tokens"),
    (DRAFT_MODEL, [("tokens: 7", "tokens: 1024")], {},
     "neuron.draft-tokens", "error", "speculation.num_speculative_tokens", "K=1024 nothing is drafted"),
    (DRAFT_MODEL, [("tokens: 7", "tokens: 1")], {},
     "neuron.draft-tokens", "error", "speculation.num_speculative_tokens", "with K=1 it drafts none"),
    (DRAFT_MODEL, [("[ml.trn2.48xlarge]", "[ml.trn2.48xlarge, {type: ml.trn1.32xlarge, num_speculative_tokens: 1}]")],
     {}, "neuron.draft-tokens", "error", "platform.instance_types.1.num_speculative_tokens", "on ml.trn1.32xlarge: "),
    (DRAFT_MODEL, [args("data-parallel-size: 2")], {},
     "neuron.parallel", "error", "engine.args.data-parallel-size", "is not documented to support"),
    (DRAFT_MODEL, [args("pipeline-parallel-size: 2")], {},
     "neuron.parallel", "error", "engine.args.pipeline-parallel-size", "`pipeline-parallel-size`"),
    (DFLASH, [("max_num_seqs: 1", "max_num_seqs: 1\n  max_num_batched_tokens: 1023")], {},
     "neuron.batched-tokens", "error", "engine.max_num_batched_tokens", "1024 tokens, but is limited to 1023"),
    (EAGLE3, [("max_num_seqs: 2", "max_num_seqs: 2\n  max_num_batched_tokens: 512"),
              args("enable-chunked-prefill: false")], {},
     "neuron.batched-tokens", "error", "engine.max_num_batched_tokens", "without chunked prefill"),
    (DFLASH, [args("enable-prefix-caching: true")], {},
     "neuron.clash", "error", "engine.args.enable-prefix-caching", "cannot be combined with `dflash`"),
    (DRAFT_MODEL, [args("enable-lora: true")], {},
     "neuron.clash", "error", "engine.args.enable-lora", "does not support adapters together with speculation"),
    (EAGLE3, [args("enable-lora: true")], {},
     "neuron.clash", "warning", "engine.args.enable-lora", "unverified"),
    (DRAFT_MODEL, [args("override-neuron-config: {enable_fused_speculation: false}")], {},
     "neuron.batches", "error", "engine.max_num_seqs", "one request at a time"),
    (DRAFT_MODEL, [args("override-neuron-config: {token_generation_batches: [1, 4]}")], {},
     "neuron.batches", "error", "engine.args.override-neuron-config", "batch buckets"),
    (EAGLE3, [args(BUCKETS % "num_seqs_buckets: [1]")], {},
     "neuron.buckets", "error", "engine.args.additional-config", "is 1, but must be 2, as engine.max_num_seqs"),
    (EAGLE3, [args(BUCKETS % "num_batched_tokens_buckets: [256]"),
              ("max_num_seqs: 2", "max_num_seqs: 2\n  max_num_batched_tokens: 512")], {},
     "neuron.buckets", "error", "engine.args.additional-config", "but must be 512, as engine.max_num_batched_tokens"),
    (EAGLE3, [args(BUCKETS % "kv_segment_size_buckets: [256, 512]")], {},
     "neuron.buckets", "error", "engine.args.additional-config", "256 is not a valid size in"),
    (EAGLE3, [args("additional-config: {num_seqs_buckets: [2]}")], {},
     "neuron.buckets", "error", "engine.args.additional-config", "no effect outside of `neuron_config`"),
    (DRAFT_MODEL, [env('NEURON_LOGICAL_NC_CONFIG: "4"')], {},
     "neuron.logical-cores", "error", "engine.env.NEURON_LOGICAL_NC_CONFIG", "not '4'"),
    (DRAFT_MODEL, [env('NEURON_RT_VIRTUAL_CORE_SIZE: "2"'), on("ml.trn1.32xlarge")], {},
     "neuron.logical-cores", "warning", "engine.env.NEURON_RT_VIRTUAL_CORE_SIZE", "cannot be grouped"),
    (DRAFT_MODEL, [tensor_parallel(128)], {"target": config(num_attention_heads=128, head_dim=1)},
     "neuron.tensor-parallel", "error", "engine.args.tensor-parallel-size", "has 64 logical cores"),
    (EAGLE3, [args("data-parallel-size: 64")], {},
     "neuron.tensor-parallel", "error", "engine.args.tensor-parallel-size",
     "tensor-parallel-size 2 x data-parallel-size 64, but ml.trn2.48xlarge has 64 logical cores"),
    (DRAFT_MODEL, [tensor_parallel(0)], {},
     "neuron.tensor-parallel", "error", "engine.args.tensor-parallel-size", "tensor-parallel-size 0"),
    (DRAFT_MODEL, [tensor_parallel(6)], {"target": config(num_attention_heads=6, head_dim=1)},
     "neuron.tensor-parallel", "warning", "engine.args.tensor-parallel-size", "powers of two and all 64"),
    (CLUSTER, [tensor_parallel(8)], {"target": config(num_attention_heads=8)},
     "neuron.device-group", "warning", "engine.args.tensor-parallel-size", "8 logical cores need 2 chips"),
    (DRAFT_MODEL, [tensor_parallel(4)], {},
     "neuron.heads", "error", "engine.args.tensor-parallel-size", "2 attention heads of the target cannot be divided"),
    (EAGLE3, [], {"drafter": config(num_attention_heads=1)},
     "neuron.heads", "error", "engine.args.tensor-parallel-size", "1 attention heads of the drafter"),
    (DRAFT_MODEL, [], {"target": config(num_attention_heads=6, num_key_value_heads=3, head_dim=1)},
     "neuron.heads", "warning", "engine.args.tensor-parallel-size", "a copy is kept for each attention head"),
    (EAGLE3, [], {"target": config(num_attention_heads=6, num_key_value_heads=3, head_dim=1)},
     "neuron.heads", "error", "engine.args.tensor-parallel-size", "3 KV heads of the target cannot be divided"),
    (EAGLE3, [], {"target": config(architectures=["Qwen3ForCausalLM"])},
     "neuron.target", "warning", "target.model", "for LlamaForCausalLM and GptOssForCausalLM"),
    (DFLASH, [], {"drafter": config(block_size=10)},
     "neuron.block-size", "error", "speculation.num_speculative_tokens", "blocks of 10 need K=9"),
    (BASELINE, [("name: neuron", "name: nxd-inference"), ("name: sagemaker", "name: sagemaker, weights: hub")],
     {"target": config(tie_word_embeddings=True)},
     "neuron.tied-embeddings", "warning", "target.model", "Cannot copy out of meta tensor"),
    (CLUSTER, [], {"drafter": config(tie_word_embeddings=True)},
     "neuron.tied-embeddings", "info", "speculation.model", "org/drafter ties its embeddings"),
    (EAGLE3, [], {"target": {"generation_config": {"temperature": 0.6}}},
     "neuron.greedy", "warning", "target.model", "default temperature is 0.6"),
    (DRAFT_MODEL, [], {"target": {"generation_config": {"do_sample": True}}},
     "neuron.greedy", "warning", "target.model", "default temperature is 1.0"),
    (DRAFT_MODEL, [("name: neuron", "name: neuron\n  compile: at-start")], {"target": {"weight_bytes": 65 * 10**9}},
     "neuron.compile-at-start", "error", "engine.compile", "takes about 65 min"),
    (DRAFT_MODEL, [("name: neuron", "name: neuron\n  compile: at-start")], {"target": {"weight_bytes": 55 * 10**9}},
     "neuron.compile-at-start", "warning", "engine.compile", "takes about 55 min"),
    (DRAFT_MODEL, [on("ml.trn1.2xlarge")], {"target": {"weight_bytes": 16 * 10**9}},
     "neuron.host-memory", "error", "platform.instance_types.0", "45 GiB of the host's memory (an estimate"),
    (DRAFT_MODEL, [on("ml.trn1.2xlarge")], {"target": {"weight_bytes": 12 * 10**9}},
     "neuron.host-memory", "warning", "platform.instance_types.0", "34 GiB of the host's memory (an estimate"),
    (DRAFT_MODEL, [], dict.fromkeys(("target", "drafter"), config(architectures=["GptOssForCausalLM"])),
     "neuron.target", "error", "target.model", "has no model for `GptOssForCausalLM`"),
    (DRAFT_MODEL, [], {"target": config(architectures=["Qwen3ForCausalLM"]),
                       "drafter": config(architectures=["Qwen3MoeForCausalLM"])},
     "neuron.draft-model", "error", "speculation.model", "and this one is a `Qwen3MoeForCausalLM`"),
    (EAGLE3, [("name: neuron", "name: nxd-inference\n  version: 0.13.0"), on("ml.trn1.32xlarge")], {},
     "neuron.unverified", "warning", "speculation.method", "AWS says that nxd-inference 0.13.0"),
    (DRAFT_MODEL, [on("ml.inf2.48xlarge")], {},
     "neuron.compile-ahead", "error", "engine.compile", "SageMaker has no training jobs on ml.inf2.48xlarge"),
    (CLUSTER, [("[trn2.48xlarge]", "[trn2.48xlarge, trn1.32xlarge]")], {},
     "kubernetes.families", "error", "platform.instance_types.1", "are for trn2, not trn1"),
    (DRAFT_MODEL, [("[ml.trn2.48xlarge]", "[ml.trn2.48xlarge], inference_component: {accelerators: 32}")], {},
     "neuron.component", "warning", "platform.inference_component", "are chips or cores on Trainium"),
    (DRAFT_MODEL, [on("ml.trn2.3xlarge")], {},
     "sagemaker.instance-type", "error", "platform.instance_types.0", "cannot host endpoints"),
    (DRAFT_MODEL, [on("trn2.48xlarge")], {},
     "sagemaker.instance-type", "error", "platform.instance_types.0", "EC2's name of an instance type"),
    (DRAFT_MODEL, [on("trn2.3xlarge")], {},
     "sagemaker.instance-type", "error", "platform.instance_types.0", "ml.trn2.3xlarge cannot host endpoints"),
    (EAGLE3, [args("enable-chunkd-prefill: true")], {},
     "engine.unknown-flag", "warning", "engine.args.enable-chunkd-prefill", "vllm 0.29.0 has no flag"),
    (DRAFT_MODEL, [], {"drafter": config(vocab_size=64)},
     "pair.vocab-size", "error", "speculation.model", "has 64 tokens in its vocabulary"),
    (EAGLE3, [], {"drafter": config(target_hidden_size=16)},
     "pair.hidden-size", "error", "speculation.model", "trained for a target with hidden size 16"),
    (DRAFT_MODEL, [], {"target": {"tensors": None, "weight_bytes": 65 * 2**30}},
     "memory.does-not-fit", "error", "platform.instance_types.0", "of each of 2 logical cores, which has 24.0"),
    (DRAFT_MODEL, [("    tensor-parallel-size: 2", "    dtype: bfloat16")],
     {"target": {"tensors": None, "weight_bytes": 40 * 2**30}},
     "memory.tensor-parallel", "error", "platform.instance_types.0", "the models need 2 logical cores"),
    (DRAFT_MODEL, [("1024", "4000000")],
     {"target": config(max_position_embeddings=4_000_000, num_hidden_layers=64, head_dim=128)},
     "memory.context", "error", "engine.max_model_len", "4 x 4,000,000 tokens need"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "edits", "facts", "code", "severity", "path", "message"),
    CASES,
    ids=[f"{index}-{case[3]}" for index, case in enumerate(CASES)],
)
def test_a_recipe_that_is_not_good(
    tmp_path: Path,
    text: str,
    edits: list[Edit],
    facts: dict[str, Any],
    code: str,
    severity: str,
    path: str,
    message: str,
) -> None:
    (finding,) = findings(tmp_path, text, *edits, **facts)
    assert (finding.code, finding.severity, finding.path) == (code, severity, path)
    assert message in finding.message
    assert finding.hint


P_EAGLE = EAGLE3.replace("eagle3", "p-eagle")
PARD = DRAFT_MODEL.replace("draft-model", "pard")


@pytest.mark.parametrize(
    ("text", "edits", "hint"),
    [
        (P_EAGLE, [],
         "No engine on trn2 does. Supported: `eagle3` (vllm-neuron 0.29.0.1.2.0), `dflash` (vllm-neuron 0.29.0.1.2.0), "
         "`draft-model` (nxd-inference 0.9.1). An experiment outside of vLLM runs such heads on Trainium2: "
         "github.com/aws-neuron/nkipy."),
        (PARD, [], "No engine on trn2 does. Supported: `eagle3`"),
        (DRAFT_MODEL, [("name: neuron", "name: vllm-neuron\n  version: 0.29.0.1.2.0")],
         "version: 0.9.1}`, fork of vLLM V0, no longer supported by AWS; the only one with draft models. "
         "Or use an EAGLE-3 head"),
        (EAGLE3, [("name: neuron", "name: nxd-inference\n  version: 0.9.1")],
         "Use vllm-neuron 0.29.0.1.2.0 (Neuron SDK 2.33.0): `engine: {name: vllm-neuron, version: 0.29.0.1.2.0}`."),
    ],
)  # fmt: skip
def test_a_method_that_the_generation_has_not(tmp_path: Path, text: str, edits: list[Edit], hint: str) -> None:
    found = [finding for finding in findings(tmp_path, text, *edits) if finding.severity == "error"]
    assert [(finding.code, finding.path) for finding in found] == [("neuron.method", "speculation.method")]
    assert hint in found[0].hint


def test_nothing_reads_heads_on_the_first_trainium(tmp_path: Path) -> None:
    found = findings(tmp_path, EAGLE3, on("ml.trn1.32xlarge"))
    assert [finding.code for finding in found] == ["neuron.hardware"]
    assert found[0].hint == "Use trn2 or trn3; or use another method. Supported: `draft-model` (nxd-inference 0.9.1)."


def test_method_eagle_by_hand_means_two_things(tmp_path: Path) -> None:
    found = findings(tmp_path, DRAFT_MODEL, args("speculative-config: {method: eagle, model: a}"))
    assert [finding.code for finding in found] == ["engine.own-flag", "neuron.by-hand"]
    assert "turns nothing on in the fork" in found[1].message


def test_tokenizers_of_a_draft_model_are_compared(tmp_path: Path) -> None:
    ours, theirs = (Tokenizer(32, digest, {}, None) for digest in ("one", "other"))
    found = findings(tmp_path, DRAFT_MODEL, target={"tokenizer": ours}, drafter={"tokenizer": theirs})
    assert "pair.tokenizer" in {finding.code for finding in found}


def test_a_kv_cache_in_blocks_need_not_hold_all_requests(tmp_path: Path) -> None:
    edits = ("1024", "400000"), ("max_num_seqs: 2", "max_num_seqs: 9")
    sizes = config(max_position_embeddings=4_000_000, num_hidden_layers=64, head_dim=128)
    assert [finding.code for finding in findings(tmp_path, EAGLE3, *edits, target=sizes)] == ["neuron.requests"]
    fork = [finding.code for finding in findings(tmp_path, DRAFT_MODEL, ("1024", "400000"), target=sizes)]
    assert fork == ["memory.context"]


def test_settings_of_one_type_are_checked_there(tmp_path: Path) -> None:
    types = "[ml.trn2.48xlarge, {type: ml.trn1.32xlarge, num_speculative_tokens: 9, args: {enable-lora: true}}]"
    found = findings(tmp_path, DRAFT_MODEL, ("[ml.trn2.48xlarge]", types))
    assert [(finding.code, finding.path) for finding in found] == [
        ("neuron.clash", "platform.instance_types.1.args.enable-lora")
    ]


@pytest.mark.parametrize("ahead", [True, False])
def test_a_small_host_does_for_code_that_was_compiled_on_the_first_type(tmp_path: Path, ahead: bool) -> None:
    edits = [("[ml.trn2.48xlarge]", "[ml.trn1.32xlarge, ml.trn1.2xlarge]")]
    if not ahead:
        edits.append(("name: neuron", "name: neuron\n  compile: at-start"))
    found = findings(tmp_path, DRAFT_MODEL, *edits, target={"weight_bytes": 16 * 10**9})
    memory = [finding.path for finding in found if finding.code == "neuron.host-memory"]
    assert memory == ([] if ahead else ["platform.instance_types.1"])


def test_inferentia_may_compile_when_it_starts(tmp_path: Path) -> None:
    at_start = ("name: neuron", "name: neuron\n  compile: at-start")
    found = findings(tmp_path, DRAFT_MODEL, on("ml.inf2.48xlarge"), at_start)
    assert [(finding.code, finding.severity) for finding in found] == [("neuron.compile-at-start", "warning")]


def test_a_component_may_have_code_for_each_family(tmp_path: Path) -> None:
    types = "[ml.trn2.48xlarge, ml.trn1.32xlarge], inference_component: {}"
    both = findings(tmp_path, DRAFT_MODEL, ("[ml.trn2.48xlarge]", types))
    assert not [finding for finding in both if finding.severity == "error"]


def test_without_fused_speculation_one_request_at_a_time_is_drafted_for(tmp_path: Path) -> None:
    apart = args("override-neuron-config: {enable_fused_speculation: false}")
    found = findings(tmp_path, DRAFT_MODEL, apart, ("max_num_seqs: 4", "max_num_seqs: 1"))
    assert "neuron.batches" not in [finding.code for finding in found]


def test_types_of_one_family_are_alike(tmp_path: Path) -> None:
    assert findings(tmp_path, CLUSTER, ("[trn2.48xlarge]", "[trn2.48xlarge, trn2.3xlarge]")) == ()


def test_several_engines_in_one_fill_chips_as_one_does(tmp_path: Path) -> None:
    text = CLUSTER.replace("draft-model", "eagle3").replace("max_num_seqs: 4", "max_num_seqs: 2")
    (finding,) = findings(tmp_path, text, args("data-parallel-size: 4"))
    assert finding.message.startswith("8 logical cores need 2 chips")


def test_wheels_are_for_the_images_own_python(tmp_path: Path) -> None:
    written = ("platform:", 'container: {python: "3.12"}\nplatform:')
    (finding,) = findings(tmp_path, DRAFT_MODEL, written)
    assert (finding.code, finding.severity, finding.path) == ("container.python", "error", "container.python")
    assert finding.hint == "Remove `python`, or set it to 3.11."
    own = ("platform:", 'container: {base: mine:1, python: "3.12"}\nplatform:')
    assert findings(tmp_path, DRAFT_MODEL, own) == ()


@pytest.mark.parametrize(
    ("name", "platform", "errors"),
    [
        ("qwen3-32b/draft-model-trn2", "kubernetes", ["kubernetes.artifacts"]),
        ("qwen3-32b/draft-model-trn2-eks", "sagemaker", ["neuron.compile-at-start"]),
        ("llama-3.1-8b-instruct/dflash-trn2", "sagemaker", ["sagemaker.instance-type"]),
    ],
)
def test_a_shipped_recipe_on_the_other_platform(name: str, platform: str, errors: list[str]) -> None:
    assert [finding.code for finding in check(on_platform(load(name), platform)).errors] == errors


def test_vllm_on_trainium_is_told_of_its_engines(tmp_path: Path) -> None:
    found = check(write_hub_pair(tmp_path, HUB_RECIPE.replace("ml.g6.xlarge", "ml.trn2.48xlarge"))).findings
    (finding,) = (finding for finding in found if finding.code == "sagemaker.accelerator")
    assert finding.hint.startswith("Write `engine: {name: neuron}`")


def test_trainium_is_not_on_this_machine(tmp_path: Path) -> None:
    write_pair(tmp_path, "draft-model")
    text = RECIPE.replace("p-eagle", "draft-model").replace("name: vllm\n  version: 0.32.0", "name: neuron")
    assert "container.image" in {finding.code for finding in check(write_recipe(tmp_path, text)).errors}


@pytest.mark.parametrize(("size", "is_found"), [(4, False), (6, True), (12, False)])
def test_all_cores_of_an_instance_are_as_good_as_a_power_of_two(tmp_path: Path, size: int, is_found: bool) -> None:
    heads = config(num_attention_heads=12, num_key_value_heads=12, head_dim=1)
    found = findings(tmp_path, DRAFT_MODEL, tensor_parallel(size), on("ml.inf2.24xlarge"), target=heads)
    assert ("neuron.tensor-parallel" in [finding.code for finding in found]) is is_found


def test_kv_heads_may_be_copied_to_several_cores(tmp_path: Path) -> None:
    heads = config(num_attention_heads=8, num_key_value_heads=4, head_dim=1)
    assert findings(tmp_path, DRAFT_MODEL, tensor_parallel(8), target=heads) == ()
