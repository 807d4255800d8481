"""What an exception that no entry knows is about, by the module that raised it and by what its sentence names."""

from __future__ import annotations

import pytest

import toolkit
from toolkit.apply.causes import words

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
        (["vllm/distributed/kv_transfer/kv_connector/factory"], "kv-transfer"),
        (["vllm/multimodal/processing"], "multimodal"),
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
    }
    tried |= {"tokenizer", "model-config", "broken-weights", "torch-compile", "kernel-build", "scheduler", "settings"}
    tried |= {"neuron-compile", "neuron-collectives", "neuron-execution"}
    assert {subject.code for subject in words().subjects} == tried


def test_every_line_may_have_the_prefix_of_a_log() -> None:
    log = traceback("LookupError: nobody ever wrote this", "vllm/v1/spec_decode/eagle")
    lines = [f"(EngineCore pid=7) ERROR 11-27 10:00:00 [core.py:7] {line}" for line in log.splitlines()]
    assert toolkit.explain(lines).cause == "speculation"


def test_a_module_of_an_earlier_error_does_not_count() -> None:
    earlier = traceback("KeyError: 'a'", "somebody/else")
    frames = FRAME.format(module="vllm/lora/utils")
    assert toolkit.explain(f"Traceback (most recent call last):\n{frames}{earlier}").cause is None
    assert toolkit.explain(f"{frames}INFO something else\nKeyError: 'a'").cause is None


def test_where_nothing_starts_up_a_module_tells_nothing() -> None:
    error = traceback("LookupError: nobody ever wrote this", "vllm/lora/utils")
    assert toolkit.explain(f"INFO: Application startup complete.\n{error}").cause is None


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
    ],
)  # fmt: skip
def test_a_documented_code_is_told_with_its_meaning(said: str, cause: str | None, meaning: str) -> None:
    found = toolkit.explain(said)
    assert found.cause == cause
    assert meaning in found.hint
