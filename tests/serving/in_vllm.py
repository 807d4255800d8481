"""The program of `forked_vllm.py`: vLLM is imported once, then every job runs in a child that is forked here.

A child begins with all modules loaded and ends without cleaning up, so it costs 2 s of CPU time where a process of its
own costs 15 s. No job sees what another has done.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import vllm
from judged_in_vllm import judged
from safetensors.torch import load_file, save_file
from vllm import LLM, ModelRegistry, SamplingParams, TokensPrompt, platforms
from vllm.config import (
    CacheConfig,
    ModelConfig,
    ParallelConfig,
    SpeculativeConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.model_executor.layers import utils
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.spec_decode.metrics import SpecDecodingLogging, SpecDecodingStats
from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config
from vllm.v1.worker.gpu.spec_decode.utils import get_parallel_drafting_token_id

from toolkit.engines.vllm.training import TRAINING
from toolkit.errors import UsageError
from toolkit.training.chat import load_chat
from toolkit.training.job import TrainingJob
from toolkit.training.responses import Question

ANSWER_TOKENS = 48
# Registered as classes, or vLLM would start a process for each to find out what it can do.
MODELS = {
    "Qwen3ForCausalLM": ("qwen3", "Qwen3ForCausalLM"),
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "Gemma3ForCausalLM": ("gemma3", "Gemma3ForCausalLM"),
    "Qwen3NextForCausalLM": ("qwen3_next", "Qwen3NextForCausalLM"),
    "Qwen3NextMTP": ("qwen3_next_mtp", "Qwen3NextMTP"),
    "LlamaForCausalLMEagle3": ("llama_eagle3", "Eagle3LlamaForCausalLM"),
    "PeagleLlamaForCausalLM": ("llama_eagle3", "Eagle3LlamaForCausalLM"),
    "PEagleDraftModel": ("llama_eagle3", "Eagle3LlamaForCausalLM"),
}
LOADED_AHEAD = (
    "compressed_tensors.quantization",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.worker.cpu_worker",
)
_running: list[LLM] = []  # they end with the process: shutting them down takes longer than starting them


def catalogue() -> dict[str, str]:
    """The catalogue's files on this engine, as this vLLM makes them."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tools.catalogue.__main__ import DOCUMENTS
    from tools.catalogue.documents import documents_in
    from tools.catalogue.generators import GENERATORS

    of_engines = {name: generate for name, generate in GENERATORS.items() if name.startswith("engines/")}
    return {name: generate(documents_in(DOCUMENTS)) for name, generate in of_engines.items()}


def sizes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Blocks of the KV cache and bytes of the weights, once the engine is up."""
    pack = utils.dispatch_cpu_unquantized_gemm
    # On a CPU, layers swap their weights for packed ones that no longer count as parameters: keep them.
    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: pack(layer, remove_weight=False)
    llm = _started(arguments)
    cache, runner = llm.llm_engine.vllm_config.cache_config, _runner(llm)
    drafter = getattr(runner, "drafter", None)
    return {
        "blocks": cache.num_gpu_blocks,
        "tokens": cache.kv_cache_size_tokens,
        "concurrency": cache.kv_cache_max_concurrency,
        "target_bytes": _weights(runner.model),
        "drafter_bytes": _weights(drafter.model) if drafter else 0,
    }


def growth(first: Mapping[str, Any], arguments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each start adds to the process, once a first one has made all that stays: libraries, threads, caches."""
    _shut_down(LLM(**first))
    return [_growth(one) for one in arguments]


def answer(arguments: Mapping[str, Any], prompts: Sequence[str]) -> dict[str, Any]:
    """Greedy tokens of each prompt, with the model's own defaults otherwise, and how many were drafted and accepted."""
    return answers(arguments, [prompts], ANSWER_TOKENS)[0]


def answers(arguments: Mapping[str, Any], texts: Sequence[Sequence[str]], tokens: int) -> list[dict[str, Any]]:
    """The same of one set of prompts after the other."""
    llm, found = _started(arguments), []
    sampling: SamplingParams = llm.get_default_sampling_params()
    sampling.max_tokens, sampling.temperature = tokens, 0
    for prompts in texts:
        before = _drafted(llm)
        answered = llm.chat([[{"role": "user", "content": prompt}] for prompt in prompts], sampling)
        counts = {name: count - before[name] for name, count in _drafted(llm).items()}
        asked = [list(one.prompt_token_ids or ()) for one in answered]
        found.append({"prompts": asked, "tokens": [list(one.outputs[0].token_ids) for one in answered], **counts})
    return found


def _drafted(llm: LLM) -> dict[str, int]:
    counted = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    return {
        "steps": counted.get("vllm:spec_decode_num_drafts", 0),
        "drafted": counted.get("vllm:spec_decode_num_draft_tokens", 0),
        "accepted": counted.get("vllm:spec_decode_num_accepted_tokens", 0),
    }


def drafts(arguments: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """One greedy answer, and every draft that led to it, token by token."""
    llm = _started(arguments)
    drafter, found = _runner(llm).drafter, []
    propose = drafter.propose

    def recorded(*given: Any, **named: Any) -> Any:
        tokens = propose(*given, **named)
        found.append(tokens[0].tolist())
        return tokens

    drafter.propose = recorded
    sampling = SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0)
    (answered,) = llm.chat([[{"role": "user", "content": prompt}]], sampling)
    return {
        "prompt": list(answered.prompt_token_ids),
        "tokens": list(answered.outputs[0].token_ids),
        "drafts": found,
        "accepted_per_position": next(
            metric.values
            for metric in llm.get_metrics()
            if metric.name == "vllm:spec_decode_num_accepted_tokens_per_pos"
        ),
    }


def hidden_states(arguments: Mapping[str, Any], sequences: Sequence[Sequence[int]], file: str) -> None:
    """Write, of each sequence, what the target hands to the head and what its final norm returns."""
    llm = _started(arguments)
    model, found = _runner(llm).model, {}
    forward = model.forward
    for index, tokens in enumerate(sequences):
        seen: list[Any] = []
        model.forward = lambda *inputs, seen=seen, **options: seen.append(forward(*inputs, **options)) or seen[-1]
        llm.generate([TokensPrompt(prompt_token_ids=list(tokens))], SamplingParams(max_tokens=1, temperature=0))
        normed, auxiliary = seen[0]
        found[f"normed.{index}"] = normed[: len(tokens)].contiguous()
        found[f"auxiliary.{index}"] = torch.cat([layer[: len(tokens)] for layer in auxiliary], dim=-1)
    save_file(found, file)


def parse(command_line: Sequence[str]) -> dict[str, Any]:
    """What the server makes of its arguments before it loads the model."""
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(command_line)
    validate_parsed_serve_args(args)
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    speculative = config.speculative_config
    return {
        "method": speculative.method,
        "drafter": speculative.model,
        "num_speculative_tokens": speculative.num_speculative_tokens,
        "parallel_drafting": speculative.parallel_drafting,
        "kv_cache_memory_bytes": config.cache_config.kv_cache_memory_bytes,
        "enforce_eager": config.model_config.enforce_eager,
        "metrics": config.observability_config.per_request_spec_decode_metrics,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "model": config.model_config.model,
        "served_model_name": args.served_model_name,
        "lora_modules": [module.path for module in args.lora_modules],
        "allowed_origins": args.allowed_origins,
        "chat_template": args.chat_template,
        "port": args.port,
        "host": args.host,
    }


def parse_names(command_lines: Sequence[Sequence[str]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The named arguments of each command line, as vLLM's parser reads them."""
    parser = make_arg_parser(FlexibleArgumentParser())
    parsed = [parser.parse_args(arguments) for arguments in command_lines]
    return [{name: getattr(found, name) for name in names} for found in parsed]


def platform() -> list[Any]:
    """The platform that vLLM chooses here, whether it is a CPU's, how its engine would be started, where the worker
    runs, and what compiles small functions and whole models."""
    platforms._current_platform = None
    found = platforms.current_platform
    config = VllmConfig(cache_config=CacheConfig(kv_cache_memory_bytes=2**20))
    found.check_and_update_config(config)
    executor = config.parallel_config.distributed_executor_backend
    compilers = found.simple_compile_backend, found.get_compile_backend()
    return [type(found).__name__, found.is_cpu(), os.environ["VLLM_WORKER_MULTIPROC_METHOD"], executor, *compilers]


def speculation(cases: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Method, K and draft slots that vLLM reads in each `speculative_config` for its `target`."""
    for name in ("MiMoForCausalLM", "MiMoMTPModel", "EagleLlamaForCausalLM", "Qwen3DSparkModel"):
        ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
    return [_speculation(case["target"], case["speculative_config"]) for case in cases]


def config_hash(arguments: Mapping[str, Any]) -> str:
    """By which vLLM looks up what it has compiled for that configuration."""
    return AsyncEngineArgs(**arguments).create_engine_config().compute_hash()


def dspark_head(target: str, drafter: str, tokens: Sequence[int], hidden: Sequence[Any]) -> dict[str, Any]:
    """How vLLM reads a DSpark head, and what its heads make of tokens and hidden states.

    Its V2 model runner, which alone drafts with it, needs a GPU; its model does not.
    """
    name, model = "Qwen3DSparkModel", ModelConfig(target, skip_tokenizer_init=True, dtype="float32")
    ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
    speculative = SpeculativeConfig(
        method="dspark", model=drafter, target_model_config=model, target_parallel_config=ParallelConfig()
    )
    config, drafting = VllmConfig(model_config=model), speculative.draft_model_config
    config.speculative_config = speculative
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{drafter}/meeting", 0, "gloo")
        initialize_model_parallel(1, 1)
        head: Any = initialize_model(config, model_config=drafting)
        head.load_weights(load_file(Path(drafter) / "model.safetensors").items())
        process_weights_after_loading(head, drafting, torch.device("cpu"))
    with torch.no_grad():
        embedded = head.markov_embed(torch.tensor(tokens))
        return {
            "block": speculative.num_speculative_tokens,
            "layers": list(get_eagle3_aux_layers_from_config(speculative) or ()),
            "mask_token": get_parallel_drafting_token_id(drafting.hf_config),
            "causal": head.get_draft_attn_causal(),
            "bias": head.markov_bias(embedded).tolist(),
            "confidence": head.compute_confidence(torch.tensor(hidden), embedded).tolist(),
        }


def draft_lines(ks: Sequence[int]) -> list[str]:
    """What vLLM logs of 0, 1 and K accepted tokens, for each K."""
    return [_draft_line(k) for k in ks]


def trainers_answers(target: str, questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """What a training job gets from its own vLLM, an engine with processes of its own."""
    chat = load_chat(target)
    job = TrainingJob(
        name="x", method="p-eagle", target=target, target_name=target, data=(), max_length=1024, dtype="float32"
    )
    answering = TRAINING.answering(job, chat)
    assert answering
    with answering as generate:
        return [answer and asdict(answer) for answer in generate([Question(**question) for question in questions])]


def trainers_states(target: str, work: str, sequences: Sequence[Sequence[int]], layers: Sequence[int]) -> list[str]:
    """Write the states that a training job gets from its own vLLM; what it refuses, of this and of a changed target."""
    job = TrainingJob(
        name="x", method="p-eagle", target=target, target_name=target, data=(), max_length=max(map(len, sequences)),
        dtype="float32", work=work,
    )  # fmt: skip
    assert TRAINING.no_states(job) == ""
    refused = []
    with TRAINING.states(job, tuple(layers)) as source:
        source.require_exact(sequences)
        found = source.states([torch.tensor(one) for one in sequences])
        scale_final_norm(Path(target))
        try:
            source.require_exact(sequences)
        except UsageError as error:
            refused.append(error.message)
    save_file(vars(found), Path(work, "states"))
    return [*refused, *(str(path) for path in Path(work).iterdir() if path.name != "states")]


def why_no_states(targets: Sequence[str], version: str) -> list[str]:
    """What a training job says of this vLLM, as if it had that version, for each target."""
    vllm.__version__ = version
    jobs = [TrainingJob(name="x", method="p-eagle", target=one, target_name=one, data=()) for one in targets]
    return [TRAINING.no_states(job) for job in jobs]


def scale_final_norm(target: Path) -> None:
    """Have the files say something else than the vLLM that has read them."""
    path = target / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1.2
    save_file(tensors, path, {"format": "pt"})


JOBS: Mapping[str, Callable[..., Any]] = {
    job.__name__: job
    for job in (
        sizes,
        growth,
        answer,
        answers,
        drafts,
        hidden_states,
        parse,
        parse_names,
        catalogue,
        judged,
        trainers_states,
        why_no_states,
        platform,
        speculation,
        config_hash,
        dspark_head,
        draft_lines,
        trainers_answers,
    )
}


def _speculation(target: str, written: Mapping[str, Any]) -> list[Any]:
    model = ModelConfig(target, skip_tokenizer_init=True, dtype="float32")
    config = SpeculativeConfig(**written, target_model_config=model, target_parallel_config=ParallelConfig())
    return [config.method, config.num_speculative_tokens, config.max_num_new_slots_for_drafting]


def _draft_line(k: int) -> str:
    log, stats = SpecDecodingLogging(), SpecDecodingStats.new(k)
    for accepted in (0, 1, k):
        stats.observe_draft(k, accepted)
    log.observe(stats)
    lines: list[str] = []
    log.log(lambda text, *values: lines.append(text % values))
    (line,) = lines
    return line


def _started(arguments: Mapping[str, Any]) -> LLM:
    _running.append(LLM(**arguments))
    return _running[-1]


def _growth(arguments: Mapping[str, Any]) -> dict[str, Any]:
    before = _resident()
    llm = LLM(**arguments)
    caches = _runner(llm).kv_caches
    tensors = {cache.untyped_storage().data_ptr(): cache.untyped_storage().nbytes() for cache in caches}
    found = {
        "grown": _resident() - before,
        "kv_cache": sum(tensors.values()),
        "packs": arguments["dtype"] == "float32" or torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    }
    del caches
    _shut_down(llm)
    return found


def _runner(llm: LLM) -> Any:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def _weights(model: Any) -> int:
    return sum({p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}.values())


def _shut_down(llm: LLM) -> None:
    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()
    gc.collect()
    gc.freeze()


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def _run(job: Mapping[str, Any]) -> None:
    """Do a job and write what it gives, or the traceback of its error, to the job's file."""
    os.environ.update(job["environment"])
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        result = {"result": JOBS[job["name"]](**job["arguments"])}
    except (Exception, SystemExit):  # noqa: BLE001 - whatever vLLM raises is what the test asks for
        result = {"error": traceback.format_exc()}
    Path(job["out"]).write_text(json.dumps(result))


def main() -> None:
    """Run each job that comes in as a line; answer with the exit status of its process."""
    for name, (module, cls) in MODELS.items():
        ModelRegistry.register_model(
            name, getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), cls)
        )
    for module in LOADED_AHEAD:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is here stays, and no collection in a child has to look at it
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                _run(json.loads(line))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
