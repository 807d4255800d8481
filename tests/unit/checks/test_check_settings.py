"""Engine, container and workloads: will they take these settings?"""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import RECIPE, edit_config, write_pair, write_recipe, write_tokenizer

from toolkit.api.checking import check
from toolkit.checks.run import Report
from toolkit.findings import Finding


def report(root: Path, *edits: tuple[str, str]) -> Report:
    """The report on the good pair with its recipe edited."""
    write_pair(root)
    text = RECIPE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return check(write_recipe(root, text))


def only(found: Report) -> Finding:
    (finding,) = found.findings
    return finding


def test_an_engine_older_than_the_method(tmp_path: Path) -> None:
    findings = {finding.code: finding for finding in report(tmp_path, ("0.32.0", "0.15.2")).findings}
    assert findings["engine.version"].message == "method `p-eagle` needs vllm 0.16.0 or newer"
    assert findings["engine.version"].line == 10


def test_an_engine_without_an_image(tmp_path: Path) -> None:
    finding = only(report(tmp_path, ("0.32.0", "0.31.0")))
    assert (finding.code, finding.line) == ("container.image", 10)
    assert finding.hint == "Use 0.32.0."


def test_a_flag_that_the_toolkit_sets(tmp_path: Path) -> None:
    finding = only(report(tmp_path, ("dtype: float32", "max_model_len: 5")))
    assert (finding.code, finding.severity, finding.line) == ("engine.own-flag", "error", 15)
    assert finding.hint == "Remove it, and set `engine.max_model_len`."


def test_a_flag_that_looks_like_one_that_the_toolkit_sets(tmp_path: Path) -> None:
    found = report(tmp_path, ("dtype: float32", "max-numb-seqs: 5"))
    assert found.ok
    assert only(found).message == "`max-numb-seqs` looks like `max-num-seqs`, which the toolkit sets"
    assert only(found).hint == "If you meant that flag, remove it and set `engine.max_num_seqs`."


def test_a_flag_in_disguise(tmp_path: Path) -> None:
    finding = only(report(tmp_path, ('HF_HUB_OFFLINE: "1"', 'SM_VLLM_SPECULATIVE_CONFIG: "{}"')))
    assert (finding.code, finding.path, finding.line) == (
        "engine.own-flag",
        "engine.env.SM_VLLM_SPECULATIVE_CONFIG",
        17,
    )
    assert finding.hint == "Write `speculative-config` in engine.args."


@pytest.mark.parametrize(
    ("budget", "severity"),
    [(15, "error"), (16, "warning"), (223, "warning"), (224, None)],  # 16 requests x (1 + 7 draft tokens + 6 slots)
)
def test_the_token_budget_of_sixteen_requests(tmp_path: Path, budget: int, severity: str | None) -> None:
    found = report(tmp_path, ("max_num_batched_tokens: 2048", f"max_num_batched_tokens: {budget}"))
    assert [finding.severity for finding in found.findings] == ([severity] if severity else [])
    for finding in found.findings:
        assert (finding.code, finding.line) == ("engine.token-budget", 13)
        assert finding.hint == "Set it to 224 or more, or lower engine.max_num_seqs."


def test_the_token_budget_must_hold_the_slots_of_one_request(tmp_path: Path) -> None:
    edits = ("max_num_seqs: 16", "max_num_seqs: 1"), ("max_num_batched_tokens: 2048", "max_num_batched_tokens: 6")
    assert only(report(tmp_path, *edits)).message == "6 tokens per step are too few: the minimum is 7"


def test_more_tokens_than_the_target_has_positions(tmp_path: Path) -> None:
    finding = only(report(tmp_path, ("max_model_len: 1024", "max_model_len: 1025")))
    assert (finding.code, finding.line) == ("engine.max-model-len", 11)
    assert finding.hint == "Set it to 1024 or less."


@pytest.mark.parametrize(("adapters", "refused"), [("false", False), ("true", True)])
def test_a_number_of_adapters_has_bounds_where_adapters_are_on(adapters: str, refused: bool, tmp_path: Path) -> None:
    flags = ("dtype: float32", f"dtype: float32\n    max-loras: 0\n    enable-lora: {adapters}")
    assert ("engine.flag-value" in {finding.code for finding in report(tmp_path, flags).findings}) is refused


def test_a_flag_of_several_values_may_have_one(tmp_path: Path) -> None:
    found = report(tmp_path, ("dtype: float32", "dtype: float32\n    cudagraph-capture-sizes: 16"))
    assert "engine.flag-value" not in {finding.code for finding in found.findings}


@pytest.mark.parametrize("overrides", ['{"rope_scaling": {"factor": 4.0}}', '{"max_position_embeddings": 4096}'])
def test_how_far_a_model_reaches_that_is_scaled_is_the_engines_to_reckon(overrides: str, tmp_path: Path) -> None:
    longer = ("max_model_len: 1024", "max_model_len: 1025")
    scaled = report(tmp_path, longer, ("dtype: float32", f"dtype: float32\n    hf-overrides: {overrides}"))
    assert "engine.max-model-len" not in {finding.code for finding in scaled.findings}
    other = report(tmp_path, longer, ("dtype: float32", "dtype: float32\n    hf-overrides: {architectures: [A]}"))
    assert "engine.max-model-len" in {finding.code for finding in other.findings}


def test_positions_that_the_recipe_lowers_are_the_limit(tmp_path: Path) -> None:
    lowered = report(tmp_path, ("dtype: float32", "dtype: float32\n    hf-overrides: {max_position_embeddings: 512}"))
    assert only(lowered).hint == "Set it to 512 or less."


@pytest.mark.parametrize("off", ["enable-chunked-prefill: false", "no-enable-chunked-prefill: true"])
def test_without_chunked_prefill_a_step_holds_a_whole_request(tmp_path: Path, off: str) -> None:
    edits = ("dtype: float32", f"dtype: float32\n    {off}"), ("batched_tokens: 2048", "batched_tokens: 1023")
    found = [finding for finding in report(tmp_path, *edits).findings if finding.severity == "error"]
    assert [(finding.code, finding.hint) for finding in found] == [
        ("engine.token-budget", "Set it to 1024 or more, or remove it.")
    ]


@pytest.mark.parametrize(("value", "severity"), [("1", "warning"), ("True", "warning"), ("0", "error")])
def test_a_variable_lets_requests_be_longer_than_the_target_has_positions(
    tmp_path: Path, value: str, severity: str
) -> None:
    variable = f'VLLM_ALLOW_LONG_MAX_MODEL_LEN: "{value}"'
    edits = ('HF_HUB_OFFLINE: "1"', variable), ("max_model_len: 1024", "max_model_len: 1025")
    finding = only(report(tmp_path, *edits))
    assert (finding.code, finding.severity) == ("engine.max-model-len", severity)


@pytest.mark.parametrize(
    ("flag", "value", "refused"),
    [
        ("api-server-count", "2", False),
        ("api-server-count", "0.5", True),
        ("api-server-count", '"2"', False),
        ("dp-supervisor-probe-interval-s", "0.5", False),
        ("dp-supervisor-probe-interval-s", "soon", True),
        ("default-chat-template-kwargs", "1k", True),
        ("default-chat-template-kwargs", "{enable_thinking: false}", False),
        ("reasoning-config", "3", True),
        ("reasoning-config", "{}", False),
        ("moe-backend", "nonsense", True),
        ("moe-backend", "Deep-GEMM", False),
        ("max-log-len", "None", False),
        ("kv-transfer-config", "None", False),
        ("port", "None", True),
        ("profiler-config", "None", True),
        ("log-level", "info", True),
        ("log-level", "INFO", False),
        ("cpu-offload-params", "{a: b}", False),
    ],
)
def test_a_value_is_what_the_parser_reads(flag: str, value: str, refused: bool, tmp_path: Path) -> None:
    found = report(tmp_path, ("dtype: float32", f"dtype: float32\n    {flag}: {value}")).findings
    assert ("engine.flag-value" in {item.code for item in found}) is refused


@pytest.mark.parametrize("flag", ["enable-eplb", "enable-sleep-mode", "enable-cumem-allocator"])
@pytest.mark.parametrize(
    ("platform", "refused"), [("", True), (", run: container, instance_types: [ml.g6.xlarge]", False)]
)
def test_what_vllm_has_on_gpus_only(flag: str, platform: str, refused: bool, tmp_path: Path) -> None:
    edit = ("dtype: float32", f"dtype: float32\n    enable-expert-parallel: true\n    {flag}: true")
    where = ("platform: {name: local}", f"platform: {{name: local{platform}}}")
    found = report(tmp_path, edit, where).findings
    assert (f"vLLM has no `{flag}` on a CPU" in [item.message for item in found]) is refused


@pytest.mark.parametrize("flag", ["enable-eplb", "enable-batch-sharded-sampling"])
def test_what_a_cpu_has_not_is_told_once(flag: str, tmp_path: Path) -> None:
    found = report(tmp_path, ("dtype: float32", f"dtype: float32\n    {flag}: true")).findings
    assert [item.path for item in found] == [f"engine.args.{flag}"]


def test_a_cpu_s_platform_turns_off_what_it_has_not(tmp_path: Path) -> None:
    """vLLM's platforms/cpu.py, so that what it needs does not count."""
    found = report(tmp_path, ("dtype: float32", "dtype: float32\n    enable-dbo: true")).findings
    assert [item.message for item in found if item.path == "engine.args.enable-dbo"] == []


def test_a_plugin_of_this_machine_may_bring_a_quantization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit = ("dtype: float32", "dtype: float32\n    quantization: ours")
    assert [item.code for item in report(tmp_path, edit).findings] == ["engine.flag-value"]
    brings = tmp_path / "packages" / "ours-1.0.dist-info"
    brings.mkdir(parents=True)
    (brings / "METADATA").write_text("Name: ours\nVersion: 1.0\n")
    (brings / "entry_points.txt").write_text("[vllm.general_plugins]\nours = ours:register\n")
    monkeypatch.syspath_prepend(brings.parent)
    assert report(tmp_path, edit).findings == ()


@pytest.mark.parametrize(
    ("more", "config", "told"),
    [
        ("", {}, ["error"]),
        ("", {"quantization_config": {"quant_method": "awq"}}, []),
        ("\n    hf-overrides: {quantization_config: {quant_method: awq}}", {}, []),
    ],
)
def test_a_way_of_running_quantized_weights_needs_such(
    more: str, config: dict[str, object], told: list[str], tmp_path: Path
) -> None:
    path = write_pair(tmp_path)
    path.write_text(path.read_text().replace("dtype: float32", f"dtype: float32\n    quantization: awq_marlin{more}"))
    edit_config(tmp_path / "target", **config)
    assert [item.severity for item in check(path).findings if item.code == "engine.quantization"] == told


@pytest.mark.parametrize(
    ("flags", "drafting", "told"),
    [
        ("", "", ["6 attention heads of the target", "2 attention heads of the drafter"]),
        ("", "\n  draft_tensor_parallel_size: 1", ["6 attention heads of the target"]),
        ("\n    hf-overrides: {num_attention_heads: 8}", "", ["2 attention heads of the drafter"]),
    ],
)
def test_heads_that_a_cpu_cannot_divide(flags: str, drafting: str, told: list[str], tmp_path: Path) -> None:
    path = write_pair(tmp_path, "eagle3")
    text = path.read_text().replace("dtype: float32", f"dtype: float32\n    tensor-parallel-size: 4{flags}")
    path.write_text(text.replace("method: eagle3", f"method: eagle3{drafting}"))
    edit_config(tmp_path / "target", num_attention_heads=6)
    edit_config(tmp_path / "drafter", num_attention_heads=2)
    messages = [item.message for item in check(path).findings if "cannot be divided by" in item.message]
    assert [message.partition(" cannot")[0] for message in messages] == told


def test_positions_of_a_multimodal_target_stand_one_level_down(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    nested = {"hidden_size": 8, "vocab_size": 32, "max_position_embeddings": 512}
    edit_config(tmp_path / "target", text_config=nested)
    assert only(check(recipe)).code == "engine.max-model-len"


def test_a_target_without_a_chat_template(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    write_tokenizer(tmp_path / "target", chat_template=False)
    found = check(recipe)
    assert found.ok
    assert (only(found).code, only(found).line) == ("engine.chat-template", 3)
    (tmp_path / "target" / "chat_template.jinja").write_text("{{ messages }}")
    assert check(recipe).findings == ()


def test_a_value_longer_than_sagemaker_takes(tmp_path: Path) -> None:
    assert report(tmp_path, ("dtype: float32", f"tokenizer: {'x' * 1024}")).ok
    finding = only(report(tmp_path, ("dtype: float32", f"tokenizer: {'x' * 1025}")))
    assert finding.code == "container.environment"
    assert finding.message == "SM_VLLM_TOKENIZER has 1025 characters, but SageMaker allows 1024"


def test_more_variables_than_sagemaker_takes(tmp_path: Path) -> None:
    variables = ", ".join(f'V{i}: ""' for i in range(100))
    finding = only(report(tmp_path, ('HF_HUB_OFFLINE: "1"', variables)))
    assert finding.code == "container.environment"
    assert "but SageMaker allows 100" in finding.message


def workload_report(root: Path, content: str | None) -> Report:
    if content is not None:
        (root / "mine.jsonl").write_text(content)
    return report(root, ("{name: local}", "{name: local}\nworkloads: {mine: ./mine.jsonl}"))


def expecting(root: Path, expect: str) -> Report:
    (root / "mine.jsonl").write_text('{"prompt": "one"}')
    return report(root, ("{name: local}", f"{{name: local}}\nworkloads: {{mine: ./mine.jsonl}}\nexpect: {expect}"))


def test_what_can_be_expected_is_fine(tmp_path: Path) -> None:
    expect = "{mine: {concurrency: 4, speedup: 1.3, acceptance_length: 2.5, slo: {ttft: 0.5, tpot: 0.02, share: 0.95}}}"
    assert expecting(tmp_path, expect).findings == ()


def test_no_step_yields_more_than_all_drafts_and_one_token(tmp_path: Path) -> None:
    finding = only(expecting(tmp_path, "{mine: {acceptance_length: 9.5}}"))
    assert (finding.code, finding.path) == ("expect.impossible", "expect.mine.acceptance_length")
    assert "at most 8 tokens" in finding.message


def test_what_is_expected_must_be_measured(tmp_path: Path) -> None:
    finding = only(expecting(tmp_path, "{mnie: {speedup: 1.3}}"))
    assert (finding.code, finding.severity) == ("expect.not-measured", "warning")


@pytest.mark.parametrize(
    ("expect", "path", "message"),
    [
        ("{mine: {speedup: 0}}", "expect.mine.speedup", "greater than 0"),
        ("{mine: {acceptance_length: 0.5}}", "expect.mine.acceptance_length", "greater than or equal to 1"),
        ("{mine: {slo: {share: 0.9}}}", "expect.mine.slo", "an SLO needs a limit"),
        ("{mine: {slo: {ttft: 1, share: 95}}}", "expect.mine.slo.share", "less than 1"),
        ("{mine: {speed: 2}}", "expect.mine.speed", "speed"),
    ],
)
def test_what_cannot_be_expected(tmp_path: Path, expect: str, path: str, message: str) -> None:
    finding = only(expecting(tmp_path, expect))
    assert finding.path == path
    assert message in finding.message


def test_prompts_in_any_shape_are_fine(tmp_path: Path) -> None:
    content = '{"prompt": "one"}\n\n{"messages": [{"role": "user", "content": "two"}]}\n'
    assert workload_report(tmp_path, content).findings == ()


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, "workload.unreadable", "does not exist"),
        ("", "workload.empty", "contains no prompts"),
        ("\n\n", "workload.empty", "contains no prompts"),
        ('{"prompt": "a"}\nb\n', "workload.unreadable", "mine.jsonl:2: it is not JSON"),
    ],
)
def test_a_prompt_set_that_is_none(tmp_path: Path, content: str | None, code: str, message: str) -> None:
    finding = only(workload_report(tmp_path, content))
    assert (finding.code, finding.path, finding.line) == (code, "workloads.mine", 19)
    assert message in finding.message
    assert (
        "relative to the recipe's folder" if content is None else '{"prompt": "Name three rivers."}'
    ) in finding.hint
