"""`compile` and `serve` of vLLM's container with a real vLLM, which compiles: the tiny pair on this machine's CPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from toolkit.platforms.local.container import free_port

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "recipes" / "tiny" / "models"
PARTS = {"max_model_len": "512"}
STARTED = "Application startup complete"
LONGEST_SECONDS = 900  # to compile on a busy machine


class Program:
    """One of the two as a process, with models and home in a folder of its own."""

    def __init__(self, name: str, folder: Path, artifacts: Path, key: str, env: Mapping[str, str] = {}) -> None:
        folder.mkdir(exist_ok=True)
        self._log, self._temporary = folder / "log", tempfile.mkdtemp()
        for model in ("target", "p-eagle"):
            shutil.copytree(MODELS / model, folder / model, dirs_exist_ok=True)
        drafter = {"model": str(folder / "p-eagle"), "num_speculative_tokens": 7, "parallel_drafting": True}
        basics = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "TMPDIR": self._temporary,  # sockets are made there, and their paths end at 107 characters
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "SAGEMAKER_BASE_DIR": str(folder),
            "SAGEMAKER_BIND_TO_PORT": str(free_port()),
            "SM_VLLM_HOST": "127.0.0.1",
            "SM_VLLM_MODEL": str(folder / "target"),
            "SM_VLLM_SERVED_MODEL_NAME": "tiny",
            "SM_VLLM_SPECULATIVE_CONFIG": json.dumps({"method": "eagle3", **drafter}),
            "SM_VLLM_MAX_MODEL_LEN": "512",
            "SM_VLLM_MAX_NUM_SEQS": "4",
            "SM_VLLM_DTYPE": "float32",
            "SM_VLLM_KV_CACHE_MEMORY_BYTES": "268435456",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "TOOLKIT_VLLM_FORKS": "1",  # as the local platform sets it, and the next one too
            "VLLM_USE_AOT_COMPILE": "0",
            "TOOLKIT_ARTIFACTS": str(artifacts),
            "TOOLKIT_ARTIFACTS_KEY": key,
            "TOOLKIT_ARTIFACTS_PARTS": json.dumps(PARTS),
        }
        command = [sys.executable, str(ROOT / "containers" / "vllm" / name)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=basics | dict(env), stdout=log, stderr=log, cwd=folder, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def log_with(self, *words: str) -> str:
        """The log once it has one of the words, or when the process has ended."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline and not any(word in self.log for word in words):
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        return self.log

    def end(self) -> None:
        """As SageMaker ends it."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.kill()

    def kill(self) -> None:
        """At once, with all that it has started: a vLLM that compiles heeds no other signal before it is done."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self._temporary, ignore_errors=True)


def forget(key: str) -> None:
    """Remove what the programs leave outside of their folders."""
    shutil.rmtree(f"/tmp/toolkit-models-{os.getuid()}/{key}", ignore_errors=True)
