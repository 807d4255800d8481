"""Pairs of the hub for SageMaker: everything that checks know from the lock alone, one case for each code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from followed_hints import follow
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.api.checking import check
from toolkit.checks import run
from toolkit.findings import Finding
from toolkit.recipe.facts import Tokenizer

Facts = Mapping[str, Mapping[str, Any]]


def findings(root: Path, *edits: tuple[str, str], **facts: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Findings on the good pair with its recipe and its lock edited."""
    return check(write_hub_pair(root, edited(*edits), **facts)).findings


def edited(*edits: tuple[str, str]) -> str:
    text = HUB_RECIPE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def config(**changes: Any) -> dict[str, Any]:
    return {"config": changes}


def tokenizer(**changes: Any) -> dict[str, Any]:
    facts = {"size": 32, "vocabulary_sha256": "same", "special_tokens": {"<|end|>": 2}, "chat_template_sha256": "same"}
    return {"tokenizer": Tokenizer(**{**facts, **changes})}


def version(number: str) -> tuple[str, str]:
    return ("0.30.0", number)


def args(text: str) -> tuple[str, str]:
    return ("  max_model_len", f"  args: {{{text}}}\n  max_model_len")


DRAFT_MODEL = ("p-eagle", "draft-model")
EAGLE3 = ("p-eagle", "eagle3")
_DRAFTER = "method: p-eagle\n  model: org/drafter"
NGRAM, SUFFIX, MTP, DSPARK = ((_DRAFTER, f"method: {name}") for name in ("ngram", "suffix", "mtp", "dspark"))
OTHER_VOCABULARY = ("tokens: 7", "tokens: 7\n  use_heterogeneous_vocab: true")
LOCAL = ("name: sagemaker, instance_types: [ml.g6.xlarge], health_check_timeout: 600", "name: local")
V2_RUNNER = ("  max_model_len", '  env: {VLLM_USE_V2_MODEL_RUNNER: "1"}\n  max_model_len')
ADAPTIVE = ("method: dspark", "method: dspark\n  enable_adaptive_verification: true")
DEEPSEEK_V4_ALONE = config(model_type="deepseek_v4", architectures=["DeepseekV4ForCausalLM"])
DEEPSEEK_V4 = config(**DEEPSEEK_V4_ALONE["config"], dspark_target_layer_ids=[1], dspark_markov_rank=8)
FOUR_GPUS = ("ml.g6.xlarge", "ml.g6.12xlarge")
OWN_IMAGE = ("platform: {", "container: {base: 'registry.com/ours:1'}\nplatform: {")
GPT_OSS = config(model_type="gpt_oss", quantization_config={"quant_method": "mxfp4"})
HYBRID = config(num_hidden_layers=24, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12)


def test_a_pair_of_the_hub_that_fits_has_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path) == ()


@pytest.mark.parametrize(
    ("edits", "facts", "code", "severity", "path", "message"),
    [
        ([DRAFT_MODEL], {"target": tokenizer(), "drafter": tokenizer(vocabulary_sha256="other")},
         "pair.tokenizer", "error", "speculation.model", "different token ids"),
        ([DRAFT_MODEL], {"target": tokenizer(), "drafter": tokenizer(special_tokens={"<|stop|>": 2})},
         "pair.special-tokens", "info", "speculation.model", "has the special tokens `<|end|>`, `<|stop|>`"),
        ([DRAFT_MODEL], {"target": tokenizer(), "drafter": tokenizer(chat_template_sha256="other")},
         "pair.chat-template", "info", "speculation.model", "different chat templates"),
        ([], {"drafter": config(eagle_aux_hidden_state_layer_ids=[1, 2, 9])},
         "pair.aux-layers", "error", "speculation.model", "layer 9 of the target, which has 4"),
        ([], {"drafter": config(architectures=["PEagleDraftModel"])},
         "pair.architecture", "error", "speculation.model", "does not know the drafter `Eagle3PEagleDraftModel`"),
        ([version("0.21.0")], {"drafter": config(speculators_config={}, speculators_model_type="peagle",
                                                mask_token_id=3, model_type="llama")},
         "pair.speculators-format", "error", "engine.version", "0.22.0 or newer"),
        ([version("0.23.0")], {"drafter": config(speculators_config={}, speculators_model_type="peagle",
                                                mask_token_id=3, model_type="qwen3")},
         "pair.speculators-format", "error", "engine.version", "0.24.0 or newer"),
        ([], {"drafter": config(speculators_config={}, speculators_model_type="peagle", mask_token_id=3,
                                model_type="llama", fc_norm=True)},
         "pair.speculators-format", "error", "speculation.model", "ignores `fc_norm`"),
        ([version("0.21.0")], {"drafter": config(fc_norm=True, norm_output=True)},
         "pair.norms", "error", "engine.version", "(`fc_norm`, `norm_output`)"),
        ([version("0.26.0")], {"drafter": config(max_position_embeddings=512)},
         "pair.positions", "error", "engine.max_model_len", "supports 512 positions"),
        ([("org/target", "org/other"), ("org/drafter", "amazon/GPT-OSS-20B-P-EAGLE")],
         {"target": {"model": "org/other"}, "drafter": {"model": "amazon/GPT-OSS-20B-P-EAGLE"}},
         "pair.other-target", "warning", "speculation.model", "trained for openai/gpt-oss-20b, not for org/other"),
        ([], {"drafter": config(speculators_config={"verifier": {"name_or_path": "org/base"}}, mask_token_id=3)},
         "pair.other-target", "warning", "speculation.model", "trained for org/base"),
        ([], {"drafter": config(target_model="org/base")},
         "pair.other-target", "warning", "speculation.model", "trained for org/base"),
        ([], {"target": {"revision": "b" * 40}, "drafter": config(target_model="org/target", target_revision="a" * 40)},
         "pair.target-revision", "warning", "speculation.model", "trained for revision aaaaaa"),
        ([("1024", "131072"), ("org/drafter", "amazon/GPT-OSS-20B-P-EAGLE"), ("org/target", "openai/gpt-oss-20b")],
         {"target": {"model": "openai/gpt-oss-20b", **config(max_position_embeddings=131072)},
          "drafter": {"model": "amazon/GPT-OSS-20B-P-EAGLE"}},
         "pair.context", "warning", "engine.max_model_len", "meant for less than 10000"),
        ([("org/drafter", "amazon/gpt-oss-20b-p-eagle-long-context"), ("org/target", "openai/gpt-oss-20b")],
         {"target": {"model": "openai/gpt-oss-20b"}, "drafter": {"model": "amazon/gpt-oss-20b-p-eagle-long-context"}},
         "pair.context", "warning", "engine.max_model_len", "of over 10000 tokens"),
        ([("tokens: 7", "tokens: 11"), ("org/drafter", "amazon/GPT-OSS-20B-P-EAGLE"),
          ("org/target", "openai/gpt-oss-20b")],
         {"target": {"model": "openai/gpt-oss-20b"}, "drafter": {"model": "amazon/GPT-OSS-20B-P-EAGLE"}},
         "pair.trained-depth", "warning", "speculation.num_speculative_tokens", "K=11 is more than"),
        ([args("dtype: half")], {"drafter": config(torch_dtype="bfloat16")},
         "pair.dtype", "warning", "engine.args.dtype", "would run in float16"),
        ([V2_RUNNER], {},
         "engine.runner", "error", "engine.env.VLLM_USE_V2_MODEL_RUNNER", "on the V1 model runner only"),
        ([args("enable-chunkd-prefill: true")], {},
         "engine.unknown-flag", "error", "engine.args.enable-chunkd-prefill", "has no flag `--enable-chunkd-prefill`"),
        ([version("0.29.0"), (_DRAFTER, "method: glm5_next_mtp")], {"target": config(model_type="glm5_next")},
         "engine.version", "error", "engine.version", "method `glm5_next_mtp` needs vllm 0.30.0 or newer"),
        ([NGRAM, ("ngram", "ngram\n  max_model_len: 512")], {},
         "engine.speculation-key", "error", "speculation.max_model_len", "`ngram` does not have the key"),
        ([("tokens: 7", "tokens: 7\n  prompt_lookup_max: 4")], {},
         "engine.speculation-key", "error", "speculation.prompt_lookup_max", "have the key `prompt_lookup_max`"),
        ([NGRAM, ("ngram", "ngram\n  draft_tensor_parallel_size: 1")], {},
         "engine.speculation-key", "error", "speculation.draft_tensor_parallel_size", "`ngram` does not have the key"),
        ([SUFFIX, ("suffix", "suffix\n  num_speculative_tokens_per_batch_size: [[1, 8, 7]]"), OWN_IMAGE], {},
         "engine.speculation-key", "error", "speculation.num_speculative_tokens_per_batch_size", "`suffix` does not"),
        ([version("0.20.0"), ("tokens: 7", "tokens: 7\n  attention_backend: FLASH_ATTN")], {},
         "engine.speculation-key", "error", "speculation.attention_backend", "`attention_backend: FLASH_ATTN` needs"),
        ([version("0.24.0"), ("tokens: 7", "tokens: 7\n  rejection_sample_method: block")], {},
         "engine.speculation-key", "error", "speculation.rejection_sample_method", "sample_method: block` needs"),
        ([("tokens: 7", "tokens: 7\n  max_model_len: 2048")], {},
         "engine.speculation-value", "error", "speculation.max_model_len", "more than the 1024 of a request"),
        ([version("0.24.0"), DRAFT_MODEL, OTHER_VOCABULARY], {},
         "engine.speculation-key", "error", "speculation.use_heterogeneous_vocab", "needs vllm 0.25.0 or newer"),
        ([("tokens: 7", "tokens: 7\n  use_heterogeneous_vocab: true")], {},
         "engine.speculation-key", "error", "speculation.use_heterogeneous_vocab", "`p-eagle` does not have the key"),
        ([DRAFT_MODEL, OTHER_VOCABULARY, ("vocab: true", "vocab: true\n  draft_sample_method: probabilistic")], {},
         "engine.speculation-value", "error", "speculation.draft_sample_method", "can only take its first choice"),
        ([DRAFT_MODEL, OTHER_VOCABULARY, V2_RUNNER], {},
         "engine.runner", "error", "engine.env.VLLM_USE_V2_MODEL_RUNNER", "V1 model runner only with these keys"),
        ([version("0.27.1"), DSPARK, ADAPTIVE], {"target": DEEPSEEK_V4},
         "engine.speculation-key", "error", "speculation.enable_adaptive_verification", "needs vllm 0.28.0 or newer"),
        ([version("0.17.0"), (_DRAFTER, "method: ngram_gpu")], {},
         "engine.version", "error", "engine.version", "method `ngram_gpu` needs vllm 0.18.0 or newer"),
        ([NGRAM, args("async-scheduling: true")], {},
         "engine.clash", "error", "engine.args.async-scheduling", "cannot be combined with method `ngram`"),
        ([SUFFIX], {}, "engine.package", "warning", "speculation.method", "needs the Python package arctic-inference"),
        ([DSPARK], {"target": DEEPSEEK_V4_ALONE}, "pair.own-layers", "error", "speculation.method",
         "has no `dspark_target_layer_ids`"),
        ([MTP], {}, "pair.own-layers", "error", "speculation.method", "`mtp` layers in this target (LlamaFor"),
        ([DSPARK, ("  max_model_len", '  env: {VLLM_USE_V2_MODEL_RUNNER: "0"}\n  max_model_len')],
         {"target": DEEPSEEK_V4},
         "engine.runner", "error", "engine.env.VLLM_USE_V2_MODEL_RUNNER", "on the V2 model runner only"),
        ([NGRAM, ("platform: {", "container: {bake_drafter: true}\nplatform: {")], {},
         "container.bake", "error", "container.bake_drafter", "the recipe names no drafter"),
        ([args("enable-lora: true")], {}, "engine.lora", "warning", "engine.args.enable-lora", "adapters change"),
        ([args("kv-sharing-fast-prefill: true")], {},
         "engine.fast-prefill", "error", "engine.args.kv-sharing-fast-prefill", "cannot be combined with drafters"),
        ([version("0.23.0"), ("tokens: 7", "tokens: 7\n  num_speculative_tokens_per_batch_size: [[1, 8, 7]]")], {},
         "engine.schedule", "error", "speculation.num_speculative_tokens_per_batch_size", "0.24.0 or newer"),
        ([args("data-parallel-size: 2"), FOUR_GPUS,
          ("tokens: 7", "tokens: 7\n  num_speculative_tokens_per_batch_size: [[1, 8, 7]]")], {},
         "engine.schedule", "warning", "speculation.num_speculative_tokens_per_batch_size", "with data parallelism"),
        ([("tokens: 7", "tokens: 7\n  draft_tensor_parallel_size: 2")], {},
         "engine.draft-tensor-parallel", "error", "speculation.draft_tensor_parallel_size", "cannot run on 2"),
        ([args("quantization: awq")], {"target": config(quantization_config={"quant_method": "fp8"})},
         "engine.quantization", "error", "engine.args.quantization", "quantized with `fp8`"),
        ([version("0.27.0"), ("16384", "768")], {},
         "engine.token-budget", "error", "engine.max_num_batched_tokens", "leave 0 of 768 tokens"),
        ([version("0.27.0"), ("16384", "8959")], {},
         "engine.token-budget", "warning", "engine.max_num_batched_tokens", "leave 8191 tokens per step"),
        ([], {"target": config(architectures=["GPT2LMHeadModel"])},
         "engine.target-architecture", "error", "target.model", "hidden states of a `GPT2LMHeadModel`"),
        ([], {"target": config(architectures=["Qwen3ForSequenceClassification"])},
         "engine.no-generation", "error", "target.model", "classifies with a `Qwen3ForSequenceClassification`"),
        ([], {"target": config(architectures=["BertModel"])},
         "engine.no-generation", "error", "target.model", "classifies with a `BertModel`"),
        ([version("0.20.0")], {"target": config(vision_config={})},
         "engine.multimodal", "error", "engine.version", "text-only targets"),
        ([version("0.17.0"), ("16384", "32768")],
         {"target": {"config": HYBRID["config"] | {"model_type": "gpt_oss"}}, "drafter": config(num_hidden_layers=4)},
         "engine.kv-groups", "error", "engine.version", "in KV groups of 12; the 16 full ones"),
        ([], {"target": {"tensors": None, "weight_bytes": 30 * 2**30}},
         "memory.does-not-fit", "error", "platform.instance_types.0", "ml.g6.xlarge: "),
        ([("1024", "4000000")], {"target": config(max_position_embeddings=4_000_000, num_hidden_layers=64,
                                                 num_key_value_heads=2, head_dim=128)},
         "memory.context", "error", "engine.max_model_len", "one request of 4,000,000 tokens needs"),
        ([args("no-enable-prefix-caching: true")], {"target": config(layer_types=["linear_attention"] * 4)},
         "memory.unknown", "info", "target.model", "layers without attention"),
        ([], {"drafter": config(num_attention_heads=None)},
         "memory.unknown", "info", "speculation.model", "the drafter's weights, but not its KV cache"),
        ([args("decode-context-parallel-size: 3")], {},
         "engine.combination", "error", "engine.args.decode-context-parallel-size", "must be divisible by"),
        ([args("tensor-parallel-size: 4, decode-context-parallel-size: 3"), NGRAM, ("ml.g6.xlarge", "ml.g6.12xlarge")],
         {"target": config(num_attention_heads=4)},
         "engine.combination", "error", "engine.args.decode-context-parallel-size",
         "refuses `tensor-parallel-size: 4` with `decode-context-parallel-size: 3` and"),
        ([(_DRAFTER, "method: ngram"), args("enable-lora: true, max-loras: 4, max-cpu-loras: 2")], {},
         "engine.combination", "error", "engine.args.max-cpu-loras", "2` is below `max-loras: 4`"),
        ([args("data-parallel-size-local: 2")], {},
         "engine.combination", "error", "engine.args.data-parallel-size-local", "is more than `data-parallel-size: 1`"),
        ([args("decode-context-parallel-size: 2, tensor-parallel-size: 2"), ("ml.g6.xlarge", "ml.g6.12xlarge")],
         {"target": config(num_attention_heads=4, num_key_value_heads=2)},
         "engine.combination", "error", "engine.args.decode-context-parallel-size", "2 ranks cannot share a context"),
        ([args("decode-context-parallel-size: '2', tensor-parallel-size: '2'"), NGRAM,
          ("ml.g6.xlarge", "ml.g6.12xlarge")], {"target": config(num_attention_heads=4, num_key_value_heads=2)},
         "engine.combination", "error", "engine.args.decode-context-parallel-size", "2 ranks cannot share a context"),
        *(([args(flags)], {}, "engine.combination", "error", f"engine.args.{path}", "0` is no size of a CUDA graph")
          for flags, path in [
              ("max-cudagraph-capture-size: 0", "max-cudagraph-capture-size"),
              ("max-cudagraph-capture-size: 0, compilation-config: {mode: 3}", "max-cudagraph-capture-size"),
              ("compilation-config: {max_cudagraph_capture_size: 0, mode: null}",
               "compilation-config.max_cudagraph_capture_size"),
              ("compilation-config: '{\"max_cudagraph_capture_size\": 0}'",
               "compilation-config.max_cudagraph_capture_size"),
              ("max-cudagraph-capture-size: '0', optimization-level: 1", "max-cudagraph-capture-size"),
          ]),
        ([args("engram-config: {}"), version("0.30.0")], {},
         "engine.combination", "error", "engine.args.engram-config", "for models with Engram embeddings"),
        ([args("mm-processor-device: 1.5")], {"target": config(architectures=["Qwen3VLForConditionalGeneration"])},
         "engine.flag-value", "error", "engine.args.mm-processor-device", "has the value 1.5"),
        ([args("hf-overrides: {max_position_embeddings: 16}"), version("0.30.0")], {"target": config(
            rope_scaling={"rope_type": "yarn", "factor": 4.0})},
         "engine.max-model-len", "error", "engine.max_model_len", "the target supports (16 positions)"),
        ([args("numa-bind-nodes: [0]")], {},
         "engine.combination", "error", "engine.args.numa-bind-nodes", "`numa-bind: false`"),
        ([args("data-parallel-rank: 0")], {},
         "engine.combination", "error", "engine.args.data-parallel-rank", "needs `data-parallel-size`"),
        ([args("enable-dbo: true")], {},
         "engine.combination", "error", "engine.args.enable-dbo", "needs `all2all-backend`"),
        ([args("enable-elastic-ep: true")], {},
         "engine.combination", "error", "engine.args.enable-elastic-ep", "`enable-eplb: false`"),
        ([args("ubatch-size: 2")], {},
         "engine.combination", "error", "engine.args.ubatch-size", "needs `all2all-backend`"),
        ([("ml.g6.xlarge", "ml.g4dn.xlarge"), args("dtype: bfloat16")], {},
         "memory.does-not-fit", "error", "platform.instance_types.0", "needs a GPU of compute capability 8.0"),
        ([args("disable-sliding-window: true")], {"target": config(sliding_window=512)},
         "engine.max-model-len", "error", "engine.args.disable-sliding-window", "no more than 512 tokens"),
        ([args("quantization: gptq_marlin")], {},
         "engine.quantization", "error", "engine.args.quantization", "weights that are so quantized already"),
        ([args("disable-sliding-window: true"), version("0.30.0")], {"target": config(
            sliding_window=512, rope_scaling={"rope_type": "yarn", "factor": 4.0})},
         "engine.max-model-len", "error", "engine.args.disable-sliding-window", "no more than 512 tokens"),
        ([args("device-ids: 1k")], {},
         "engine.flag-value", "error", "engine.args.device-ids", "has the value '1k'"),
        ([args("show-hidden-metrics-for-version: -1")], {},
         "engine.flag-value", "error", "engine.args.show-hidden-metrics-for-version", "has the value -1"),
        ([version("0.26.0"), args("max-num-partial-prefills: 2")], {}, "engine.combination", "error",
         "engine.args.max-num-partial-prefills", "vLLM 0.26.0 refuses `max-num-partial-prefills: 2`"),
        ([args("data-parallel-external-lb: true")], {}, "engine.combination", "error",
         "engine.args.data-parallel-external-lb", "needs `data-parallel-size` or `data-parallel-rank`"),
        ([args("data-parallel-hybrid-lb: true, data-parallel-start-rank: 0")], {}, "engine.combination", "error",
         "engine.args.data-parallel-hybrid-lb", "needs `data-parallel-size-local`"),
        ([args("nnodes: 2")], {}, "engine.own-flag", "error", "engine.args.nnodes", "is set by the toolkit"),
        ([args("ray-workers-use-nsight: true")], {},
         "engine.combination", "error", "engine.args.ray-workers-use-nsight", "`distributed-executor-backend: ray`"),
        ([args("quantization: humming")], {"target": GPT_OSS},
         "engine.quantization", "error", "engine.args.quantization", "the flag says `humming`"),
        ([version("0.17.1"), ("16384", "32768"), args("quantization: fp8")], {"target": GPT_OSS},
         "engine.quantization", "error", "engine.args.quantization", "quantized with `mxfp4`"),
        ([args("hf-overrides: {max_position_embeddings: 512}")], {"target": config(
            rope_parameters={"rope_type": "llama3", "factor": 8.0})},
         "engine.max-model-len", "error", "engine.max_model_len", "(512 positions)"),
        ([version("0.29.0"), ("1024", "2049")], {"target": config(
            rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})},
         "engine.max-model-len", "error", "engine.max_model_len", "(2048 positions)"),
        ([("1024", "2048")], {"target": config(model_type="gemma3_text", rope_scaling={"type": "linear", "factor": 8})},
         "engine.max-model-len", "error", "engine.max_model_len", "(1024 positions)"),
        ([args("quantization: bitsandbytes")], {},
         "engine.flag-value", "error", "engine.args.quantization", "'bitsandbytes', which vLLM 0.30.0 does not have"),
        ([args("kv-cache-dtype: turboquant_k8v4")], {}, "memory.unknown", "warning", "engine", "turboquant"),
        ([("ml.g6.xlarge", "ml.g6.12xlarge")], {"target": {"tensors": None, "weight_bytes": 30 * 2**30}},
         "memory.tensor-parallel", "error", "platform.instance_types.0", "the models need 2 accelerators"),
        ([args('chat-template: "{% if x %}"')], {},
         "container.quoting", "info", "engine.args.chat-template", "would break `chat-template`: the engine starts"),
        ([("platform: {", "container: {dockerfile: ./nowhere}\nplatform: {")], {},
         "container.dockerfile", "error", "container.dockerfile", "does not exist"),
        ([("platform: {", "container: {dockerfile: ./recipe.yaml, builder: append}\nplatform: {")], {},
         "container.builder", "error", "container.builder", "cannot run a Dockerfile"),
        ([("platform: {", "container: {bake_drafter: true}\nplatform: {")], {},
         "container.bake", "error", "container.bake_drafter", "org/drafter is not one"),
        ([("org/target", "jumpstart:target"), ("platform: {", "container: custom\nplatform: {")],
         {"target": {"model": "jumpstart:target", "revision": ""}},
         "container.jumpstart", "error", "container", "which runs in JumpStart's own image"),
        ([version("0.22.1")], {}, "container.quoting", "info", "engine.version", "would break `speculative-config`"),
        ([("ml.g6.xlarge", "ml.g6.xlage")], {},
         "sagemaker.instance-type", "error", "platform.instance_types.0", "not a known instance type"),
        ([("ml.g6.xlarge", "l40s")], {},
         "sagemaker.instance-type", "error", "platform.instance_types.0", "l40s is an accelerator"),
        ([("ml.g6.xlarge", "ml.m7i.large")], {},
         "sagemaker.accelerator", "error", "platform.instance_types.0", "ml.m7i.large has CPUs"),
        ([("600}", "3600}")], {"target": {"weight_bytes": 251 * 10**9}},
         "sagemaker.disk", "error", "platform.instance_types.0", "251 GB of weights"),
        ([("ml.g6.xlarge", "ml.p5.48xlarge")], {"target": {"weight_bytes": 400 * 10**9}},
         "sagemaker.health-check", "warning", "platform.health_check_timeout", "take up to 980 s"),
        ([], {"target": {"generation_config": {"min_p": 0.1}}},
         "quality.refused-sampling", "error", "target.model", "such requests are refused"),
        ([args("override-generation-config: {temperature: 1.5}")], {},
         "quality.temperature", "warning", "engine.args.override-generation-config", "temperature 1.5"),
        ([("platform:", "evidence:\n- {workload: a, num_speculative_tokens: 3, concurrency: 64, speedup: 1.2, "
           'hardware: b, engine: c, date: "2026-01-01", source: d}\nplatform:')], {},
         "quality.best-k", "warning", "speculation.num_speculative_tokens", "measured at concurrency 64 is K=3 (d)"),
        ([], {"drafter": {"partial": True, "unverified": ("mask token",)}},
         "lock.partial", "info", "speculation.model", "not verified: mask token"),
        ([], {"drafter": {"model": "org/another"}}, "lock.stale", "error", "speculation.model", "for org/another"),
        ([("model: org/drafter", "model: org/drafter\n  revision: abd")], {},
         "lock.stale", "error", "speculation.model", "written for org/drafter@abc"),
        ([("model: org/target", f"model: org/target, revision: {'a' * 40}")], {"target": {"revision": "0" * 40}},
         "lock.stale", "error", "target.model", f"written for org/target@{'0' * 40}"),
        ([("model: org/target", "model: org/target, revision: v2")],
         {"target": {"revision": "0" * 40, "wanted": "v1"}},
         "lock.stale", "error", "target.model", f"written for org/target@{'0' * 40}"),
        ([("platform: {", "container: {base: 'Registry.com/Ours:::'}\nplatform: {")], {},
         "container.base", "error", "container.base", "Registry.com/Ours::: is not an image reference"),
        ([("platform: {", "container: {base: 'user:pass@registry.com/ours'}\nplatform: {")], {},
         "container.base", "error", "container.base", "…@registry.com/ours is not an image reference"),
        ([("platform: {", "container: {base: 'me:pass@registry.com/ours@sha256:0'}\nplatform: {")], {},
         "container.base", "error", "container.base", "…@sha256:0 is not"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_alone(
    tmp_path: Path,
    edits: list[tuple[str, str]],
    facts: Facts,
    code: str,
    severity: str,
    path: str,
    message: str,
) -> None:
    found = findings(tmp_path, *edits, **facts)
    # Some images of old engines bring that along.
    (finding,) = [finding for finding in found if finding.code == code or finding.code != "container.quoting"]
    assert (finding.code, finding.severity, finding.path) == (code, severity, path)
    assert message in finding.message
    assert finding.hint
    if corrected := follow(edited(*edits), finding):
        still = check(write_hub_pair(tmp_path, corrected, **facts)).findings
        assert (code, path) not in {(one.code, one.path) for one in still}, f"although: {finding.hint}"


def test_copies_that_an_instance_has_no_gpus_for_are_told_with_the_types_that_have(tmp_path: Path) -> None:
    too_small, others = findings(tmp_path, args("data-parallel-size: 2"))
    assert (too_small.code, others.code) == ("sagemaker.one-instance", "memory.does-not-fit")
    assert too_small.message.startswith("the engine takes 2 GPUs, but ml.g6.xlarge has 1")
    assert others.hint.startswith("Cheapest types that fit: ml.g4dn.12xlarge")


@pytest.mark.parametrize(
    ("edits", "facts"),
    [
        ([DRAFT_MODEL, OTHER_VOCABULARY], {"drafter": config(vocab_size=96)}),
        ([DRAFT_MODEL, OTHER_VOCABULARY], {"target": tokenizer(), "drafter": tokenizer(vocabulary_sha256="other")}),
        ([(_DRAFTER, "method: ngram_gpu"), args("async-scheduling: true")], {}),
        ([DRAFT_MODEL], {"target": tokenizer(), "drafter": tokenizer()}),
        ([version("0.27.0")], {"drafter": config(max_position_embeddings=512)}),
        ([version("0.18.0"), ("16384", "32768")],
         {"target": {"config": HYBRID["config"] | {"model_type": "gpt_oss"}}, "drafter": config(num_hidden_layers=4)}),
        ([version("0.27.0"), ("16384", "8960")], {}),
        ([version("0.24.0"), ("tokens: 7", "tokens: 7\n  num_speculative_tokens_per_batch_size: [[1, 8, 7]]")], {}),
        ([EAGLE3, version("0.24.0"), args("disable-log-stats: true")], {}),
        ([("tokens: 7", "tokens: 10"), ("org/drafter", "amazon/GPT-OSS-20B-P-EAGLE"),
          ("org/target", "openai/gpt-oss-20b")],
         {"target": {"model": "openai/gpt-oss-20b"}, "drafter": {"model": "amazon/GPT-OSS-20B-P-EAGLE"}}),
        ([("org/target", "openai/gpt-oss-20b-fp8"), ("org/drafter", "amazon/GPT-OSS-20B-P-EAGLE")],
         {"target": {"model": "openai/gpt-oss-20b-fp8"}, "drafter": {"model": "amazon/GPT-OSS-20B-P-EAGLE"}}),
        ([], {"drafter": config(ptd_token_id=None, pard_token=3)}),
        ([("tokens: 7", "tokens: 7\n  draft_tensor_parallel_size: 1")], {}),
        ([("model: org/target", "model: org/target, revision: main")],
         {"target": {"revision": "0" * 40, "wanted": "main"}}),
        ([("model: org/target", "model: org/target, revision: v1")], {"target": {"revision": "0" * 40}}),
        ([("model: org/target", f"model: org/target, revision: {'a' * 40}")], {"target": {"revision": "a" * 40}}),
        ([("platform: {", "container: {base: 'registry.com:5000/ours:1'}\nplatform: {")], {}),
        ([NGRAM, ("ngram", "ngram\n  prompt_lookup_min: 2\n  prompt_lookup_max: 4")], {}),
        ([NGRAM, args("enable-lora: true, kv-sharing-fast-prefill: true")], {}),
        ([MTP, ("mtp", "mtp\n  moe_backend: triton\n  enforce_eager: true")],
         {"target": config(model_type="glm5_next")}),
        ([DSPARK, ("dspark", "dspark\n  draft_sample_method: probabilistic")], {"target": DEEPSEEK_V4}),
        ([(_DRAFTER, "method: mtp\n  model: org/target")],
         {"target": config(model_type="glm5_next"), "drafter": {"model": "org/target", "revision": "abc"}}),
        ([args("quantization: awq_marlin")], {"target": config(quantization_config={"quant_method": "awq"})}),
        ([args("quantization: auto_awq")], {"target": config(quantization_config={"quant_method": "awq"})}),
        ([args("quantization: humming")], {"target": config(quantization_config={"quant_method": "fp8"})}),
        ([args("quantization: fp8")],
         {"target": config(quantization_config={"quant_method": "modelopt", "quant_algo": "FP8"})}),
        ([args("quantization: 'None'")], {"target": config(quantization_config={"quant_method": "fp8"})}),
        ([args("quantization: moe_wna16")], {"target": config(quantization_config={"quant_method": "gptq"})}),
        ([args("disable-sliding-window: true")], {"target": config(
            sliding_window=512, rope_scaling={"rope_type": "linear", "factor": 4.0})}),
        ([args("disable-sliding-window: true"), version("0.29.0")], {"target": config(
            sliding_window=512, rope_scaling={"rope_type": "yarn", "factor": 4.0})}),
        ([args("disable-sliding-window: true")], {"target": config(sliding_window=512, model_max_length=4096)}),
        ([args("disable-sliding-window: true, hf-overrides: {sliding_window: 2048}")],
         {"target": config(sliding_window=512)}),
        ([args("device-ids: '0,1'")], {}),
        ([args("device-ids: GPU-5d4f")], {}),
        ([args("show-hidden-metrics-for-version: 'None'")], {}),
        ([args("show-hidden-metrics-for-version: V0.9")], {}),
        ([args("show-hidden-metrics-for-version: 1!0.9")], {}),
        ([args("distributed-executor-backend: 'None'")], {}),
        ([args("media-io-kwargs: 'null'")], {"target": config(architectures=["UnlistedForCausalLM"])}),
        ([args("quantization: fp8")], {"target": GPT_OSS}),
        ([args("hf-overrides: {max_position_embeddings: 512}")],
         {"target": config(rope_scaling={"type": "linear", "factor": 2.0})}),
        ([("1024", "2048")], {"target": config(
            rope_parameters={"full_attention": {"rope_type": "dynamic", "factor": 2.0}})}),
        ([args("quantization: ours"), OWN_IMAGE], {}),
        ([args("decode-context-parallel-size: 3, prefill-context-parallel-size: 3"), (_DRAFTER, "method: ngram"),
          ("ml.g6.xlarge", "ml.g6.12xlarge")], {}),
        ([args("ray-workers-use-nsight: true, distributed-executor-backend: ray")], {}),
        *(([NGRAM, args(f"max-cudagraph-capture-size: 0, {graphs}")], {}) for graphs in (
            "optimization-level: '0'", "compilation-config: {cudagraph_mode: none}", "compilation-config: {mode: 0}",
            "compilation-config: {mode: NONE}", "compilation-config: '{\"cudagraph_mode\": 0}'")),
        ([version("0.29.0"), ("1024", "4096")],
         {"target": config(rope_scaling={"rope_type": "yarn", "factor": 4.0})}),
        ([version("0.29.0"), ("1024", "2048")], {"target": config(
            rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})}),
        ([args("enable-auto-tool-choice: true, tool-call-parser: hermes")], {}),
        # Other versions have it among those that generate.
        ([NGRAM, version("0.25.0")], {"target": config(architectures=["AquilaModel"])}),
        ([NGRAM], {"target": config(architectures=["UnlistedChatModel"])}),
        ([NGRAM, args("runner: generate")], {"target": config(architectures=["UnlistedModel"])}),
    ],
)  # fmt: skip
def test_what_is_right_is_left_alone(tmp_path: Path, edits: list[tuple[str, str]], facts: Facts) -> None:
    assert findings(tmp_path, *edits, **facts) == ()


def test_the_beginning_of_a_flag_is_the_flag(tmp_path: Path) -> None:
    short, refused = findings(tmp_path, args("engram: {}"))
    assert (short.code, short.path) == ("engine.unknown-flag", "engine.args.engram")
    assert (refused.severity, refused.path) == ("error", "engine.args.engram")
    assert "for models with Engram embeddings" in refused.message


@pytest.mark.parametrize(
    ("heads", "ways", "instance_type", "hint"),
    [
        (8, 2, "ml.g6.12xlarge", "Remove it, or set `tensor-parallel-size: 4`."),
        (8, 2, "ml.g4dn.xlarge", "Remove it."),
        (8, 4, "ml.g6.12xlarge", "Remove it."),
        (6, 2, "ml.g6.12xlarge", "Remove it."),
    ],
)
def test_a_size_is_proposed_that_heads_and_instance_allow(
    heads: int, ways: int, instance_type: str, hint: str, tmp_path: Path
) -> None:
    edits = args(f"decode-context-parallel-size: {ways}, tensor-parallel-size: {ways}"), ("ml.g6.xlarge", instance_type)
    found = findings(tmp_path, *edits, target=config(num_attention_heads=heads, num_key_value_heads=2))
    assert [one.hint for one in found if "cannot share a context" in one.message] == [hint]


@pytest.mark.parametrize(
    ("others", "message", "path"),
    [
        ("", "", ""),
        (", ml.g6.2xlarge",
         "vLLM 0.30.0 refuses", "engine.args.enable-auto-tool-choice"),
        (", {type: ml.g6.2xlarge, args: {seed: 1}}",
         "on ml.g6.2xlarge: vLLM 0.30.0 refuses", "platform.instance_types.1"),
    ],
)  # fmt: skip
def test_what_each_type_gets_counts(tmp_path: Path, others: str, message: str, path: str) -> None:
    own = ("[ml.g6.xlarge]", f"[{{type: ml.g6.xlarge, args: {{tool-call-parser: hermes}}}}{others}]")
    found = findings(tmp_path, args("enable-auto-tool-choice: true"), own)
    told = " `enable-auto-tool-choice: true` with `tool-call-parser: null`: --enable-auto-tool-choice requires"
    assert [(one.message.partition(told)[0], one.path) for one in found] == ([(message, path)] if message else [])


@pytest.mark.parametrize(
    ("version_of_it", "architecture", "told"),
    [
        ("0.30.0", "LlamaForCausalLM", []),
        ("0.30.0", "Phi4MMForCausalLM", ["the target (`Phi4MMForCausalLM`)"]),
        ("0.30.0", "UnlistedForCausalLM", []),
        ("0.29.0", "LlamaForCausalLM", ["the drafter (`LlamaForCausalLMEagle3`)"]),
    ],
)
def test_models_that_are_not_divided_into_stages(
    tmp_path: Path, version_of_it: str, architecture: str, told: list[str]
) -> None:
    models = {
        "target": config(architectures=[architecture]),
        "drafter": config(architectures=["LlamaForCausalLMEagle3"]),
    }
    found = findings(tmp_path, version(version_of_it), args("pipeline-parallel-size: 2"), **models)
    errors = [one.message for one in found if one.code == "engine.pipeline" and one.severity == "error"]
    assert [message.split("cannot divide ")[1].split(" into")[0] for message in errors] == told


@pytest.mark.parametrize("more", ["model-impl: transformers", "hf-overrides: {architectures: [LlamaForCausalLM]}"])
def test_a_model_that_other_code_runs_may_be_divided_into_stages(tmp_path: Path, more: str) -> None:
    target = config(architectures=["Phi4MMForCausalLM"])
    found = findings(tmp_path, args(f"pipeline-parallel-size: 2, {more}"), target=target)
    assert [one.message for one in found if one.code == "engine.pipeline" and one.severity == "error"] == []


@pytest.mark.parametrize("missing", ["tensors", "tokenizer", "weight_bytes"])
def test_what_is_not_known_is_not_held_against_a_model(tmp_path: Path, missing: str) -> None:
    assert findings(tmp_path, target={missing: None}, drafter={missing: None}) == ()


def test_a_curated_head_may_lack_its_mask_token(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, drafter={"partial": True, **config(ptd_token_id=None)})
    assert finding.code == "lock.partial"


def test_without_a_lock_the_pair_cannot_be_checked(tmp_path: Path) -> None:
    recipe = write_hub_pair(tmp_path)
    recipe.with_suffix(".lock.json").unlink()
    found = check(recipe).findings
    assert [(finding.code, finding.line) for finding in found] == [("lock.missing", 2), ("lock.missing", 5)]
    assert found[0].hint == f"Run: toolkit lock {recipe}"


@pytest.mark.parametrize(
    ("lock", "words"),
    [("{", "the lock file cannot be read, so"), ("without the drafter", "the lock file says nothing of it, so")],
)
def test_a_lock_that_does_not_help_is_not_called_missing(tmp_path: Path, lock: str, words: str) -> None:
    path = write_hub_pair(tmp_path)
    written = path.with_suffix(".lock.json")
    half = json.dumps({**json.loads(written.read_text()), "drafter": None})
    written.write_text(lock if lock == "{" else half)
    missing = [finding.message for finding in check(path).findings if finding.code == "lock.missing"]
    assert missing
    assert all(message.startswith(words) for message in missing)


def test_a_baseline_needs_its_target_only(tmp_path: Path) -> None:
    text = HUB_RECIPE.replace("method: p-eagle\n  model: org/drafter\n  num_speculative_tokens: 7", "method: none")
    recipe = write_hub_pair(tmp_path)
    recipe.write_text(text)
    assert check(recipe).findings == ()


def test_best_k_offers_a_schedule(tmp_path: Path) -> None:
    evidence = (
        "evidence:\n- {workload: a, num_speculative_tokens: 3, concurrency: 64, speedup: 1.2, "
        'hardware: b, engine: c, date: "2026-01-01", source: d}\nplatform:'
    )
    (finding,) = findings(tmp_path, ("platform:", evidence))
    assert finding.hint == (
        "Set it to 3, or give a K per batch size: `num_speculative_tokens_per_batch_size: [[1, 8, 7], [9, 128, 3]]`."
    )


def test_a_memory_finding_names_the_cheapest_types_that_fit(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, target={"tensors": None, "weight_bytes": 30 * 2**30})
    assert finding.code == "memory.does-not-fit"
    assert finding.hint.startswith("Cheapest types that fit: ml.")


def test_every_code_has_a_case() -> None:
    tests = Path(__file__).parents[2]
    files = [path for folder in ("unit", "security", "images", "aws") for path in (tests / folder).rglob("test_*.py")]
    tested = "".join(path.read_text() for path in [*files, Path(__file__).with_name("known_threads.json")])
    named = json.loads((Path(run.__file__).with_name("codes.json")).read_text())
    short = {name: name.split(".")[1] for name in named}
    assert [name for name in named if name not in tested and f'"{short[name]}"' not in tested] == []


JUMPSTART = ("org/target", "jumpstart:target")
OF_JUMPSTART = {"model": "jumpstart:target", "revision": ""}


@pytest.mark.parametrize("more", ["", "inference_component: {memory_mib: 99999}, "], ids=["endpoint", "component"])
def test_an_instance_type_that_jumpstart_chooses_is_not_judged(tmp_path: Path, more: str) -> None:
    platform = ("instance_types: [ml.g6.xlarge], ", more)
    assert findings(tmp_path, JUMPSTART, platform, target=OF_JUMPSTART) == ()


def test_an_instance_type_that_is_written_for_jumpstart_is_judged(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, JUMPSTART, ("ml.g6.xlarge", "ml.m7i.large"), target=OF_JUMPSTART)
    assert finding.code == "sagemaker.accelerator"


@pytest.mark.parametrize(("training", "severity"), [("", "error"), ("training: {data: [hf://org/chats]}\n", "warning")])
def test_a_method_of_the_v2_runner_is_not_served_on_this_machine_but_its_head_is_trained(
    tmp_path: Path, training: str, severity: str
) -> None:
    edits = (("method: p-eagle", "method: dspark"), LOCAL, ("platform: {", training + "platform: {"))
    (finding,) = (one for one in findings(tmp_path, *edits) if one.code == "engine.runner")
    assert (finding.severity, finding.path) == (severity, "speculation.method")
    assert "needs a GPU" in finding.message


def test_jumpstart_is_not_on_this_machine(tmp_path: Path) -> None:
    both = (JUMPSTART, ("org/drafter", "jumpstart:drafter"), LOCAL)
    found = findings(tmp_path, *both, target=OF_JUMPSTART, drafter={"model": "jumpstart:drafter", "revision": ""})
    assert [(finding.code, finding.path) for finding in found if finding.code == "local.not-here"] == [
        ("local.not-here", "target.model"),
        ("local.not-here", "speculation.model"),
    ]


@pytest.mark.parametrize(("best", "is_found"), [(4, True), (5, False), (9, False), (10, True)])
def test_a_k_that_is_three_from_the_best_is_far(tmp_path: Path, best: int, is_found: bool) -> None:
    measured = (
        f"evidence:\n- {{workload: a, num_speculative_tokens: {best}, concurrency: 64, speedup: 1.2, "
        'hardware: b, engine: c, date: "2026-01-01", source: d}\nplatform:'
    )
    found = findings(tmp_path, ("platform:", measured))  # whose K is 7
    assert ("quality.best-k" in [finding.code for finding in found]) is is_found


def test_a_draft_model_without_a_chat_template_has_none_that_differs(tmp_path: Path) -> None:
    without = tokenizer(chat_template_sha256=None)
    assert findings(tmp_path, DRAFT_MODEL, target=tokenizer(), drafter=without) == ()


@pytest.mark.parametrize(("budget", "is_found"), [(127, True), (128, False)])
def test_without_draft_slots_a_step_has_a_token_for_each_of_128_requests(
    tmp_path: Path, budget: int, is_found: bool
) -> None:
    found = findings(tmp_path, version("0.27.0"), NGRAM, ("16384", str(budget)))
    assert ("engine.token-budget" in [finding.code for finding in found]) is is_found


LONG, SHORT = "amazon/gpt-oss-20b-p-eagle-long-context", "amazon/GPT-OSS-20B-P-EAGLE"


@pytest.mark.parametrize(
    ("head", "length", "is_found"),
    [(LONG, 9999, True), (LONG, 10000, False), (SHORT, 40000, False), (SHORT, 40001, True)],
)
def test_a_head_wants_requests_as_long_as_those_it_was_made_for(
    tmp_path: Path, head: str, length: int, is_found: bool
) -> None:
    target = "openai/gpt-oss-20b"
    found = findings(
        tmp_path,
        ("1024", str(length)),
        ("org/drafter", head),
        ("org/target", target),
        target={"model": target, **config(max_position_embeddings=131072)},
        drafter={"model": head, **config(max_position_embeddings=131072)},
    )
    assert ("pair.context" in [finding.code for finding in found]) is is_found


@pytest.mark.parametrize("flag", ["enforce-eager: true", "pipeline-parallel-size: 2", "enable-lora: true"])
def test_adaptive_verification_needs_cuda_graphs_of_one_stage_without_adapters(tmp_path: Path, flag: str) -> None:
    found = findings(tmp_path, DSPARK, ADAPTIVE, FOUR_GPUS, args(flag), target=DEEPSEEK_V4)
    (clash,) = [finding for finding in found if finding.severity == "error"]
    assert (clash.code, clash.path) == ("engine.clash", f"engine.args.{flag.partition(':')[0]}")
    assert "`enable_adaptive_verification`" in clash.message
