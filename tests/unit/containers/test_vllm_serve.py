"""`containers/vllm/serve`, run as SageMaker runs it: a process, an environment, and a `vllm` to become."""

from __future__ import annotations

import ast
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SERVE = Path(__file__).parents[3] / "containers" / "vllm" / "serve"
vllm_options = runpy.run_path(str(SERVE))["vllm_options"]
SECRET = "hunter2"
P_EAGLE = '{"method": "eagle3", "model": "/opt/ml/head", "num_speculative_tokens": 7, "parallel_drafting": true}'

# Stands where vLLM's server does: says what it was given, then ends or waits as its own variables ask.
STAND_IN = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))
print(json.dumps({"argv": sys.argv[1:], "pid": os.getpid(), "started": time.time()}), flush=True)
if os.environ.get("STAND_IN_WAITS"):
    signal.pause()
sys.exit(int(os.environ.get("STAND_IN_EXIT_CODE", 0)))
"""


class Container:
    """A place to run the entrypoint in: a stand-in for vLLM, an /opt/ml, and nothing of the caller's environment."""

    def __init__(self, root: Path) -> None:
        self.base_dir = root / "opt" / "ml"
        self.model_dir = self.base_dir / "model"
        self.model_dir.mkdir(parents=True)
        self.packages = root / "packages"
        server = self.packages / "vllm" / "entrypoints" / "openai" / "api_server.py"
        server.parent.mkdir(parents=True)
        server.write_text(STAND_IN)
        for package in server.parents[:3]:
            (package / "__init__.py").touch()

    def start(self, env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Starts it the way SageMaker does: `docker run IMAGE serve`, with the environment of CreateModel."""
        basics = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(self.packages),
            "SAGEMAKER_BASE_DIR": str(self.base_dir),
        }
        return subprocess.Popen(
            [SERVE, "serve"],
            env=basics | dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        process = self.start(env)
        stdout, stderr = process.communicate(timeout=30)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def argv(self, env: Mapping[str, str]) -> list[str]:
        """The arguments that vLLM gets."""
        done = self.run(env)
        assert done.returncode == 0, done.stderr
        argv = json.loads(done.stdout)["argv"]
        assert isinstance(argv, list)
        return argv


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def flags(env: Mapping[str, str]) -> list[str]:
    """What the entrypoint makes of SM_VLLM_* variables, without a process; port and model left off."""
    options = vllm_options({"HF_MODEL_ID": "org/model", **env}, Path("/nowhere"))
    assert options[:2] == [["--port", "8080"], ["--model", "org/model"]]
    return [token for option in options[2:] for token in option]


# The contract, one line per case.


@pytest.mark.parametrize(
    ("value", "values"),
    [
        pytest.param("4096", ["4096"], id="a number"),
        pytest.param("", [], id="empty is a bare flag"),
        pytest.param("true", [], id="true is a bare flag"),
        pytest.param(" True\n", [], id="true, written otherwise"),
        pytest.param('["a", "b c"]', ["a", "b c"], id="a list"),
        pytest.param('["only"]', ["only"], id="a list of one"),
        pytest.param('[1, 2.5, true, null, "é"]', ["1", "2.5", "true", "", "é"], id="a list of scalars"),
        pytest.param('[{"name": "x"}, [1, 2]]', ['{"name":"x"}', "[1,2]"], id="a list of objects and lists"),
        pytest.param('{"a": 1} {"b": [2, 3]}', ['{"a":1}', '{"b":[2,3]}'], id="several objects"),
    ],
)
def test_a_variable_is_a_flag_and_its_values(value: str, values: list[str]) -> None:
    assert flags({"SM_VLLM_SOME_FLAG": value}) == ["--some-flag", *values]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(P_EAGLE, id="an object"),
        pytest.param(f" {P_EAGLE}\n", id="an object between blanks"),
        pytest.param("  ", id="only blanks"),
        pytest.param("truest", id="not quite true"),
        pytest.param("[1] [2]", id="several lists"),
        pytest.param("[not json]", id="a bracket"),
        pytest.param("{not json}", id="a brace"),
        pytest.param("[" * 2000, id="deep"),
        pytest.param("{% for m in messages %}\n{{ m }}\n{% endfor %}", id="a chat template"),
        pytest.param('it\'s "quoted" `here` $HOME', id="quotes"),
        pytest.param("100%", id="per cent"),
        pytest.param("a ;b #c", id="what an INI file takes for a comment"),
        pytest.param("one\ntwo\r\nthree\n", id="lines"),
        pytest.param("back\\slash \\n", id="backslashes"),
    ],
)
def test_any_other_value_is_one_argument_letter_for_letter(container: Container, value: str) -> None:
    argv = container.argv({"HF_MODEL_ID": "org/model", "SM_VLLM_SOME_FLAG": value})

    assert argv == ["--port", "8080", "--model", "org/model", "--some-flag", value]


@pytest.mark.parametrize("value", ["false", "FALSE", " False ", "[]", " [ ] "])
def test_false_and_the_empty_list_leave_the_flag_out(value: str) -> None:
    assert flags({"SM_VLLM_SOME_FLAG": value}) == []


@pytest.mark.parametrize("flag", ["--allowed-origins", "--allowed-methods", "--allowed-headers", "--middleware"])
@pytest.mark.parametrize("value", ['["a", "b"]', "[]"])
def test_flags_whose_one_value_is_a_list_get_it_whole(flag: str, value: str) -> None:
    name = "SM_VLLM_" + flag.removeprefix("--").replace("-", "_").upper()

    assert flags({name: value}) == [flag, value]


def test_variables_come_sorted_and_others_are_left_alone() -> None:
    env = {"SM_VLLM_SEED": "1", "SM_VLLM_ENFORCE_EAGER": "true", "VLLM_LOGGING_LEVEL": "DEBUG", "SM_SGLANG_SEED": "2"}

    assert flags(env) == ["--enforce-eager", "--seed", "1"]


def test_a_negative_is_a_flag_of_its_own() -> None:
    assert flags({"SM_VLLM_NO_ENABLE_PREFIX_CACHING": "true"}) == ["--no-enable-prefix-caching"]


# Where the model and the port come from.


def test_the_model_is_named_then_mounted_then_from_the_hub(container: Container) -> None:
    (container.model_dir / "config.json").write_text("{}")
    mounted = str(container.model_dir)

    def model(env: Mapping[str, str]) -> str:
        argv = container.argv(env)
        assert argv.count("--model") == 1
        return argv[argv.index("--model") + 1]

    assert model({"SM_VLLM_MODEL": "named", "HF_MODEL_ID": "hub"}) == "named"
    assert model({"SM_VLLM_MODEL": "", "HF_MODEL_ID": "hub"}) == mounted
    assert model({"HF_MODEL_ID": "hub"}) == mounted
    (container.model_dir / "config.json").unlink()
    assert model({"HF_MODEL_ID": "hub"}) == "hub"
    container.model_dir.rmdir()
    assert model({"HF_MODEL_ID": "hub"}) == "hub"


def test_no_model_is_an_error_that_names_the_three_ways(container: Container) -> None:
    done = container.run({})

    assert (done.returncode, done.stdout) == (2, "")
    for way in ("SM_VLLM_MODEL", str(container.model_dir), "HF_MODEL_ID"):
        assert way in done.stderr


def test_sagemaker_chooses_the_port(container: Container) -> None:
    env = {"HF_MODEL_ID": "hub", "SM_VLLM_HOST": "127.0.0.1"}

    assert container.argv(env)[:2] == ["--port", "8080"]
    assert container.argv(env | {"SAGEMAKER_BIND_TO_PORT": "9123"})[:2] == ["--port", "9123"]
    assert container.argv(env)[-2:] == ["--host", "127.0.0.1"]


def test_another_port_is_ignored_and_the_log_says_so(container: Container) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_PORT": "9000"})

    assert json.loads(done.stdout)["argv"] == ["--port", "8080", "--model", "hub"]
    assert "SM_VLLM_PORT=9000 is ignored: SageMaker asks on port 8080" in done.stderr


def test_a_variable_without_a_name_is_an_error(container: Container) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_": "x"})

    assert done.returncode == 2
    assert "SM_VLLM_MAX_MODEL_LEN=4096" in done.stderr


@pytest.mark.parametrize("value", [r'["a\u0000b"]', r'["\ud800"]'])
def test_what_no_process_can_be_given_is_an_error(container: Container, value: str) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_SOME_FLAG": value})

    assert done.returncode == 2
    assert "cannot be given to a process" in done.stderr
    assert "Traceback" not in done.stderr


# The log.


def test_the_log_holds_the_command_ready_to_paste(container: Container) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_SPECULATIVE_CONFIG": P_EAGLE})

    assert done.stderr == (
        "serve: exec python3 -m vllm.entrypoints.openai.api_server --port 8080 --model hub"
        f" --speculative-config '{P_EAGLE}'\n"
    )


@pytest.mark.parametrize("name", ["API_KEY", "HF_TOKEN", "SSL_KEYFILE_PASSWORD", "CLIENT_SECRET", "WATERMARK_CONFIG"])
@pytest.mark.parametrize("value", [SECRET, f"--{SECRET}", f'["{SECRET}", "--{SECRET}"]'])
def test_the_log_hides_secrets(container: Container, name: str, value: str) -> None:
    done = container.run({"HF_MODEL_ID": "hub", f"SM_VLLM_{name}": value})

    assert SECRET in done.stdout
    assert SECRET not in done.stderr
    assert "'***'" in done.stderr


@pytest.mark.parametrize("name", ["MAX_NUM_BATCHED_TOKENS", "LONG_PREFILL_TOKEN_THRESHOLD", "TOKENIZER"])
def test_the_log_shows_what_only_sounds_like_a_secret(container: Container, name: str) -> None:
    assert "4711" in container.run({"HF_MODEL_ID": "hub", f"SM_VLLM_{name}": "4711"}).stderr


# Any value at all.

plain_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
any_bytes = st.binary().map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))
traps = st.lists(st.sampled_from(["'", '"', "\\", "%", " ;", " #", "\n", "{%", "%}", "$(x)", "--", " ", "=", "a"]))
words = st.one_of(plain_text, any_bytes, traps.map("".join)).filter(
    lambda text: text.strip()[:1] not in {"[", "{", ""} and text.strip().lower() not in {"true", "false"}
)
lookalikes = st.one_of(words.map("{% {} %}".__add__), words.map("[{}".__add__), words.map('{"a": '.__add__))
objects = st.dictionaries(plain_text, st.one_of(st.integers(), st.booleans(), plain_text), max_size=3)


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


# Pairs: the value of a variable, and the tokens after its flag (None: no flag either).
cases = st.one_of(
    st.one_of(words, lookalikes).map(lambda text: (text, [text])),
    st.sampled_from([("", []), ("true", []), ("TRUE ", []), ("false", None), (" False", None), ("[]", None)]),
    st.lists(plain_text, min_size=1).map(lambda items: (json.dumps(items), items)),
    st.lists(st.integers(), min_size=1).map(lambda items: (json.dumps(items, indent=1), [str(i) for i in items])),
    objects.map(lambda item: (json.dumps(item, indent=2), [json.dumps(item, indent=2)])),
    st.lists(objects, min_size=1).map(lambda items: (json.dumps(items), [compact(item) for item in items])),
    st.lists(objects, min_size=2).map(lambda items: ("\n".join(map(json.dumps, items)), [compact(i) for i in items])),
)
names = st.from_regex(r"SM_VLLM_[A-Z][A-Z0-9_]{0,30}", fullmatch=True).filter(
    lambda name: name not in {"SM_VLLM_MODEL", "SM_VLLM_PORT", "SM_VLLM_MIDDLEWARE"} and "SM_VLLM_ALLOWED" not in name
)
environments = st.dictionaries(names, cases, max_size=40)


def expected_flags(environment: Mapping[str, tuple[str, list[str] | None]]) -> list[str]:
    argv = []
    for name, (_, values) in sorted(environment.items()):
        if values is not None:
            argv += ["--" + name[len("SM_VLLM_") :].replace("_", "-").lower(), *values]
    return argv


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(environment=environments)
def test_any_environment_reaches_vllm_unharmed(
    container: Container, environment: dict[str, tuple[str, list[str] | None]]
) -> None:
    env = {name: value for name, (value, _) in environment.items()}

    argv = container.argv({"SM_VLLM_MODEL": "named", **env})

    assert argv == ["--port", "8080", "--model", "named", *expected_flags(environment)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(environment=environments)
def test_any_environment_becomes_the_flags_it_says(environment: dict[str, tuple[str, list[str] | None]]) -> None:
    assert flags({name: value for name, (value, _) in environment.items()}) == expected_flags(environment)


@settings(max_examples=100, deadline=None)
@given(model=plain_text.filter(bool))
def test_any_model_name_stays_as_it_is(model: str) -> None:
    assert vllm_options({"SM_VLLM_MODEL": model}, Path("/nowhere")) == [["--port", "8080"], ["--model", model]]


# The process.


def test_sigterm_reaches_vllm_and_its_exit_code_is_the_containers(container: Container) -> None:
    with container.start({"HF_MODEL_ID": "hub", "STAND_IN_WAITS": "1"}) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["pid"] == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 43


def test_vllm_that_fails_ends_the_container_with_its_code(container: Container) -> None:
    assert container.run({"HF_MODEL_ID": "hub", "STAND_IN_EXIT_CODE": "17"}).returncode == 17


def test_vllm_starts_within_half_a_second(container: Container) -> None:
    def seconds_until_vllm() -> float:
        before = time.time()
        started: float = json.loads(container.run({"HF_MODEL_ID": "hub", "SM_VLLM_SEED": "1"}).stdout)["started"]
        return started - before

    fastest = min(seconds_until_vllm() for _ in range(5))

    print(f"vLLM's own code runs {fastest * 1000:.0f} ms after the container starts")
    assert fastest < 0.5


def test_any_image_can_run_it() -> None:
    tree = ast.parse(SERVE.read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}

    assert {str(module).split(".")[0] for module in modules} <= sys.stdlib_module_names
    assert os.access(SERVE, os.X_OK)
    assert SERVE.read_text().startswith("#!/usr/bin/env python3\n")
