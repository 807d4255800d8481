"""No flag and no variable of a recipe slips past the checks, however it is spelled."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import RECIPE, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.checks.run import Report
from toolkit.engines.registry import engine_rules
from toolkit.engines.vllm.facts import flags
from toolkit.findings import Finding
from toolkit.recipe.unsafe import CODE_VARIABLES

TURNED_OFF = "enforce-eager: true"


@pytest.fixture(scope="module", name="root")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models of the recipe."""
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder)
    return folder


def report(root: Path, args: str = TURNED_OFF, env: str = "", engine: str = "") -> Report:
    """The report on a good recipe with these flags and variables, and lines of `engine`."""
    text = RECIPE.replace("    enforce-eager: true\n", f"    {args}\n")
    text = text.replace('  env: {HF_HUB_OFFLINE: "1"}\n', f"  env: {{{env}}}\n  {engine}\n")
    return check(write_recipe(root, text))


def only(found: Report) -> Finding:
    (finding,) = found.findings
    return finding


def test_a_recipe_without_tricks_passes(root: Path) -> None:
    assert report(root).findings == ()


@pytest.mark.parametrize(
    "written",
    [
        """tokenizer: '["./t","--host","0.0.0.0","--trust-remote-code","--api-key","x"]'""",
        """tokenizer: ' [ "./t" ] '""",
        """hf-overrides: '{"a": 1} {"b": 2}'""",
        """lora-modules: '[{"name": "a", "path": "/a"}, "--trust-remote-code"]'""",
        'tokenizer: ["./t", "--trust-remote-code"]',
        "tokenizer: --trust-remote-code",
        "quantization: -O3",
        "enforce-eager: --trust-remote-code",
        "enforce-eager: 'TRUE'",
        "no-enable-prefix-caching: ' true'",
        "tokenizer: 'False '",
        "tokenizer: true",
        "tokenizer: ''",
        "ignore-patterns: [a, --trust-remote-code]",
        "device-memory-utilization: 0.99",
        "device_memory_utilization: 0.99",
        "kv-cache-dtype: fp4",
        "lora-dtype: fp32",
        "gpu-memory-utilization: 90",
        "gpu-memory-utilization: 90%",
    ],
)
def test_a_value_that_would_be_something_else_on_the_command_line(root: Path, written: str) -> None:
    finding = only(report(root, written))
    assert (finding.code, finding.severity) == ("engine.flag-value", "error")
    assert finding.path == f"engine.args.{written.partition(':')[0].replace('_', '-')}"


@pytest.mark.parametrize(
    "written",
    [
        "seed: -1",
        "seed: '-1'",
        "allowed-origins: ['https://example.com']",
        "allowed-origins: '[\"https://example.com\"]'",
        "ignore-patterns: ['*.bin', '*.pt']",
        "hf-overrides: '{\"a\": [1]}'",
        "hf-overrides: {a: [1]}",
        "chat-template: '[INST] {{ messages }}'",
        "kv-cache-dtype: fp8",
        "gpu-memory-utilization: 0.9",
    ],
)
def test_values_that_are_as_their_flags_take_them(root: Path, written: str) -> None:
    assert report(root, written).findings == ()


@pytest.mark.parametrize(
    "key",
    [
        "host=0.0.0.0",
        '"tokenizer --host"',
        "--host",
        "hf-overrides.a",
        "hf-overrides+",
        "Trust-Remote-Code",
        "trust_Remote_code",
        "trust\u2010remote\u2010code",  # a hyphen of Unicode
        "tru\u0455t-remote-code",  # a Cyrillic letter
        "trust-remote--code",
        "trust-remote-code ",
    ],
)
def test_a_key_that_is_not_spelled_as_a_flag(root: Path, key: str) -> None:
    quoted = key if key.startswith('"') else f'"{key}"'
    finding = only(report(root, f"{quoted}: true"))
    assert (finding.code, finding.severity) == ("recipe.bad-value", "error")


@pytest.mark.parametrize("abbreviated", ["hos", "mode", "serv", "speculative-conf", "spec-mod", "max_num_seq", "port"])
def test_a_beginning_of_a_flag_that_the_toolkit_sets(root: Path, abbreviated: str) -> None:
    finding = report(root, f"{abbreviated}: x").findings[0]
    assert (finding.code, finding.severity) == ("engine.own-flag", "error")


def test_no_flag_of_the_engine_is_the_beginning_of_one_that_the_toolkit_sets() -> None:
    own = set(engine_rules("vllm").own_flags)
    assert {flag for flag in flags("0.32.0") for name in own - {flag} if name.startswith(flag)} == set()


@pytest.mark.parametrize(
    "written",
    [
        "trust-remote-code: true",
        "trust_remote_code: true",
        "middleware: my.module.Class",
        "worker-cls: my.Worker",
        "worker-extension-cls: my.Worker",
        "scheduler-cls: my.Scheduler",
        "tool-parser-plugin: ./plugin.py",
        "reasoning-parser-plugin: ./plugin.py",
        "logits-processors: ['my:Processor']",
        "io-processor-plugin: mine",
        "allowed-local-media-path: /",
        "load-format: pt",
        "load-format: tensorizer",
        "download-dir: /shared",
        "config: /opt/ml/model/more.yaml",
        "logging-config: {pylogging_config_file: ./x.json}",
        "distributed-executor-backend: my.module.Executor",
        """kv-transfer-config: '{"kv_connector":"X", "kv_role":"kv_both", "kv_connector_modul\\u0065_path": "mine"}'""",
        "kv-transfer-config: {kv_connector: X, kv_role: kv_both, kv_connector_module_path: mine}",
        "compilation-config: {backend: my.module.compile}",
        "compilation-config: {inductor_passes: {mine: my.module.change}}",
        "structured-outputs-config: {reasoning_parser_plugin: ./plugin.py}",
        "enable-prompt-embeds: true",
    ],
)
def test_a_flag_that_runs_code_or_opens_files_is_named_and_can_be_allowed(root: Path, written: str) -> None:
    flag = written.partition(":")[0].replace("_", "-")
    finding = only(report(root, written))
    assert (finding.code, finding.severity, finding.path) == ("engine.risk", "error", f"engine.args.{flag}")
    assert finding.hint == f"Remove it; or, if you trust that, write `allow: [{flag}]` in `engine`."
    assert report(root, written, engine=f"allow: [{flag}]").findings == ()


@pytest.mark.parametrize(
    "written",
    [
        "trust-remote-code: false",
        "no-trust-remote-code: true",
        "load-format: safetensors",
        "reasoning-parser: qwen3",  # the beginning of reasoning-parser-plugin, and a flag itself
        "distributed-executor-backend: mp",
        "compilation-config: {mode: 3, backend: inductor}",
        "kv-transfer-config: {kv_connector: NixlConnector, kv_role: kv_both}",
    ],
)
def test_harmless_settings_of_the_same_flags(root: Path, written: str) -> None:
    assert report(root, written).findings == ()


@pytest.mark.parametrize(
    "variable",
    [
        *sorted(CODE_VARIABLES & {"PYTHONPATH", "LD_PRELOAD", "PYTHONSTARTUP", "PATH"}),
        "VLLM_PLUGINS",
        "VLLM_ALLOW_INSECURE_SERIALIZATION",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_LORA_RESOLVER_CACHE_DIR",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
        "HF_ENDPOINT",
        "SUPERVISOR_PROGRAM__LLM_COMMAND",
        "STANDARD_AUTO_INSTALL_REQ",
        "SAGEMAKER_BIND_TO_PORT",
        "OPTION_TRUST_REMOTE_CODE",
    ],
)
def test_a_variable_that_runs_code_or_opens_files_is_named_and_can_be_allowed(root: Path, variable: str) -> None:
    finding = only(report(root, env=f'{variable}: "1"'))
    assert (finding.code, finding.severity, finding.path) == ("engine.risk", "error", f"engine.env.{variable}")
    assert report(root, env=f'{variable}: "1"', engine=f"allow: [{variable}]").findings == ()


@pytest.mark.parametrize("variable", ["SM_VLLM_TRUST_REMOTE_CODE", "SM_VLLM_HOST", "SM_VLLM_TOKENIZER"])
def test_a_flag_written_as_a_variable(root: Path, variable: str) -> None:
    finding = only(report(root, env=f"{variable}: x"))
    assert (finding.code, finding.severity) == ("engine.own-flag", "error")


def test_a_permission_that_nothing_needs(root: Path) -> None:
    finding = only(report(root, engine="allow: [middleware]"))
    assert (finding.code, finding.severity) == ("engine.risk", "warning")


def test_the_beginning_of_a_risky_flag_on_an_engine_whose_flags_are_not_known(root: Path) -> None:
    """Of a version that is not in the catalogue no flag is unknown, so its parser's abbreviations would pass."""
    text = RECIPE.replace("0.32.0", "9.9.9").replace("enforce-eager", "trust-remote-cod")
    found = {finding.code for finding in check(write_recipe(root, text)).errors}
    assert "engine.risk" in found


@pytest.mark.parametrize(
    "revision", ["""'["main","--trust-remote-code"]'""", "--trust-remote-code", "'a b'", "a\u2010b"]
)
def test_a_revision_that_is_none(root: Path, revision: str) -> None:
    text = RECIPE.replace("{model: ./target}", f"{{model: org/target, revision: {revision}}}")
    codes = [finding.code for finding in check(write_recipe(root, text)).errors]
    assert "recipe.bad-value" in codes
