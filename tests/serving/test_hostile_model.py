"""Real vLLM serves models whose folders hold all that a publisher could have somebody else run, at /opt/ml/model.

vLLM's layer for SageMaker looks there and nowhere else. So each server runs in a mount namespace of its own, where the
target is at /opt/ml/model and its head beside it, as SageMaker mounts them. It is started as our container does, and as
AWS's does: by the genuine `standard-supervisor`, in front of vLLM's server, with the variables of the request.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir

import pytest

from toolkit.engines.arguments import environment
from toolkit.home import cache, containers_dir
from toolkit.loading import load
from toolkit.platforms.local.container import free_port

BIN = Path(sys.executable).parent
MODELS = Path(__file__).parents[2] / "recipes" / "tiny" / "models"
MODEL, HEAD = "/opt/ml/model", "/opt/ml/additional-model-data-sources/drafter"
OURS = [str(containers_dir() / "vllm" / "serve"), "serve"]
AWS = [str(BIN / "standard-supervisor"), "python3", "-m", "vllm.entrypoints.openai.api_server"]
CODE = ("model.py", "inference.py", "modeling_tiny.py", "sitecustomize.py", "usercustomize.py", "torch.py", "vllm.py")
NAMESPACE = ["unshare", "--mount", "--map-root-user", "sh", "-ec"]
MOUNTED = 'mkdir -p /opt/ml; mount --bind "$1" /opt/ml; cd "$2"; shift 2; exec "$@"'
HEALTHY_S = 240


@pytest.fixture
def opt_ml(tmp_path: Path) -> Path:
    """What is mounted: target and head with hostile files, each of which would leave its name in `ran`."""
    if subprocess.run([*NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: this machine allows no mount namespace")
    folder = tmp_path / "opt-ml"
    for model, source in ((MODEL, "target"), (HEAD, "p-eagle")):
        place = folder / Path(model).relative_to("/opt/ml")
        shutil.copytree(MODELS / source, place)
        make_hostile(place, tmp_path / "ran")
    return folder


def make_hostile(folder: Path, ran: Path) -> None:
    ran.mkdir(exist_ok=True)
    for name in CODE:
        (folder / name).write_text(f"open({str(ran / name)!r}, 'w')\n")
    (folder / "evil.pth").write_text(f"import pathlib; pathlib.Path({str(ran / 'pth')!r}).touch()\n")
    package = folder / "evil"
    package.mkdir()
    (package / "setup.py").write_text(f"open({str(ran / 'setup.py')!r}, 'w')\n")
    (folder / "requirements.txt").write_text(f"--no-index\n{package}\n")
    (folder / "serving.properties").write_text("option.entryPoint=model.py\n")


@contextmanager
def served(command: list[str], opt_ml: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """The address of the server, once it is healthy or has ended.

    Our container may be started in a folder that is hostile, too. That of AWS's image is `/`.
    """
    current = Path("/")
    if command == OURS:
        current = opt_ml.parent / "current"
        current.mkdir()
        make_hostile(current, opt_ml.parent / "ran")
    port = free_port()
    env = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(opt_ml.parent),
        "TMPDIR": gettempdir(),  # short: paths of sockets end at 107 characters
        "SUPERVISOR_CONFIG_PATH": str(opt_ml.parent / "supervisord.conf"),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else all of them on this machine share one core
        "OMP_NUM_THREADS": "1",
        "VLLM_CACHE_ROOT": str(cache() / "vllm"),  # else it looks at each model's class anew, in half a minute
        **variables,
    }
    program = [*command, *(["--port", str(port), *flags(variables)] if command == AWS else [])]
    with (opt_ml.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [*NAMESPACE, MOUNTED, "sh", opt_ml, current, *program],
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until_healthy(process, address)
        yield address
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def flags(variables: Mapping[str, str]) -> list[str]:
    """What AWS's entrypoint makes of SM_VLLM_* variables."""
    named = {name.removeprefix("SM_VLLM_"): value for name, value in variables.items() if name.startswith("SM_VLLM_")}
    options = [[f"--{name.lower().replace('_', '-')}", value] for name, value in named.items() if value != "false"]
    return [text for option in options for text in option if text not in ("", "true")]


def until_healthy(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + HEALTHY_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{address}/ping", timeout=2):
            return
        time.sleep(0.25)


def answer(address: str) -> str:
    body = b'{"prompt": "Count to nine.", "max_tokens": 4}'
    request = urllib.request.Request(f"{address}/invocations", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def variables() -> dict[str, str]:
    """What a request for this pair would give to a container."""
    given = environment(load("tiny/p-eagle"))
    draft = given["SM_VLLM_SPECULATIVE_CONFIG"]
    assert HEAD in draft, draft
    return {**given, "SM_VLLM_MODEL": MODEL}


@pytest.mark.parametrize("command", [OURS, AWS], ids=["ours", "aws"])
def test_nothing_of_a_model_runs(command: list[str], opt_ml: Path, tmp_path: Path) -> None:
    with served(command, opt_ml, variables()) as address:
        assert '"choices"' in answer(address), (tmp_path / "log").read_text()
    assert list((tmp_path / "ran").iterdir()) == []


def test_without_the_variables_it_does(opt_ml: Path, tmp_path: Path) -> None:
    """The control: the same files, the same program, without what the toolkit sets."""
    bare = {name: value for name, value in variables().items() if name.startswith("SM_VLLM_")}
    others = {"STANDARD_AUTO_INSTALL_REQ": "false", "TOOLKIT_VLLM_FORKS": "1"}  # half the start
    with served(AWS, opt_ml, {**bare, **others}):
        assert (tmp_path / "ran" / "model.py").exists()
