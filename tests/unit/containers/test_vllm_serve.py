"""`containers/vllm/serve`, run as SageMaker runs it: a process, an environment, and a `vllm` to become."""

from __future__ import annotations

import ast
import getpass
import json
import os
import pwd
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CONTAINERS = Path(__file__).parents[3] / "containers"
SERVE = CONTAINERS / "vllm" / "serve"
SHARED = CONTAINERS / "on-vllm"
PROGRAMS = sorted([*CONTAINERS.glob("*/serve"), *CONTAINERS.glob("*/compile")])
ENTRYPOINT = runpy.run_path(str(SHARED / "entrypoint.py"))
vllm_options, SEVERAL_VALUES = ENTRYPOINT["vllm_options"], ENTRYPOINT["SEVERAL_VALUES"]
vllm_environment = ENTRYPOINT["vllm_environment"]
nvidia_driver = runpy.run_path(str(SERVE))["nvidia_driver"]
MIDDLEWARE = ["--middleware", "serve_middleware.GenerationHealth"]
MIDDLEWARE += ["--middleware", "serve_middleware.ProgressHealth", "--middleware", "serve_middleware.Drain"]
SECRET = "hunter2"
P_EAGLE = '{"method": "eagle3", "model": "/opt/ml/head", "num_speculative_tokens": 7, "parallel_drafting": true}'

# Stands where vLLM's server does: says what it was given, then ends or waits as its own variables ask.
STAND_IN = """
import importlib.util, json, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))
found = {name: importlib.util.find_spec(name) for name in ("serve_middleware", "extra")}
print(json.dumps({
    "argv": sys.argv[1:],
    "pid": os.getpid(),
    "home": os.environ["HOME"],
    "imports": {name: spec and spec.origin for name, spec in found.items()},
}), flush=True)
if os.environ.get("STAND_IN_WAITS"):
    signal.pause()
sys.exit(int(os.environ.get("STAND_IN_EXIT_CODE", 0)))
"""

# Says what it finds of packages that an image adds, itself and in a process of its own as vLLM starts its engine.
STAND_IN_WITH_PACKAGES = """
import json, multiprocessing, os, subprocess, sys
if __name__ == "__main__":
    import extra
    own = os.environ.pop("SAID")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        child = pool.apply(os.getenv, ["SAID"])
    command = subprocess.run(["little"], stdout=subprocess.PIPE, text=True).stdout
    print(json.dumps({"SAID": [own, child], "extra": extra.__file__, "command": command}))
"""


class Container:
    """A place to run the entrypoint in: a stand-in for vLLM, an /opt/ml, and nothing of the caller's environment."""

    def __init__(self, root: Path) -> None:
        self.base_dir = root / "opt" / "ml"
        self.model_dir = self.base_dir / "model"
        self.model_dir.mkdir(parents=True)
        self.packages = root / "packages"
        install_stand_in(self.packages, "0.32.0")

    def start(self, env: Mapping[str, str], program: Path = SERVE, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Starts it the way SageMaker does: `docker run IMAGE serve`, with the environment of CreateModel."""
        basics = {
            "HOME": str(self.base_dir),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(self.packages),
            "SAGEMAKER_BASE_DIR": str(self.base_dir),
        }
        return subprocess.Popen(
            [*before, program, "serve"],
            env=basics | dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, env: Mapping[str, str], program: Path = SERVE) -> subprocess.CompletedProcess[str]:
        process = self.start(env, program)
        stdout, stderr = process.communicate(timeout=30)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def said(self, env: Mapping[str, str], program: Path = SERVE) -> dict[str, Any]:
        """What vLLM says that it was given."""
        done = self.run(env, program)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def argv(self, env: Mapping[str, str]) -> list[str]:
        """The arguments that vLLM gets besides our middleware."""
        argv = self.said(env)["argv"]
        assert isinstance(argv, list)
        assert argv[: len(MIDDLEWARE)] == MIDDLEWARE
        return argv[len(MIDDLEWARE) :]


def install_stand_in(packages: Path, version: str) -> None:
    server = packages / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.parent.mkdir(parents=True)
    server.write_text(STAND_IN)
    for package in server.parents[:3]:
        (package / "__init__.py").touch()
    (packages / "vllm" / "_version.py").write_text(f"__version__ = version = '{version}'\n__version_tuple__ = ()\n")


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def flags(env: Mapping[str, str]) -> list[str]:
    """What the entrypoint makes of SM_VLLM_* variables, without a process; port and model left off."""
    options = vllm_options({"HF_MODEL_ID": "org/model", **env}, Path("/nowhere"))
    assert options[:2] == [["--port", "8080"], ["--model", "org/model"]]
    return [token for option in options[2:] for token in option]


def test_vllm_imports_nothing_of_the_working_folder(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    assert container.said({"HF_MODEL_ID": "org/model"})["argv"]


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
        pytest.param('[1, 2.5, true, null, "é"]', ["1", "2.5", "true", "é"], id="a list of scalars"),
        pytest.param('[{"name": "x"}, [1, 2]]', ['{"name":"x"}', "[1,2]"], id="a list of objects and lists"),
        pytest.param('{"a": 1} {"b": [2, 3]}', ['{"a":1}', '{"b":[2,3]}'], id="several objects"),
    ],
)
def test_a_variable_is_a_flag_and_its_values(value: str, values: list[str]) -> None:
    assert flags({"SM_VLLM_LORA_MODULES": value}) == ["--lora-modules", *values]


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
    assert flags({"SM_VLLM_LORA_MODULES": value}) == []


@pytest.mark.parametrize("flag", ["--allowed-origins", "--middleware", "--tokenizer", "--some-flag"])
@pytest.mark.parametrize("value", ['["a", "--host"]', "[]", '{"a": 1} {"b": 2}'])
def test_flags_that_take_one_value_get_it_whole(flag: str, value: str) -> None:
    name = "SM_VLLM_" + flag.removeprefix("--").replace("-", "_").upper()

    assert flags({name: value}) == [flag, value]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SM_VLLM_TOKENIZER", "--trust-remote-code"),
        ("SM_VLLM_ENFORCE_EAGER", "-O3"),
        ("SM_VLLM_MODEL", "--trust-remote-code"),
        ("SM_VLLM_LORA_MODULES", '["a", "--trust-remote-code"]'),
    ],
)
def test_a_value_that_would_be_another_flag_is_an_error(container: Container, variable: str, value: str) -> None:
    done = container.run({"HF_MODEL_ID": "hub", variable: value})

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{variable} has a value that begins with a dash" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUSTOM_SCRIPT_FILENAME", "{model}/inference.py"),
        ("CUSTOM_FASTAPI_PING_HANDLER", "{model}/../model/inference.py:ping"),
        ("PYTHONPATH", "/usr/lib/extra:{model}"),
    ],
)
def test_a_variable_that_leads_to_python_of_the_model_is_an_error(
    container: Container, variable: str, value: str
) -> None:
    done = container.run({"HF_MODEL_ID": "hub", variable: value.format(model=container.model_dir)})

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{variable} names {container.model_dir}" in done.stderr
    assert f"Python below {container.base_dir} is not run here. Put it into the image" in done.stderr


def test_a_negative_number_is_a_value() -> None:
    assert flags({"SM_VLLM_SEED": "-1", "SM_VLLM_WATERMARK": "-.5"}) == ["--seed", "-1", "--watermark", "-.5"]


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

    assert json.loads(done.stdout)["argv"] == [*MIDDLEWARE, "--port", "8080", "--model", "hub"]
    assert "SM_VLLM_PORT=9000 is ignored: SageMaker asks on port 8080" in done.stderr


def test_a_variable_without_a_name_is_an_error(container: Container) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_": "x"})

    assert done.returncode == 2
    assert "SM_VLLM_MAX_MODEL_LEN=4096" in done.stderr


@pytest.mark.parametrize("value", [r'["a\u0000b"]', r'["\ud800"]'])
def test_what_no_process_can_be_given_is_an_error(container: Container, value: str) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_LORA_MODULES": value})

    assert done.returncode == 2
    assert "cannot be given to a process" in done.stderr
    assert "Traceback" not in done.stderr


# What vLLM gets besides.


def test_vllm_can_import_our_middleware(container: Container) -> None:
    imports = container.said({"HF_MODEL_ID": "hub"})["imports"]

    assert imports["serve_middleware"] == str(SHARED / "serve_middleware.py")


def test_a_middleware_of_the_users_stands_around_ours(container: Container) -> None:
    env = {"HF_MODEL_ID": "hub", "SM_VLLM_MIDDLEWARE": "their.Own"}

    assert container.argv(env)[-2:] == ["--middleware", "their.Own"]  # vLLM puts each around those before it


def test_packages_that_the_image_adds_come_before_those_of_its_base(container: Container, tmp_path: Path) -> None:
    program = tmp_path / "toolkit" / "serve"
    added = program.parent / "site-packages"
    install_stand_in(added, "0.33.0")
    (added / "extra.py").touch()
    for file in (SERVE, *SHARED.glob("*.py")):
        shutil.copy(file, program.parent)

    done = container.run({"HF_MODEL_ID": "hub"}, program)

    assert json.loads(done.stdout)["imports"]["extra"] == str(added / "extra.py")
    assert done.stderr.startswith("serve: vLLM 0.33.0, ")


def test_commands_and_pth_files_of_packages_that_the_image_adds_work(container: Container, tmp_path: Path) -> None:
    program = tmp_path / "toolkit" / "serve"
    added = program.parent / "site-packages"
    (added / "bin").mkdir(parents=True)
    (added / "further").mkdir()
    (added / "further" / "extra.py").touch()
    (added / "added.pth").write_text("further\nimport os; os.environ['SAID'] = 'by a pth file'\n")
    command = added / "bin" / "little"
    command.write_text("#!/usr/bin/env python3\nprint('here')\n")
    command.chmod(0o755)
    for file in (SERVE, *SHARED.glob("*.py")):
        shutil.copy(file, program.parent)
    server = container.packages / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.write_text(STAND_IN_WITH_PACKAGES)

    said = container.said({"HF_MODEL_ID": "hub"}, program)

    assert said == {"SAID": ["by a pth file"] * 2, "extra": str(added / "further" / "extra.py"), "command": "here\n"}


NOBODY_S_NUMBER = 54321


def name_of_a_user_without_an_entry(env: Mapping[str, str]) -> str:
    """What PyTorch is told when it asks who it runs as."""
    os.setuid(NOBODY_S_NUMBER)
    os.environ.clear()
    os.environ.update(vllm_environment(env))
    return getpass.getuser()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can become another user")
@pytest.mark.parametrize(("env", "name"), [({}, "user-54321"), ({"LOGNAME": ""}, "user-54321")])
def test_a_user_without_an_entry_has_a_name(env: Mapping[str, str], name: str) -> None:
    with pytest.raises(KeyError):
        pwd.getpwuid(NOBODY_S_NUMBER)
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        assert pool.submit(name_of_a_user_without_an_entry, env).result() == name


def test_a_name_that_is_set_stays() -> None:
    env = vllm_environment({"USER": "me", "LOGNAME": "too"})
    assert (env["USER"], env["LOGNAME"]) == ("me", "too")


def test_a_home_that_can_be_written_to_stays(container: Container, tmp_path: Path) -> None:
    home = str(tmp_path / "not" / "made" / "yet")

    assert container.said({"HF_MODEL_ID": "hub", "HOME": home})["home"] == home


@pytest.mark.parametrize("home", ["", "/dev/null", "/dev/null/home"])
def test_without_a_home_to_write_to_caches_go_to_the_temporary_folder(container: Container, home: str) -> None:
    assert container.said({"HF_MODEL_ID": "hub", "HOME": home})["home"] == "/tmp"
    assert container.said({"HF_MODEL_ID": "hub", "HOME": home, "TMPDIR": "/var/tmp"})["home"] == "/var/tmp"


# The log.


def test_the_log_holds_versions_and_the_command_ready_to_paste(container: Container) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_SPECULATIVE_CONFIG": P_EAGLE})

    versions, _, command = done.stderr.partition(", exec ")
    python = ".".join(map(str, sys.version_info[:3]))
    assert versions.startswith(f"serve: vLLM 0.32.0, Python {python}, ")
    assert versions.endswith(nvidia_driver(Path("/proc/driver/nvidia/version")))
    assert command == (
        "python3 -m vllm.entrypoints.openai.api_server --middleware serve_middleware.GenerationHealth"
        " --middleware serve_middleware.ProgressHealth"
        f" --middleware serve_middleware.Drain --port 8080 --model hub --speculative-config '{P_EAGLE}'\n"
    )


def test_a_vllm_without_a_version_is_started_all_the_same(container: Container) -> None:
    (container.packages / "vllm" / "_version.py").unlink()

    done = container.run({"HF_MODEL_ID": "hub"})

    assert done.returncode == 0
    assert done.stderr.startswith("serve: vLLM of unknown version, ")


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n", "535.183.01"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)\n"
            "GCC version:  gcc version 11.5.0\n",
            "580.95.05",
        ),
    ],
)
def test_the_driver_is_read_from_the_kernel(tmp_path: Path, text: str, driver: str) -> None:
    (tmp_path / "version").write_text(text)

    assert nvidia_driver(tmp_path / "version") == f"NVIDIA driver {driver}"


def test_a_machine_without_a_driver_says_so(tmp_path: Path) -> None:
    assert nvidia_driver(tmp_path / "version") == "no NVIDIA driver"


@pytest.mark.parametrize("name", ["API_KEY", "HF_TOKEN", "SSL_KEYFILE_PASSWORD", "CLIENT_SECRET", "WATERMARK_CONFIG"])
@pytest.mark.parametrize("value", [SECRET, f" {SECRET}", f'["{SECRET}", "{SECRET}"]'])
def test_the_log_hides_secrets(container: Container, name: str, value: str) -> None:
    done = container.run({"HF_MODEL_ID": "hub", f"SM_VLLM_{name}": value})

    assert SECRET in done.stdout
    assert SECRET not in done.stderr
    assert "'***'" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("KV_TRANSFER_CONFIG", f'{{"host": "h", "deep": [{{"db_password": "{SECRET}"}}]}}', '"db_password": "***"'),
        ("MODEL_LOADER_EXTRA_CONFIG", f'{{"aws_access_key": "{SECRET}", "num_key_heads": 8}}', '"num_key_heads": 8'),
        ("KV_TRANSFER_CONFIG", f'{{"url": "redis://me:{SECRET}@host/0"}}', "redis://***@host/0"),
        ("DOWNLOAD_DIR", f"https://{SECRET}@host/a", "https://***@host/a"),
        ("KV_TRANSFER_CONFIG", '{"a": ' + "[" * 600 + f'{{"token": "{SECRET}"}}' + "]" * 600 + "}", "***"),
    ],
)
def test_the_log_hides_secrets_within_values(container: Container, name: str, value: str, shown: str) -> None:
    done = container.run({"HF_MODEL_ID": "hub", f"SM_VLLM_{name}": value})

    assert SECRET in done.stdout
    assert SECRET not in done.stderr
    assert shown in done.stderr


def test_a_secret_may_begin_with_a_dash(container: Container) -> None:
    done = container.run({"HF_MODEL_ID": "hub", "SM_VLLM_API_KEY": f"-{SECRET}"})

    assert f'"--api-key=-{SECRET}"' in done.stdout
    assert "'--api-key=***'" in done.stderr
    assert SECRET not in done.stderr


@pytest.mark.parametrize("name", ["MAX_NUM_BATCHED_TOKENS", "LONG_PREFILL_TOKEN_THRESHOLD", "TOKENIZER"])
def test_the_log_shows_what_only_sounds_like_a_secret(container: Container, name: str) -> None:
    assert "4711" in container.run({"HF_MODEL_ID": "hub", f"SM_VLLM_{name}": "4711"}).stderr


# Any value at all.

plain_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).filter(
    lambda text: not text.startswith("-")
)
any_bytes = st.binary().map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))
traps = st.lists(st.sampled_from(["'", '"', "\\", "%", " ;", " #", "\n", "{%", "%}", "$(x)", "--", " ", "=", "a"]))
words = st.one_of(plain_text, any_bytes, traps.map("".join)).filter(
    lambda text: (
        text.strip()[:1] not in {"[", "{", ""}
        and not text.startswith("-")
        and text.strip().lower() not in {"true", "false"}
    )
)
lookalikes = st.one_of(words.map("{% {} %}".__add__), words.map("[{x".__add__), words.map('{"a"x'.__add__))
objects = st.dictionaries(plain_text, st.one_of(st.integers(), st.booleans(), plain_text), max_size=3)


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


# Pairs: the value of a variable, and the tokens after its flag (None: no flag either).
single = st.one_of(
    st.one_of(words, lookalikes).map(lambda text: (text, [text])),
    st.sampled_from([("", []), ("true", []), ("TRUE ", []), ("false", None), (" False", None)]),
    objects.map(lambda item: (json.dumps(item, indent=2), [json.dumps(item, indent=2)])),
)
several = st.one_of(
    single,
    st.just(("[]", None)),
    st.lists(plain_text, min_size=1).map(lambda items: (json.dumps(items), items)),
    st.lists(st.integers(), min_size=1).map(lambda items: (json.dumps(items, indent=1), [str(i) for i in items])),
    st.lists(objects, min_size=1).map(lambda items: (json.dumps(items), [compact(item) for item in items])),
    st.lists(objects, min_size=2).map(lambda items: ("\n".join(map(json.dumps, items)), [compact(i) for i in items])),
)
takes_several = sorted("SM_VLLM_" + flag[2:].upper().replace("-", "_") for flag in SEVERAL_VALUES)
takes_one = st.from_regex(r"SM_VLLM_[A-Z][A-Z0-9_]{0,30}", fullmatch=True).filter(
    lambda name: name not in {"SM_VLLM_MODEL", "SM_VLLM_PORT", *takes_several}
)
environments = st.builds(
    lambda one, many: one | many,
    st.dictionaries(takes_one, single, max_size=30),
    st.dictionaries(st.sampled_from(takes_several), several),
)


def expected_flags(environment: Mapping[str, tuple[str, list[str] | None]]) -> list[str]:
    argv = []
    for name, (_, values) in sorted(environment.items()):
        if values is not None:
            argv += ["--" + name[len("SM_VLLM_") :].replace("_", "-").lower(), *values]
    return argv


@settings(
    max_examples=10,  # each is a process; the next test, which needs none, has more
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


@pytest.mark.parametrize("file", [*PROGRAMS, *SHARED.glob("*.py")], ids=lambda file: f"{file.parent.name}/{file.name}")
def test_any_image_can_run_it(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 10))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    ours = {module.stem for module in SHARED.glob("*.py")}

    assert {str(module).split(".")[0] for module in modules} - ours <= sys.stdlib_module_names


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_it_is_a_program(program: Path) -> None:
    assert os.access(program, os.X_OK)
    assert program.read_text().startswith("#!/usr/bin/env python3\n")
