"""What an exception that no entry knows is about, by the module that raised it and by what its sentence names."""

from __future__ import annotations

import pytest

import toolkit
from toolkit.apply.causes import words
from toolkit.apply.diagnose import diagnose

FRAME = '  File "/usr/local/lib/python3.12/dist-packages/{module}.py", line 7, in somewhere\n    something()\n'


def traceback(error: str, *modules: str) -> str:
    frames = "".join(FRAME.format(module=module) for module in modules)
    return f"Traceback (most recent call last):\n{frames}{error}\n"


@pytest.mark.parametrize(
    ("modules", "cause"),
    [
        (["vllm/v1/engine/core", "vllm/lora/worker_manager"], "lora"),
        (["vllm/model_executor/layers/fused_moe/layer"], "quantization"),
        (["vllm/v1/attention/backends/flash_attn", "torch/nn/modules/module"], "attention-backend"),
        (["vllm/v1/spec_decode/eagle", "torch/_ops"], "speculation"),
        (["vllm/distributed/parallel_state"], "parallel"),
        (["vllm/distributed/device_communicators/pynccl_wrapper"], "nccl"),
        (["vllm/v1/kv_cache_interface"], "kv-groups"),
        (["vllm/model_executor/model_loader/default_loader"], "tensors"),
        (["flashinfer/fused_moe/core"], "quantization"),
        (["flashinfer/prefill"], "attention-backend"),
        (["transformers/models/pixtral/processing_pixtral"], "multimodal"),
        (["vllm/distributed/kv_transfer/kv_connector/factory"], "kv-transfer"),
        (["vllm/multimodal/processing"], "multimodal"),
        (["vllm/renderers/mistral"], "chat-template"),
        (["transformers/tokenization_utils_base"], "tokenizer"),
        (["transformers/configuration_utils"], "model-config"),
        (["safetensors/torch"], "broken-weights"),
        (["torch/_inductor/compile_fx"], "torch-compile"),
        (["torch/utils/cpp_extension"], "kernel-build"),
        (["vllm/v1/core/sched/scheduler"], "scheduler"),
        (["vllm/engine/arg_utils"], "settings"),
        (["neuronxcc/driver/CommandDriver"], "neuron-compile"),
        (["vllm/lora/worker_manager", "vllm/v1/engine/core"], None),
        (["somebody/vllm_lora"], None),
    ],
)
def test_the_deepest_module_tells_what_an_error_is_about(modules: list[str], cause: str | None) -> None:
    assert toolkit.explain(traceback("LookupError: nobody ever wrote this", *modules)).cause == cause


def test_every_subject_has_its_module_here() -> None:
    tried = {
        "lora",
        "quantization",
        "attention-backend",
        "speculation",
        "parallel",
        "nccl",
        "kv-transfer",
        "multimodal",
        "chat-template",
    }
    tried |= {"tokenizer", "model-config", "broken-weights", "torch-compile", "kernel-build", "scheduler", "settings"}
    tried |= {"neuron-compile", "neuron-collectives", "neuron-execution", "kv-groups", "tensors"}
    assert {subject.code for subject in words().subjects} == tried


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        (["vllm/v1/spec_decode/eagle:propose", "vllm/model_executor/models/llama_eagle3:forward"], "speculation"),
        (["vllm/model_executor/models/qwen3:load_weights", "vllm/model_executor/layers/linear:narrow"], "tensors"),
        (["vllm/model_executor/models/qwen3:load_weights", "torch/a:b"], "tensors"),
        (["vllm/model_executor/models/qwen3:load_weights", "huggingface_hub/utils/_http:get_session"], None),
        (["vllm/model_executor/models/qwen3:load_weights", "fastsafetensors/loader:a"], None),
        (["vllm/tokenizers/registry:get_tokenizer", "httpx/_client:send"], None),
        (["vllm/model_executor/models/qwen3:forward", "vllm/model_executor/layers/linear:narrow"], None),
        (["vllm/v1/core/kv_cache_utils:unify_kv_cache_spec_page_size", "vllm/else:a"], "kv-groups"),
        (["vllm/v1/core/kv_cache_utils:check_enough_memory", "vllm/else:a"], None),
        (["vllm/model_executor/layers/a:process_weights_after_loading", "torch/else:a"], "quantization"),
        (["vllm/tokenizers/registry:get_tokenizer", "transformers/else:a"], "tokenizer"),
        (["vllm/v1/spec_decode/eagle:propose", "vllm/lora/layers/base:forward"], "lora"),
    ],
)
def test_what_a_part_was_doing_tells_where_the_deepest_module_does_not(frames: list[str], cause: str | None) -> None:
    places = (frame.split(":") for frame in frames)
    shown = "".join(f'  File "/site-packages/{module}.py", line 7, in {name}\n    a()\n' for module, name in places)
    assert toolkit.explain(f"Traceback (most recent call last):\n{shown}LookupError: a").cause == cause


def test_every_line_may_have_the_prefix_of_a_log() -> None:
    log = traceback("LookupError: nobody ever wrote this", "vllm/v1/spec_decode/eagle")
    lines = [f"(EngineCore pid=7) ERROR 11-27 10:00:00 [core.py:7] {line}" for line in log.splitlines()]
    assert toolkit.explain(lines).cause == "speculation"


def test_a_module_of_an_earlier_error_does_not_count() -> None:
    earlier = traceback("KeyError: 'a'", "somebody/else")
    frames = FRAME.format(module="vllm/lora/utils")
    assert toolkit.explain(f"Traceback (most recent call last):\n{frames}{earlier}").cause is None
    assert toolkit.explain(f"{frames}INFO something else\nKeyError: 'a'").cause is None


HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("error", "module", "code"),
    [
        ("LookupError: nobody ever wrote this", "vllm/lora/utils", "lora"),
        ("TypeError: a() got an unexpected keyword argument 'b'", "somebody/else", "binary-mismatch"),
    ],
)
def test_what_is_told_by_its_form_is_never_certain_to_end_a_start(error: str, module: str, code: str) -> None:
    log = ["non-default args: {}", *traceback(error, module).splitlines()]
    cause = diagnose([*log, *log, *log])
    assert cause
    assert (cause.code, cause.fatal) == (code, False)


LORA, ELSE = traceback("LookupError: a", "vllm/lora/utils"), traceback("LookupError: b", "somebody/else")
DRAFTS = traceback("LookupError: c", "vllm/v1/spec_decode/eagle")
ECHO = traceback("RuntimeError: Engine core initialization failed. See root cause above.", "vllm/v1/engine/core")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ([LORA, DRAFTS], "speculation"),
        ([LORA, ELSE], None),
        ([LORA, traceback("httpx.ReadTimeout: nobody answers", "somebody/else")], None),
        ([LORA, traceback("_queue.Empty", "somebody/else")], None),
        ([LORA, traceback("SystemExit: 1", "somebody/else")], None),
        ([LORA, traceback("1", "somebody/else"), HANDLING, ELSE], None),
        ([LORA, HANDLING, ELSE], "lora"),
        ([LORA, CAUSED, ELSE], "lora"),
        ([LORA, HANDLING, ELSE, CAUSED, ELSE], "lora"),
        ([LORA, HANDLING, DRAFTS], "speculation"),
        ([LORA, ELSE, HANDLING, ELSE], None),
        ([LORA, ECHO], "lora"),
        ([LORA, HANDLING, ECHO], "lora"),
        ([LORA, HANDLING, ECHO, ELSE], None),
        ([traceback("ValidationError: 1 for C\n  Value error, of b", "vllm/lora/utils")], "lora"),
        ([LORA, traceback("ValidationError: 1 for C\n  Value error, of b", "somebody/else")], None),
    ],
)
def test_the_last_error_of_a_start_tells_and_what_led_to_it(log: list[str], cause: str | None) -> None:
    assert toolkit.explain("".join(log)).cause == cause


@pytest.mark.parametrize(
    ("error", "module"),
    [
        ("RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.7]:33711", "vllm/distributed/parallel_state"),
        ("RuntimeError: [pair.cc:534] Read error: Connection reset by peer", "vllm/distributed/parallel_state"),
        ("torch.distributed.DistNetworkError: failed to recv", "vllm/distributed/parallel_state"),
        ("asyncio.exceptions.CancelledError", "vllm/lora/utils"),
        ("OSError: [Errno 5] Input/output error", "safetensors/torch"),
        ("OSError: [Errno 116] Stale file handle: '/mnt/a'", "safetensors/torch"),
        ("PermissionError: [Errno 13] Permission denied: '/mnt/a'", "safetensors/torch"),
        ("httpx.RemoteProtocolError: Server disconnected without a response.", "transformers/tokenization_utils_base"),
        ("SystemExit", "vllm/lora/utils"),
        ("httpx.ReadTimeout: The read operation timed out", "transformers/tokenization_utils_base"),
        ("TimeoutError: nobody came", "vllm/distributed/parallel_state"),
    ],
)
def test_what_happened_outside_is_not_about_the_module_that_met_it(error: str, module: str) -> None:
    assert toolkit.explain(traceback(error, module)).cause is None


@pytest.mark.parametrize("killed", ["Killed", "/entry.sh: line 7:    42 Killed                  vllm serve"])
@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: subprocess died",
        "InductorError: RuntimeError: b",
        "concurrent.futures.process.BrokenProcessPool: A process was terminated",
    ],
)
def test_an_exception_that_a_kill_follows_came_of_it(error: str, killed: str) -> None:
    log = traceback(error, "torch/_inductor/compile_worker/subproc_pool")
    assert toolkit.explain(f"{log}{killed}").cause == "killed"


@pytest.mark.parametrize(("before", "cause"), [("a request", None), ("EngineCore encountered a fatal error.", "lora")])
def test_a_module_tells_of_a_server_that_answers_only_where_it_dies(before: str, cause: str | None) -> None:
    error = traceback("LookupError: nobody ever wrote this", "vllm/lora/utils")
    assert toolkit.explain(f"INFO: Application startup complete.\n{before}\n{error}").cause == cause
    assert toolkit.explain(f"INFO: Application startup complete.\n{error}\n{before}").cause is None


@pytest.mark.parametrize("process", ["(EngineCore pid=7) ", ""])
def test_of_what_is_raised_after_an_engine_s_death_only_its_own_error_tells(process: str) -> None:
    said = f"EngineCore encountered a fatal error.\n{ELSE}"
    dies = [f"{process}ERROR 11-27 10:00:00 [core.py:7] {line}" for line in said.splitlines()]
    request = [f"ERROR 11-27 10:00:00 [serving.py:7] {line}" for line in LORA.splitlines()]
    assert toolkit.explain(["INFO: Application startup complete.", *dies, *request]).cause is None
    own = [line.replace("somebody/else", "vllm/v1/spec_decode/eagle") for line in dies]
    assert toolkit.explain(["INFO: Application startup complete.", *own, *request]).cause == "speculation"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: nobody could not construct fused moe op with the\nrequested numbers", "quantization"),
        ("ValueError: Unsupported nobody of LoRA", "lora"),
        ("ValueError: there is a LoRA", None),
        ("ValueError: Command '['vllm', 'serve', '--max-lora-rank', '7']' is not supported", None),
        ("ValueError: /models/a-tensor-parallel/Tensor Parallel/is not supported", None),
        ("AttributeError: 'list' object has no attribute 'max_model_len'", None),
    ],
)
def test_a_sentence_that_refuses_names_its_subject(line: str, cause: str | None) -> None:
    assert toolkit.explain(line).cause == cause


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("/opt/amazon/neuroncc/starfish/spill.cpp:352: void", "neuron-compile"),
        ("/opt/workspace/KaenaRuntime/tdrv/encd.c:4147:", "neuron-collectives"),
        ("/opt/workspace/KaenaRuntime/tdrv/init.c:17:", "neuron-execution"),
        ("/src/somebody/else.c:17:", None),
    ],
)
def test_an_assertion_in_c_is_told_by_its_file(file: str, cause: str | None) -> None:
    assert toolkit.explain(f"program: {file} check: Assertion `0' failed.").cause == cause


def test_of_an_unknown_error_its_module_and_the_keys_that_it_names_are_told() -> None:
    found = toolkit.explain(traceback("KeyError: 'max_num_seqs of block_size'", "somebody/else"))
    assert found.cause is None
    assert "raised in somebody/else." in found.hint
    assert "names engine.max_num_seqs, `block-size` in engine.args:" in found.hint


STARTED = "INFO 10-12 09:14:02 [core.py:1] Initializing a V1 LLM engine (v0.11.2) with config: model='a'\n"


@pytest.mark.parametrize(
    ("error", "module", "is_fault"),
    [
        ("IndexError: list index out of range", "vllm/v1/worker/gpu_model_runner", True),
        ("AssertionError", "vllm/v1/worker/gpu/attn_utils", True),
        ("RuntimeError: nobody ever wrote this", "vllm/v1/worker/gpu_model_runner", False),
        ("IndexError: list index out of range", "somebody/else", False),
    ],
)
def test_an_unknown_error_of_a_program_that_is_wrong_itself_is_called_so(
    error: str, module: str, is_fault: bool
) -> None:
    found = toolkit.explain(STARTED + traceback(error, module))
    assert found.cause is None
    assert f"raised in {module}." in found.hint
    assert ("a fault within the engine (0.11.2)" in found.hint) == is_fault


def test_the_module_of_an_exception_with_a_dotted_name_is_told() -> None:
    assert "raised in somebody/else." in toolkit.explain(traceback("a.b.LookupError: c", "somebody/else")).hint


@pytest.mark.parametrize(
    ("function", "cause"), [("forward", "speculation"), ("load_weights", "tensors"), ("weight_loader", "tensors")]
)
@pytest.mark.parametrize("model", ["llama_eagle3", "qwen3_dflash", "deepseek_mtp"])
def test_what_the_model_of_a_drafter_raises_is_about_drafting(model: str, function: str, cause: str) -> None:
    module = f"vllm/model_executor/models/{model}"
    log = traceback("RuntimeError: nobody ever wrote this", module).replace("somewhere", function)
    assert toolkit.explain(log).cause == cause


@pytest.mark.parametrize(
    ("said", "cause", "meaning"),
    [
        ("An error occurred (ResourceInUse) when calling the DeleteModel operation: a", "in-progress", "is in use."),
        ("api error ObjectNotFoundException: a", "aws-missing", "The specified object could not be found."),
        ("An error occurred (SomeNewThrottlingException) when calling the A operation: b", "throttling", ""),
        ("An error occurred (ModelError) when calling the InvokeEndpoint operation: a", None, ""),
        ("RuntimeError: nrt_load status=9 message", "neuron-cores", "not enough NeuronCores"),
        ("ERROR NRT:nrt_infodump Failure: NRT_EXEC_BAD_INPUT in nrt_execute()", "neuron-graph", "invalid input"),
        ("[ERROR] [NCC_EOOM001] nobody ever wrote this", "neuron-memory", "the cores' memory"),
        ("[ERROR] [NCC_EUOC002] nobody ever wrote this", "neuron-compile", "an operator that is not supported"),
        ("INFO NRT_RESOURCE", None, ""),
        ("ERROR: [NCC_EVRF009] Size of total input and output tensors exceeds HBM limit\n"
         "ERROR ||NEURON_CC_WRAPPER||: Failed compilation with ['neuronx-cc', 'compile']", "neuron-memory", "memory"),
        ("ERROR: [NCC_EUOC002] nobody ever wrote this\n"
         "ERROR ||NEURON_CC_WRAPPER||: Failed compilation with ['neuronx-cc', 'compile']",
         "neuron-compile", "an operator that is not supported"),
        ("2026-Nov-21 04:41:41.247541 1:1 ERROR NRT:nrt_exec completed with err: 1002", "neuron-graph", "input"),
        ("2026-Nov-21 04:41:41.247541 1:1  INFO NRT:nrt_exec completed with err: 1002", None, ""),
        ("cupy.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected", "no-gpu", ""),
        ("cudaErrorNoDevice ignored on this CPU build", None, ""),
        ("UserWarning: cuInit: CUDA_ERROR_NO_DEVICE", None, ""),
    ],
)  # fmt: skip
def test_a_documented_code_is_told_with_its_meaning(said: str, cause: str | None, meaning: str) -> None:
    found = toolkit.explain(said)
    assert found.cause == cause
    assert meaning in found.hint


MODEL = "vllm/model_executor/models/llama"
FAILED_IN = (
    'Traceback (most recent call last):\n  File "/a/site-packages/{module}.py", line 7, in __init__\n    {source}\n'
)


@pytest.mark.parametrize(
    ("source", "error", "cause"),
    [
        ("assert self.total_num_heads % tp_size == 0", "AssertionError", "tensor-parallel"),
        ("assert tp_size % self.total_num_kv_heads == 0", "AssertionError", "tensor-parallel"),
        ("assert vllm_config.speculative_config is not None", "AssertionError", "speculation"),
        ("assert pooler_config is not None", "AssertionError", "settings"),
        ("assert supports_pp(language_model)", "AssertionError", "parallel"),
        ("assert not is_lora_enabled", "AssertionError", "lora"),
        ("raise ValueError(", "ValueError: Unsupported activation: a. Only b is", "model-config"),
    ],
)
def test_a_model_s_own_code_tells_what_it_wants_of_its_settings(source: str, error: str, cause: str) -> None:
    assert toolkit.explain(FAILED_IN.format(module=MODEL, source=source) + error).cause == cause


@pytest.mark.parametrize(
    ("module", "source", "cause"),
    [
        ("vllm/lora/layers/fused_moe", "assert current_lora_rank % self.tp_size == 0", "lora"),
        ("vllm/v1/engine/utils", "assert world_size % max_device_per_node == 0, (", None),
        ("vllm/v1/executor/multiproc_executor", "assert self.world_size % self.parallel_config.nnodes == 0, (", None),
        ("vllm/model_executor/layers/fused_moe/config", "assert self.intermediate_size % tp_size == 0",
         "tensor-parallel"),
        ("vllm/models/deepseek_v4/amd/model", "assert config.n_routed_experts % self.tp_size == 0", "tensor-parallel"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_out_is_told_of_heads_only_where_it_is_heads(
    module: str, source: str, cause: str | None
) -> None:
    log = FAILED_IN.format(module=module, source=source) + "AssertionError"
    assert toolkit.explain(log).cause == cause
    assert "heads" not in toolkit.explain(log).hint
    assert not ((ends := diagnose(log.splitlines())) and ends.fatal)


def test_a_server_that_answers_is_not_ended_by_what_cannot_be_shared_out() -> None:
    log = FAILED_IN.format(module=MODEL, source="assert self.total_num_heads % tp_size == 0") + "AssertionError"
    assert (cause := diagnose(log.splitlines()))
    assert cause.fatal
    assert diagnose(["INFO:     Application startup complete.", *log.splitlines()]) is None


@pytest.mark.parametrize(
    ("module", "error", "cause"),
    [
        ("torch/nn/parameter", "RuntimeError: CUDA error: invalid argument", None),
        ("torch/cuda/__init__", "DeferredCudaCallError: CUDA call failed lazily at initialization with error: a", None),
        ("torch/nn/modules/conv", "RuntimeError: cuDNN Frontend error: No execution plans support the graph.", None),
        ("torch/nn/modules/linear", "RuntimeError: Could not run 'aten::empty.memory_format'", None),
        (MODEL, "RuntimeError: Could not run 'aten::empty.memory_format'", None),
        ("vllm/model_executor/layers/linear",
         "ValueError: Weight output_partition_size = 100 is not divisible by min_thread_n = 64", None),
        ("vllm/utils/torch_utils", "ValueError: Pinned memory is not available", None),
        (MODEL, "TypeError: Linear.__init__() got an unexpected keyword argument 'a'", "binary-mismatch"),
        ("torch/nn/modules/linear", "TypeError: Linear.__init__() got an unexpected keyword argument 'a'",
         "binary-mismatch"),
        ("transformers/modeling_utils", "TypeError: _init_weights() got an unexpected keyword argument 'a'",
         "binary-mismatch"),
    ],
)  # fmt: skip
def test_a_model_s_code_is_not_to_blame_for_what_is_raised_below_it(module: str, error: str, cause: str | None) -> None:
    below = FRAME.format(module=module).replace("somewhere", "__init__")
    log = FAILED_IN.format(module=MODEL, source="self.linear = Linear()") + below + error
    assert toolkit.explain(log).cause == cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("The size of tensor a (4) must match the size of tensor b (2)", "tensors"),
        ("CUDA error: invalid argument", None),
        ("cuDNN Frontend error: No execution plans support the graph.", None),
        ("CUDA call failed lazily at initialization with error: a", None),
    ],
)
def test_what_a_driver_says_while_weights_are_loaded_is_not_about_them(error: str, cause: str | None) -> None:
    frames = FRAME.format(module=MODEL).replace("somewhere", "load_weights") + FRAME.format(module="torch/nn/parameter")
    assert toolkit.explain(f"Traceback (most recent call last):\n{frames}RuntimeError: {error}").cause == cause


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        ("transformers/models/auto/tokenization_auto", "tokenizer"),
        ("transformers/configuration_utils", "model-config"),
        ("somebody/else", None),
        ("vllm/usage/usage_lib", None),
        ("requests/models", None),
    ],
)
def test_a_broken_file_is_about_what_reads_it(module: str, cause: str | None) -> None:
    reader = '  File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError(\n'
    error = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    log = FAILED_IN.format(module="vllm/entrypoints/cli/main", source="a()") + FRAME.format(module=module)
    assert toolkit.explain(log + reader + error).cause == cause


def test_what_a_hub_or_a_proxy_answers_is_no_broken_file() -> None:
    modules = ("transformers/configuration_utils", "huggingface_hub/hf_api", "requests/models")
    error = "requests.exceptions.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert toolkit.explain(traceback(error, *modules)).cause is None
