"""Names that vLLM looks up in its own tables: parsers, kernels of experts, flags whose numbers may have a suffix."""

from __future__ import annotations

from pathlib import Path

import pytest
from flag_recipe import RECIPE
from pairs import write_hub_pair

from toolkit import check
from toolkit.engines.vllm.facts import ParsedFlag, names, parsed_flag
from toolkit.findings import Finding
from tools.catalogue.names import read_names


def findings(folder: Path, args: str, version: str = "0.30.0", **config: object) -> list[Finding]:
    text = RECIPE.format(version=version, args=args)
    report = check(write_hub_pair(folder, text, target={"config": config}))
    return [item for item in report.findings if item.severity == "error"]


@pytest.mark.parametrize(
    ("args", "version", "message"),
    [
        ("{reasoning-parser: qwen3}", "0.30.0", ""),
        ("{reasoning-parser: qwen_3}", "0.30.0", "has the value 'qwen_3', which vLLM 0.30.0 does not have"),
        ("{reasoning-parser: kimi_k3}", "0.26.0", "which vLLM 0.26.0 does not have"),
        ("{reasoning-parser: kimi_k3}", "0.27.0", ""),
        ("{tool-call-parser: hermez, enable-auto-tool-choice: true}", "0.30.0", "has the value 'hermez'"),
        ("{tool-call-parser: nonsense}", "0.30.0", ""),  # vLLM does not look it up
        ("{config-format: auto}", "0.30.0", ""),
        ("{config-format: 4096}", "0.30.0", "has the value 4096, which vLLM 0.30.0 does not have"),
    ],
)
def test_a_parser_is_one_that_the_version_has(tmp_path: Path, args: str, version: str, message: str) -> None:
    found = findings(tmp_path, args, version)
    assert [item.code for item in found] == (["engine.flag-value"] if message else [])
    assert message in "".join(item.message for item in found)
    assert "Did you mean hermes?" in found[0].hint if "hermez" in args else True


def test_a_plugin_brings_parsers_of_any_name(tmp_path: Path) -> None:
    args = "{tool-call-parser: mine, enable-auto-tool-choice: true, tool-parser-plugin: /opt/ml/model/mine.py}"
    assert "engine.flag-value" not in [item.code for item in findings(tmp_path, args)]


SEES = {"architectures": ["Qwen3VLForConditionalGeneration"]}


@pytest.mark.parametrize(
    ("args", "config", "told"),
    [
        ("{video-pruning-rate: 1.5}", {}, ["engine.text-only"]),
        ("{limit-mm-per-prompt: {image: 1}}", {}, ["engine.text-only"]),
        ("{video-pruning-rate: much}", {}, ["engine.flag-value", "engine.text-only"]),
        ("{video-pruning-rate: 1.5}", SEES, ["engine.flag-value"]),
        ("{video-pruning-rate: 0.5, limit-mm-per-prompt: {image: 1}}", SEES, []),
        ("{video-pruning-rate: much}", SEES, ["engine.flag-value"]),
        ("{video-pruning-rate: 0.5}", {"architectures": ["HunYuanVLForConditionalGeneration"]}, []),
        ("{video-pruning-rate: 0.5}", {"architectures": ["UnlistedForCausalLM"]}, []),
    ],
)
def test_flags_for_images_have_no_effect_on_a_target_of_text_and_bounds_on_others(
    tmp_path: Path, args: str, config: dict[str, object], told: list[str]
) -> None:
    text = RECIPE.format(version="0.31.0", args=args)
    report = check(write_hub_pair(tmp_path, text, target={"config": config}))
    codes = [item.code for item in report.findings if item.path.startswith("engine.args.")]
    assert sorted(codes) == told


@pytest.mark.parametrize(
    ("args", "version", "told"),
    [
        ("{uvicorn-log-level: loud}", "0.16.0", True),
        ("{uvicorn-log-level: trace}", "0.16.0", False),
        ("{media-io-kwargs: 1k}", "0.24.0", True),
        ("{api-server-count: many}", "0.29.0", True),
        ("{cudagraph-capture-sizes: [1, many]}", "0.31.0", True),
        ("{cudagraph-capture-sizes: [1, 2]}", "0.31.0", False),
        ("{cudagraph-capture-sizes: '16', kv-cache-dtype-skip-layers: '0'}", "0.31.0", False),
        ("{max-num-partial-prefills: '1', max-long-partial-prefills: '1'}", "0.24.0", False),
        ("{collect-detailed-traces: 1.5}", "0.31.0", True),
        ("{collect-detailed-traces: None}", "0.30.0", True),
        ("{collect-detailed-traces: 'model,worker'}", "0.30.0", True),
        ("{collect-detailed-traces: model}", "0.30.0", False),
        ("{prefix-cache-retention-interval: -1}", "0.29.0", True),
        ("{prefix-cache-retention-interval: None}", "0.29.0", False),
        ("{device: cpu}", "0.29.0", True),  # short for device-ids
        ("{device: 0}", "0.29.0", False),
        ("{collect-detailed-traces: [model, nonsense]}", "0.31.0", True),
        ("{collect-detailed-traces: [model, worker]}", "0.31.0", False),
    ],
)
def test_a_text_is_one_that_the_parser_of_the_version_takes(
    tmp_path: Path, args: str, version: str, told: bool
) -> None:
    assert ("engine.flag-value" in [item.code for item in findings(tmp_path, args, version)]) is told


def test_devices_of_the_platform_that_was_asked_are_no_choices() -> None:
    """A parser on a CPU names no `cuda`."""
    assert all(parsed_flag("mm-processor-device", version) == ParsedFlag() for version in ("0.31.0", "0.32.0"))


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
FP8 = {"quantization_config": {"quant_method": "fp8"}}


@pytest.mark.parametrize(
    ("args", "config", "code"),
    [
        ("{enable-expert-parallel: true}", {}, "engine.experts"),
        ("{enable-expert-parallel: true}", EXPERTS, ""),
        ("{enable-expert-parallel: false}", {}, ""),
        ("{default-mm-loras: {image: x}}", {"architectures": ["LlamaForCausalLM"]}, "engine.flag-value"),
        ("{default-mm-loras: {image: x}}", {"architectures": ["Qwen3VLForConditionalGeneration"]}, ""),
        ("{use-replayssm: true}", {"architectures": ["LlamaForCausalLM"]}, "engine.combination"),
        ("{use-replayssm: true}", {"architectures": ["NemotronHForCausalLM"]}, ""),
        ("{use-replayssm: true}", {"architectures": ["UnlistedForCausalLM"]}, ""),
        ("{moe-backend: flashinfer_cutedsl}", {**EXPERTS, **FP8}, "engine.experts"),
        ("{moe-backend: marlin}", {**EXPERTS, **FP8}, ""),
        ("{moe-backend: marlin}", EXPERTS, "engine.experts"),
        ("{moe-backend: auto}", {**EXPERTS, **FP8}, ""),
        ("{moe-backend: flashinfer_cutedsl}", {**EXPERTS, **FP8, "expert_dtype": "fp4"}, ""),
        ("{moe-backend: flashinfer_cutedsl}", FP8, ""),
        ("{enable-mamba-cache-stochastic-rounding: true, mamba-ssm-cache-dtype: float32}", {}, "engine.combination"),
        ("{enable-mamba-cache-stochastic-rounding: true}", {}, "engine.combination"),
        ("{enable-mamba-cache-stochastic-rounding: true, mamba-ssm-cache-dtype: float16}", {}, ""),
        ("{enable-mamba-cache-stochastic-rounding: true}", {"mamba_ssm_cache_dtype": "float16"}, ""),
    ],
)
def test_flags_of_experts_and_states_fit_the_target(
    tmp_path: Path, args: str, config: dict[str, object], code: str
) -> None:
    assert [item.code for item in findings(tmp_path, args, **config)] == ([code] if code else [])


@pytest.mark.parametrize(
    ("version", "config", "told"), [("0.31.0", {}, ["engine.experts"]), ("0.31.0", EXPERTS, []), ("0.30.0", {}, [])]
)
def test_experts_are_told_of_where_there_are_some(
    tmp_path: Path, version: str, config: dict[str, object], told: list[str]
) -> None:
    assert [item.code for item in findings(tmp_path, "{enable-return-routed-experts: true}", version, **config)] == told


def test_the_file_has_what_the_installed_version_has() -> None:
    vllm = pytest.importorskip("vllm")
    version = vllm.__version__.partition("+")[0]
    for kind, found in read_names(Path(vllm.__file__).parent).items():
        assert set(names(kind, version)) == found
        assert found


TREE = {
    "reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER = {'one': ('file', 'Class')}",
    "tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER: dict = {'two': ('file', 'Class')}",
    "transformers_utils/config.py": "_CONFIG_FORMAT_TO_CONFIG_PARSER: dict = {'three': Class}",
    "model_executor/models/registry.py": "_MULTIMODAL_MODELS = {'Sees': ('file', 'Class')}\n"
    "_TEXT_GENERATION_MODELS = {'Reads': ('file', 'Plain'), 'SeesToo': ('file', 'Seeing')}",
    "models/file.py": "class Plain(SupportsPP): ...\nclass Seeing(Plain, SupportsMultiModal, SupportsReplaySSM): ...",
    "model_executor/layers/fused_moe/oracle/fp8.py": (
        "mapping = {'elsewhere': 1}\ndef map_fp8_backend(name):\n    mapping = {'triton': 1}"
    ),
    "config/quantization.py": "_ONLINE_SHORTHANDS: dict = {'both': 1}",
    "model_executor/layers/quantization/__init__.py": (
        "def get_quantization_config(name):\n"
        "    method_to_config = {'own': Own, 'above': Below, 'both': Own, 'none': None_, 'gguf': Own}"
    ),
    "model_executor/layers/quantization/all.py": """
class Own(Base):
    def get_config_filenames(self):
        return ["quantize_config.json"]

class Below(Own):
    pass

class None_(Own):
    def get_config_filenames(self):
        return []
""",
    "engine/arg_utils.py": """
def get_kwargs(name):
    some = {"a_b", "c"}
    if name == "d":
        kind = human_readable_int_or_auto
    elif name in some:
        kind = human_readable_int
    elif name in ("e",):
        kind = int
""",
}


def test_tables_are_read_without_importing_them(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_names(tmp_path) == {
        "reasoning_parser": {"one"},
        "tool_call_parser": {"two"},
        "config_format": {"three"},
        "multimodal": {"Sees"},
        "text": {"Reads"},
        "replayssm": {"SeesToo"},
        "moe_backend_fp8": {"triton"},
        "moe_backend_mxfp4": set(),
        "moe_backend_unquantized": set(),
        "quantized_before": {"own", "above"},
        "suffixed": {"a-b", "c", "d"},
    }


@pytest.mark.parametrize("architectures", [5, "Qwen3ForCausalLM", [], [None]])
def test_a_config_that_names_its_architecture_in_another_form_is_no_traceback(
    tmp_path: Path, architectures: object
) -> None:
    flags = "{use-replayssm: true, default-mm-loras: {image: ./a}}"
    findings(tmp_path, flags, architectures=architectures)  # raises nothing
