"""Size and time of installing the toolkit, core and extras, beside AWS's SDK: each into a new environment, no cache.

pip's and uv's times depend on the network; the sizes do not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from toolkit.cli.table import table

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
WHAT = ("", "openai", "kubernetes", "sagemaker", "bench")

run = partial(subprocess.run, capture_output=True, text=True, check=True)


def installed(folder: Path, requirement: str) -> tuple[str, str, str]:
    """Megabytes, seconds and the number of packages of a new environment with it."""
    run([UV, "venv", "--python", sys.executable, folder / "venv"])
    python = folder / "venv" / "bin" / "python"
    started = time.monotonic()
    run([UV, "pip", "install", "--python", python, "--cache-dir", folder / "cache", requirement])
    seconds = time.monotonic() - started
    size = run(["du", "-s", "--apparent-size", "-B", "MB", folder / "venv"]).stdout.partition("MB")[0]
    packages = run([UV, "pip", "list", "--python", python]).stdout.count("\n") - 2
    return size, f"{seconds:.0f}", str(packages)


def test_installation(tmp_path: Path) -> None:
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    rows = []
    for extra in WHAT:
        name = f"peagle-toolkit[{extra}]" if extra else "peagle-toolkit"
        rows.append((name, *installed(tmp_path / (extra or "core"), f"{name} @ {wheel.as_uri()}")))
    rows.append(("sagemaker", *installed(tmp_path / "sdk", "sagemaker")))
    print("\n" + table(("what", "MB", "seconds", "packages"), rows))
