"""Settings of others become recipes: nothing is lost without a word, and nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from toolkit.api.importing import ImportedRecipe, import_recipe
from toolkit.errors import UsageError

DOCUMENTS = Path(__file__).with_name("imports")

# vLLM's documentation, and forms in which people keep such commands.
SERVE = """\
$ CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B \\
    -tp 2 --max-model-len 32K -q fp8 --gpu_memory_utilization=0.92 \\
    --speculative-config '{"method": "eagle3", "model": "RedHatAI/Qwen3-32B-speculator.eagle3",
                           "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}' \\
    --enable-auto-tool-choice --tool-call-parser hermes --no-enable-prefix-caching \\
    --compilation-config.mode 3 --port 8000 --api-key $KEY > log.txt 2>&1 &
"""
DOCKER = """\
docker run --rm -it --gpus all -e HF_TOKEN=hf_abc -e VLLM_LOGGING_LEVEL=DEBUG \\
  -v ~/.cache/huggingface:/root/.cache/huggingface -p 8000:8000 --ipc=host \\
  vllm/vllm-openai:v0.29.0 --model openai/gpt-oss-20b \\
  --speculative-config={"method":"eagle3","parallel_drafting":true,"model":"amazon/GPT-OSS-20B-P-EAGLE","num_speculative_tokens":7}
""".replace("={", "='{").replace("7}", "7}'")
MODULE = 'python3 -m vllm.entrypoints.openai.api_server --model google/gemma-4-31B-it --speculative-config \
\'{"model": "google/gemma-4-31B-it-assistant", "num_speculative_tokens": 4}\' --max-num-seqs 16'


def imported(text: str, folder: Path, **options: Any) -> tuple[dict[str, Any], ImportedRecipe]:
    made = import_recipe(text, out=folder / "recipe.yaml", **options)
    return YAML(typ="safe").load(made.path.read_text()), made


def left_out(made: ImportedRecipe) -> str:
    return "\n".join(finding.message for finding in made.left_out)


def test_a_command_of_several_lines(tmp_path: Path) -> None:
    recipe, made = imported(SERVE, tmp_path)
    assert recipe["target"] == {"model": "Qwen/Qwen3-32B"}
    assert recipe["speculation"] == {
        "method": "eagle3",
        "model": "RedHatAI/Qwen3-32B-speculator.eagle3",
        "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 1,
    }
    assert recipe["engine"]["max_model_len"] == 32 * 1024
    assert recipe["engine"]["args"] == {
        "tensor-parallel-size": 2,
        "quantization": "fp8",
        "gpu-memory-utilization": 0.92,
        "enable-auto-tool-choice": True,
        "tool-call-parser": "hermes",
        "no-enable-prefix-caching": True,
        "compilation-config": {"mode": 3},
    }
    assert recipe["engine"]["env"] == {"CUDA_VISIBLE_DEVICES": "0,1"}
    for part in ("--port 8000", "--api-key", "log.txt"):
        assert part in left_out(made)


@pytest.mark.parametrize(("tokenizer", "args"), [("v2", None), ("v3", {"tokenizer-revision": "v3"})])
def test_a_tokenizer_of_the_models_own_revision_goes_without_saying(
    tokenizer: str, args: object, tmp_path: Path
) -> None:
    recipe, _ = imported(f"vllm serve Qwen/Qwen3-8B --revision v2 --tokenizer-revision {tokenizer}", tmp_path)
    assert recipe["target"] == {"model": "Qwen/Qwen3-8B", "revision": "v2"}
    assert recipe.get("engine", {}).get("args") == args


@pytest.mark.parametrize("program", ["docker", "podman", "nerdctl"])
def test_a_container_gives_version_and_variables_but_no_secret(program: str, tmp_path: Path) -> None:
    recipe, made = imported(DOCKER.replace("docker", program, 1), tmp_path)
    assert recipe["speculation"]["method"] == "p-eagle"
    assert recipe["engine"] == {"env": {"VLLM_LOGGING_LEVEL": "DEBUG"}, "version": "0.29.0"}
    assert "HF_TOKEN" in left_out(made)
    assert "-p 8000:8000" in left_out(made)
    assert "hf_abc" not in made.path.read_text() + repr(made) + str(made.to_dict())
    assert made.ok, made.findings


@pytest.mark.parametrize("name", ["DB_PASSWORD", "API_KEY"])
def test_the_default_of_a_secret_is_not_filled_in(name: str, tmp_path: Path) -> None:
    command = f"docker run -e SETTING=${{{name}:-hunter2}} vllm/vllm-openai:v0.29.0 --model org/target"
    recipe, made = imported(f"{command} --chat-template ${{{name}:-hunter2}}", tmp_path)
    assert "hunter2" not in made.path.read_text() + repr(made) + str(made.to_dict())
    assert recipe["target"] == {"model": "org/target"}


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("export CUDA_VISIBLE_DEVICES=0; vllm serve org/target -tp 1; exit 1", {"CUDA_VISIBLE_DEVICES": "0"}),
        ("sh -c 'TP=1; vllm serve org/target -tp $TP;'", None),
    ],
)
def test_a_semicolon_ends_a_command_also_without_a_blank(text: str, env: object, tmp_path: Path) -> None:
    recipe, _ = imported(text, tmp_path)
    assert recipe["target"] == {"model": "org/target"}
    assert recipe["engine"]["args"] == {"tensor-parallel-size": 1}
    assert recipe["engine"].get("env") == env


@pytest.mark.parametrize("text", ["", "bash -c ''"])
def test_a_text_without_a_command_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        imported(text, tmp_path)


@pytest.mark.parametrize(
    "flag",
    [
        """--speculative-config '{"method": "eagle3", "model": "URL"}'""",
        "--speculative-config.model URL",
        "--spec-method eagle3 --spec-model URL",
        """--speculative-config '{"method": "ngram", "api_key": "hunter2"}'""",
    ],
)
def test_a_drafter_with_a_secret_is_refused_rather_than_left_out(flag: str, tmp_path: Path) -> None:
    """Without its drafter the recipe would not speculate, which is not what was asked for."""
    with pytest.raises(UsageError, match=r"spec(-|ulative-config\.)(model|api_key): a secret") as caught:
        imported(f"vllm serve org/target {flag.replace('URL', 'https://me:hunter2@models.example/head')}", tmp_path)
    assert "hunter2" not in str(caught.value)


def test_a_method_that_is_not_written_is_guessed_aloud(tmp_path: Path) -> None:
    recipe, made = imported(MODULE, tmp_path)
    assert recipe["speculation"]["method"] == "gemma4_mtp"
    assert recipe["engine"]["max_num_seqs"] == 16
    assert "import.guessed" in [finding.code for finding in made.left_out]


def test_a_recipe_of_aws_benchmark_suite(tmp_path: Path) -> None:
    recipe, made = imported((DOCUMENTS / "suite-qwen3-32b-g6e-eagle3.yaml").read_text(), tmp_path)
    assert recipe["platform"] == {
        "name": "sagemaker",
        "instance_types": ["ml.g6e.12xlarge"],
        "region": "us-west-2",
        "health_check_timeout": 1200,
    }
    assert recipe["speculation"]["num_speculative_tokens"] == 4
    assert recipe["engine"]["args"]["tensor-parallel-size"] == 4
    assert "version 0.15.1: sagemaker has no image of it" in left_out(made)
    assert "toolkit bench RECIPE --concurrency 1,2,4,8,16,32" in [
        item.hint.removeprefix("Run: ") for item in made.left_out
    ]
    assert made.ok, made.findings


def test_variables_of_a_suite_are_flags_where_the_image_makes_flags_of_them(tmp_path: Path) -> None:
    document = """
deployment:
  model: {id: org/target}
  vllm: {extra_env: {SM_VLLM_MAX_LORAS: 2, SM_VLLM_ENABLE_LORA: "", SM_VLLM_ASYNC_SCHEDULING: "True", OURS: here}}
"""
    recipe, _ = imported(document, tmp_path)
    assert recipe["engine"]["args"] == {"max-loras": 2, "enable-lora": True, "async-scheduling": True}
    assert recipe["engine"]["env"] == {"OURS": "here"}


def test_a_recipe_of_the_vllm_project(tmp_path: Path) -> None:
    recipe, made = imported((DOCUMENTS / "collected-qwen3.5-122b.yaml").read_text(), tmp_path)
    assert recipe["target"] == {"model": "Qwen/Qwen3.5-122B-A10B"}
    assert recipe["speculation"] == {"method": "mtp", "num_speculative_tokens": 1}
    assert recipe["engine"]["args"] == {
        "enable-auto-tool-choice": True,
        "tool-call-parser": "qwen3_coder",
        "reasoning-parser": "qwen3",
        "tensor-parallel-size": 4,
    }
    for part in (
        "--trust-remote-code: it runs Python",
        "feature text_only (--language-model-only)",
        "min_vllm_version 0.17.0",
    ):
        assert part in left_out(made)
    assert made.ok, made.findings


def test_a_variant_of_it(tmp_path: Path) -> None:
    text = (DOCUMENTS / "collected-qwen3.5-122b.yaml").read_text()
    recipe, _ = imported(text, tmp_path, variant="fp8")
    assert recipe["target"] == {"model": "Qwen/Qwen3.5-122B-A10B-FP8"}
    with pytest.raises(UsageError, match="no variant `int2`") as caught:
        import_recipe(text, out=tmp_path / "other.yaml", variant="int2")
    assert caught.value.hint == "Its variants: default, fp8."


def test_a_configuration_file_of_the_engine(tmp_path: Path) -> None:
    """As OpenAI/GPT-OSS_EAGLE3_Hopper.yaml of github vllm-project/recipes@8959cf64 has it."""
    text = """\
model: openai/gpt-oss-120b
max_num_batched_tokens: 8192
no-enable-prefix-caching: true
speculative_config: {method: eagle3, model: nvidia/gpt-oss-120b-Eagle3-v3, num_speculative_tokens: 7}
"""
    recipe, _ = imported(text, tmp_path)
    assert recipe["speculation"]["model"] == "nvidia/gpt-oss-120b-Eagle3-v3"
    assert recipe["engine"]["max_num_batched_tokens"] == 8192


def test_the_server_is_found_among_other_commands(tmp_path: Path) -> None:
    text = """\
pip install -U vllm  # the newest
export VLLM_USE_TRTLLM=1
HF_HUB_OFFLINE=0 hf download m/x
VLLM_LOGGING_LEVEL=DEBUG vllm serve m/x \\ \n  --max-num-seqs 4  # few
  --seed 1
TARGET=1 vllm bench serve --model m/x --num-prompts 64
"""
    recipe, made = imported(text, tmp_path)
    assert recipe["engine"]["env"] == {"VLLM_USE_TRTLLM": "1", "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert recipe["engine"]["max_num_seqs"] == 4
    assert recipe["engine"]["args"] == {"seed": 1}
    for other in ("pip install -U vllm", "hf download m/x", "vllm bench serve --model m/x --num-prompts 64"):
        assert f"left out: {other}: it is not part of the command" in left_out(made)


def test_a_command_for_several_nodes_keeps_their_number_where_a_copy_may_have_several(tmp_path: Path) -> None:
    command = "vllm serve deepseek-ai/DeepSeek-V3.1 -tp 16 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1"
    recipe, made = imported(command, tmp_path, platform="kubernetes")
    assert recipe["platform"] == {"name": "kubernetes", "kubernetes": {"nodes": 2}}
    assert "nodes" not in left_out(made)
    assert "--node-rank 1" in left_out(made)
    (tmp_path / "recipe.yaml").unlink()
    recipe, made = imported(command, tmp_path)
    assert recipe["platform"] == {"name": "sagemaker"}
    assert "left out: 2 nodes: sagemaker runs a copy of the model on one" in left_out(made)


def test_other_ways_to_start_are_shown_but_no_secret(tmp_path: Path) -> None:
    strategies = "{tp: 1, extra_args: [--enforce-eager]}, multi_node_dp: {dp: 16, env: {HF_TOKEN: hf_topsecret}}"
    document = (DOCUMENTS / "collected-qwen3.5-122b.yaml").read_text()
    document = document.replace("  single_node_tp:\n    tp: 4\n", f"  {{single_node_tp: {strategies}}}\n")
    recipe, made = imported(document, tmp_path)
    assert "tensor-parallel-size" not in recipe["engine"]["args"]
    hints = {item.message.split(": ")[1]: item.hint for item in made.left_out}
    assert hints["strategy_overrides.single_node_tp"] == "It says: {'extra_args': ['--enforce-eager']}"
    assert hints["strategy_overrides.multi_node_dp"] == "It holds a secret."


@pytest.mark.parametrize("count", ["0", "-1", "two", "100000"])
def test_a_number_of_nodes_that_is_none_is_left_out_aloud(count: str, tmp_path: Path) -> None:
    recipe, made = imported(f"vllm serve m/x --nnodes={count}", tmp_path, platform="kubernetes")
    assert recipe["platform"] == {"name": "kubernetes"}
    assert f"--nnodes {count}" in left_out(made)


def test_a_config_in_single_keys_is_read_as_one(tmp_path: Path) -> None:
    """As the recipes of GLM and gpt-oss in github vllm-project/recipes have it."""
    text = (
        "vllm serve zai-org/GLM-4.6 --speculative-config.method mtp --speculative-config.num_speculative_tokens 1 "
        "-cc.pass_config.fuse_norm_quant=true --compilation-config.mode 3"
    )
    recipe, _ = imported(text, tmp_path)
    assert recipe["speculation"] == {"method": "mtp", "num_speculative_tokens": 1}
    assert recipe["engine"]["args"] == {"compilation-config": {"pass_config": {"fuse_norm_quant": True}, "mode": 3}}


def test_a_flag_that_vllm_removed_does_not_hold_back_its_version(tmp_path: Path) -> None:
    """`swap-space` went with vLLM 0.18. A recipe with it got 0.17 or older, whose images do not run on newer GPUs."""
    recipe, made = imported("vllm serve m/x --swap-space 32 --seed 1", tmp_path)
    assert recipe["engine"] == {"args": {"seed": 1}}
    assert "left out: --swap-space: vLLM 0.18.0 removed it" in left_out(made)
    pinned = "docker run vllm/vllm-openai:v0.17.0 --model m/x --swap-space 32"
    (tmp_path / "recipe.yaml").unlink()
    recipe, _ = imported(pinned, tmp_path)
    assert recipe["engine"]["args"] == {"swap-space": 32}


@pytest.mark.parametrize("length", ["auto", "-1"])
def test_a_length_that_vllm_would_fit_is_left_to_the_user(length: str, tmp_path: Path) -> None:
    recipe, made = imported(f"vllm serve m/x --max-model-len {length}", tmp_path)
    assert recipe["engine"] == {}
    assert f"left out: --max-model-len {length}: a recipe has a number" in left_out(made)


def test_a_command_that_reads_as_yaml_is_a_command(tmp_path: Path) -> None:
    recipe, _ = imported("""vllm serve m/x --override-generation-config '{"temperature": 0.6}'""", tmp_path)
    assert recipe["engine"]["args"] == {"override-generation-config": {"temperature": 0.6}}


def test_a_flag_and_its_value_in_one_text(tmp_path: Path) -> None:
    """As models/XiaomiMiMo/MiMo-V2.5.yaml of github vllm-project/recipes has it."""
    text = "model: {model_id: m/x, base_args: ['--max-model-len 4096', '--generation-config', vllm]}"
    recipe, _ = imported(text, tmp_path)
    assert recipe["engine"] == {"args": {"generation-config": "vllm"}, "max_model_len": 4096}


def test_an_unknown_flag_is_kept_and_the_check_names_it(tmp_path: Path) -> None:
    recipe, made = imported("vllm serve Qwen/Qwen3-8B --weird-flag 3", tmp_path)
    assert recipe["engine"]["args"] == {"weird-flag": 3}
    assert "engine.unknown-flag" in [finding.code for finding in made.findings]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ls -l", "no command that starts a vLLM server"),
        ("vllm serve", "names no model"),
        ("vllm serve ... --seed 1", "names no model"),
        ("vllm serve m/x --omni", "another engine than vLLM"),
        ("model: {model_id: m/x, docker_image: 'vllm/vllm-omni:x'}", "another engine than vLLM"),
        ("vllm serve m/x --speculative-config '{'", "no JSON object"),
        ("vllm serve 'm/x", "not a command line"),
        ('vllm serve m/x --speculative-config \'{"method": "medusa"}\'', "`medusa` is not among those"),
        ("name: x\ntarget: {model: m/x}\nspeculation: {method: ngram}", "a recipe of the toolkit already"),
        ("a: {b: c}", "not a format that can be imported"),
        ("deployment: {model: {id: m/x}, container: {type: sglang}}", "another engine than vLLM"),
    ],
)
def test_what_cannot_be_imported_is_told(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        import_recipe(text, out=tmp_path / "recipe.yaml")
    assert not list(tmp_path.iterdir())


def test_a_value_in_json_of_a_flag_that_takes_several_is_one_word(tmp_path: Path) -> None:
    """vLLM reads each of `--lora-modules` itself, as NAME=PATH or as JSON; numbers are numbers."""
    module = '{"name": "sql", "path": "/adapters/sql", "base_model_name": "Qwen/Qwen3-8B"}'
    text = f"vllm serve Qwen/Qwen3-8B --enable-lora --lora-modules '{module}' a=/b --cudagraph-capture-sizes 1 2"
    recipe, made = imported(text, tmp_path)
    assert recipe["engine"]["args"]["lora-modules"] == [module, "a=/b"]
    assert recipe["engine"]["args"]["cudagraph-capture-sizes"] == [1, 2]
    assert not [finding for finding in made.findings if finding.code == "recipe.bad-value"]


def test_a_secret_in_such_a_value_is_left_out(tmp_path: Path) -> None:
    text = """vllm serve Qwen/Qwen3-8B --lora-modules '{"name": "sql", "path": "/a", "api_key": "sk-123"}'"""
    recipe, made = imported(text, tmp_path)
    assert "lora-modules" not in recipe.get("engine", {}).get("args", {})
    assert "--lora-modules" in left_out(made)


def test_a_command_that_ends_with_a_backslash(tmp_path: Path) -> None:
    """As it is copied when the next line is not."""
    recipe, _ = imported("vllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 8 \\", tmp_path)
    assert recipe["engine"]["max_num_seqs"] == 8


def test_what_the_lines_before_assign_is_filled_in(tmp_path: Path) -> None:
    """As scripts do; what only fills in is no variable of the server, what may be read is."""
    text = """\
        export HF_HUB_OFFLINE=1
        MODEL=Qwen/Qwen3-8B
        EXTRA="--seed 1 --max-num-seqs ${SEQS:-8}"
        CONFIG='{"method": "ngram", "num_speculative_tokens": 4}'
        vllm serve "$MODEL" --max-model-len ${LENGTH:-4096} $EXTRA --speculative-config "$CONFIG" --dtype $DTYPE
    """
    recipe, made = imported(text, tmp_path)
    assert recipe["target"] == {"model": "Qwen/Qwen3-8B"}
    assert recipe["speculation"] == {"method": "ngram", "num_speculative_tokens": 4}
    assert recipe["engine"] == {
        "env": {"HF_HUB_OFFLINE": "1"},
        "args": {"seed": 1},
        "max_model_len": 4096,
        "max_num_seqs": 8,
    }
    assert "--dtype $DTYPE: its value is to be filled in" in left_out(made)


def test_a_command_that_was_assigned_before_is_the_command(tmp_path: Path) -> None:
    text = 'MODEL=Qwen/Qwen3-8B\nCMD="vllm serve $MODEL \\\n  --max-num-seqs 8"\nif true; then\n  $CMD &\nfi'
    recipe, _ = imported(text, tmp_path)
    assert recipe["target"]["model"] == "Qwen/Qwen3-8B"
    assert recipe["engine"] == {"max_num_seqs": 8}


@pytest.mark.parametrize("model", ["$MODEL", "${MODEL}", "$1", "$(cat name | head -1)", "<model>"])
def test_a_model_that_is_to_be_filled_in_is_none(model: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no model"):
        import_recipe(f"vllm serve {model} --seed 1", out=tmp_path / "recipe.yaml")


def test_what_another_command_would_say_is_one_value(tmp_path: Path) -> None:
    text = "vllm serve Qwen/Qwen3-8B --tensor-parallel-size $(nvidia-smi -L | wc -l) --max-num-seqs 8"
    recipe, made = imported(text, tmp_path)
    assert recipe["engine"] == {"max_num_seqs": 8}
    assert "--tensor-parallel-size $(…): its value is to be filled in" in left_out(made)


@pytest.mark.parametrize(
    "start",
    [
        'docker run --gpus all vllm/vllm-openai:v0.30.0 bash -c "pip install x && {}"',
        "docker run --entrypoint /bin/bash vllm/vllm-openai:v0.30.0 -lc 'exec {}'",
        'setsid bash -c "{} > log.txt 2>&1" > /dev/null &',
        "docker exec -it server sh -c '{}'",
    ],
)
def test_a_command_in_a_shells_text(start: str, tmp_path: Path) -> None:
    recipe, _ = imported(start.format("vllm serve Qwen/Qwen3-8B --max-num-seqs 8"), tmp_path)
    assert recipe["target"]["model"] == "Qwen/Qwen3-8B"
    assert recipe["engine"]["max_num_seqs"] == 8


def test_options_of_a_container_as_docker_reads_them(tmp_path: Path) -> None:
    """Letters stand together and before their value; a switch takes none."""
    text = (
        "docker run -itP --read-only -eVLLM_LOGGING_LEVEL=DEBUG -e=VLLM_USE_DEEP_GEMM=0 -p8000:8000 -dv /a:/b "
        "-q vllm/vllm-openai:v0.30.0 --model Qwen/Qwen3-8B"
    )
    recipe, made = imported(text, tmp_path)
    assert recipe["target"]["model"] == "Qwen/Qwen3-8B"
    assert recipe["engine"]["env"] == {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_USE_DEEP_GEMM": "0"}
    assert "-itP, --read-only, -p 8000:8000, -v /a:/b, -q: options of the container" in left_out(made)


@pytest.mark.parametrize(
    ("flags", "speculation"),
    [
        ("--spec-method eagle3 --spec-model x/y --spec-tokens 3", ("eagle3", {"model": "x/y"})),
        ("--speculative-model '[ngram]' --num-speculative-tokens 3", ("ngram", {})),
        (
            "--speculative-model x/y --num_speculative_tokens 3 --speculative-draft-tensor-parallel-size 1",
            ("draft-model", {"model": "x/y", "draft_tensor_parallel_size": 1}),
        ),
        ('--speculative-config \'{"method": "ngram"}\' --spec-tokens 3', ("ngram", {})),
    ],
)
def test_speculation_in_flags_of_its_own(flags: str, speculation: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """Those of vLLM 0.22 and later, and those from before it was one flag: never a recipe without speculation."""
    method, keys = speculation
    recipe, _ = imported(f"vllm serve Qwen/Qwen3-8B {flags}", tmp_path)
    assert recipe["speculation"] == {"method": method, "num_speculative_tokens": 3, **keys}
    assert recipe["engine"] == {}


@pytest.mark.parametrize("written", ["-O3", "-O=3", "-O 3", "--optimization-level 3"])
def test_an_optimization_level_however_it_is_written(written: str, tmp_path: Path) -> None:
    recipe, _ = imported(f"vllm serve Qwen/Qwen3-8B {written}", tmp_path)
    assert recipe["engine"]["args"] == {"optimization-level": 3}


def test_the_short_name_of_the_compilers_settings_from_before_it_was_a_level(tmp_path: Path) -> None:
    recipe, _ = imported("vllm serve Qwen/Qwen3-8B -O.cudagraph_mode=NONE -O.mode 3", tmp_path)
    assert recipe["engine"]["args"] == {"compilation-config": {"cudagraph_mode": "NONE", "mode": 3}}


def test_a_comment_begins_where_a_word_could(tmp_path: Path) -> None:
    text = """# don't forget: --max-num-seqs 1
vllm serve Qwen/Qwen3-8B --chat-template '# {{ x }}' --lora-modules a=/b#c \\
  # --max-num-seqs 2
  --max-num-seqs 8 # "of the day"
"""
    recipe, _ = imported(text, tmp_path)
    assert recipe["engine"] == {"max_num_seqs": 8, "args": {"chat-template": "# {{ x }}", "lora-modules": ["a=/b#c"]}}


def test_json_in_a_configuration_file_is_read_as_in_a_command(tmp_path: Path) -> None:
    text = """\
        model: Qwen/Qwen3-8B
        speculative-config: '{"method": "ngram", "num_speculative_tokens": 3}'
        hf-overrides: '{"max_position_embeddings": 8192}'
    """
    recipe, _ = imported(text, tmp_path)
    assert recipe["speculation"] == {"method": "ngram", "num_speculative_tokens": 3}
    assert recipe["engine"]["args"] == {"hf-overrides": {"max_position_embeddings": 8192}}


def test_variables_of_a_suite_hold_what_they_say(tmp_path: Path) -> None:
    text = """\
        deployment:
          model: {id: Qwen/Qwen3-8B}
          vllm:
            extra_env:
              SM_VLLM_SPECULATIVE_CONFIG: '{"method": "ngram", "num_speculative_tokens": 3}'
              SM_VLLM_TENSOR_PARALLEL_SIZE: "4"
    """
    recipe, _ = imported(text, tmp_path)
    assert recipe["speculation"] == {"method": "ngram", "num_speculative_tokens": 3}
    assert recipe["engine"]["args"] == {"tensor-parallel-size": 4}


def test_switches_with_a_value_are_what_it_says(tmp_path: Path) -> None:
    """As earlier versions of vLLM take them, and as many people write them: off is not on."""
    text = """vllm serve Qwen/Qwen3-8B --enable-prefix-caching False --enable-chunked-prefill=false \\
        --enforce-eager True --max-num-seqs 8"""
    recipe, made = imported(text, tmp_path)
    args = {"enable-prefix-caching": False, "enable-chunked-prefill": False, "enforce-eager": True}
    assert recipe["engine"] == {"max_num_seqs": 8, "args": args}
    assert not made.left_out
