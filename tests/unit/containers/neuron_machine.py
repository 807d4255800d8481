"""A machine with Neuron devices as far as the entrypoints look: the host's files, packages, a stand-in for vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.platforms.local.container import free_port

CONTAINERS = Path(__file__).parents[3] / "containers"
SHARED = CONTAINERS / "on-vllm"
KEY = "k1"
PARTS = {"compiler": "2.21.33363", "tensor_parallel": 32}
ARTIFACT_VARIABLES = {
    "TOOLKIT_ARTIFACTS_KEY": KEY,
    "TOOLKIT_ARTIFACTS_PARTS": json.dumps(PARTS),
}

# Stands where vLLM's server does. It says what it was given, and in its cache leaves what it "compiled". Then it ends,
# or answers /ping: some times with 503 first.
_STAND_IN = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"stopped\\n"), os._exit(0)))
place = os.environ.get("NEURON_COMPILED_ARTIFACTS") or os.environ.get("VLLM_CACHE_ROOT")
found = sorted(str(path.relative_to(place)) for path in Path(place).rglob("*")) if place else []
print(json.dumps({"argv": sys.argv[1:], "pid": os.getpid(), "env": dict(os.environ), "found": found}), flush=True)
if place and "STAND_IN_SAVES_NOTHING" not in os.environ:
    Path(place, "graph").mkdir(parents=True, exist_ok=True)
    Path(place, "graph", "model.neff").write_text("compiled")
if "STAND_IN_EXIT_CODE" in os.environ:
    print("no such head", flush=True)
    os.kill(os.getpid(), 9) if os.environ["STAND_IN_EXIT_CODE"] == "SIGKILL" else None
    sys.exit(int(os.environ["STAND_IN_EXIT_CODE"]))
reasons = json.loads(os.environ.get("STAND_IN_REASONS", "[]"))

class Ping(BaseHTTPRequestHandler):
    def do_GET(self):
        reason = reasons.pop(0) if reasons else ""
        self.send_response(503 if reason else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"reason": reason}).encode())

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Ping).serve_forever()
"""
_PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {shared!r})
from neuron_compile import compile_for
from neuron_entrypoint import {engine}, Places, serve
host = Path({host!r})
places = Places(host / "version", host / "dev", host / "infiniband", host / "status")
sys.exit({function}({engine}, places))
"""
_STATUS = """Package: aws-neuronx-collectives
Version: 2.28.27.0

Package: aws-neuronx-runtime-lib
Status: install ok installed
Version: 2.28.23.0-dd5879008

Package: bash
Version: 5.1
"""
_DISTRIBUTIONS = {
    "vllm": "0.9.1",
    "vllm_neuron": "0.24.0.1.1.0",
    "neuronx_distributed_inference": "0.6.10598",
    "neuronx_cc": "2.21.33363.0",
}


@dataclass(frozen=True)
class Engine:
    """One of the two, for a test: its constant, its folder among the artifacts, and the variable that names it."""

    constant: str
    folder: str
    variable: str

    def __str__(self) -> str:
        return self.constant


NXD_INFERENCE = Engine("NXD_INFERENCE", "nxd", "NEURON_COMPILED_ARTIFACTS")
VLLM_NEURON = Engine("VLLM_NEURON", "cache", "VLLM_CACHE_ROOT")
ENGINES = [NXD_INFERENCE, VLLM_NEURON]


class Machine:
    """Sixteen devices, driver 2.21, no EFA; nothing of the caller's environment."""

    def __init__(self, root: Path) -> None:
        self.host, self.base_dir, self.temporary = root / "host", root / "ml", root / "tmp"
        self.artifacts = root / "artifacts"
        self.port = free_port()
        for folder in (self.host / "dev", self.host / "infiniband", self.base_dir, self.temporary):
            folder.mkdir(parents=True)
        (self.host / "version").write_text("2.21.37.0\n")
        (self.host / "status").write_text(_STATUS)
        for number in range(16):
            (self.host / "dev" / f"neuron{number}").touch()
        (self.host / "dev" / "neuron_other").touch()
        self.packages = root / "packages"
        self.server = self.packages / "vllm" / "entrypoints" / "openai" / "api_server.py"
        self.server.parent.mkdir(parents=True)
        self.server.write_text(_STAND_IN)
        for package in self.server.parents[:3]:
            (package / "__init__.py").touch()
        for name, version in _DISTRIBUTIONS.items():
            described = self.packages / f"{name}-{version}.dist-info"
            described.mkdir()
            (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def mount(self) -> dict[str, str]:
        """Environment with which the folder of artifacts has the rules of Mountpoint for S3."""
        path = f"{Path(__file__).with_name('mountpoint')}:{self.packages}"
        return {"STAND_IN_MOUNTPOINT": str(self.artifacts), "PYTHONPATH": path}

    def record(self, folder: str, key: str = KEY, parts: Mapping[str, object] = PARTS) -> None:
        """Put artifacts there as `compile` leaves them."""
        (self.artifacts / folder / "graph").mkdir(parents=True)
        (self.artifacts / folder / "graph" / "model.neff").write_text("compiled")
        (self.artifacts / "artifacts.json").write_text(json.dumps({"key": key, "parts": parts}))

    @property
    def variables(self) -> dict[str, str]:
        """The environment of every container."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.base_dir),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(self.packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SAGEMAKER_BASE_DIR": str(self.base_dir),
            "SAGEMAKER_BIND_TO_PORT": str(self.port),
            "SM_VLLM_MODEL": "org/model",
        }

    def start(
        self, function: str, engine: Engine, env: Mapping[str, str], before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start `serve` or `compile_for` of that engine."""
        text = _PROGRAM.format(shared=str(SHARED), host=str(self.host), engine=engine.constant, function=function)
        return subprocess.Popen(
            [*before, sys.executable, "-c", text],
            env=self.variables | dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, function: str, engine: Engine, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        process = self.start(function, engine, env)
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def serves(self, engine: Engine, env: Mapping[str, str]) -> dict[str, Any]:
        """What vLLM says that it was given by `serve`."""
        done = self.run("serve", engine, {"STAND_IN_EXIT_CODE": "0", **env})
        assert done.returncode == 0, done.stderr
        return said(done.stdout)

    def refusal(self, engine: Engine, env: Mapping[str, str]) -> str:
        """What `serve` writes that does not start vLLM."""
        done = self.run("serve", engine, env)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr


def said(stdout: str) -> dict[str, Any]:
    """What the stand-in says first."""
    found: dict[str, Any] = json.loads(stdout.splitlines()[0])
    return found
