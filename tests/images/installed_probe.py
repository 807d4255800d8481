"""Runs in a Python that has packages: says what they do there, as JSON on the last line.

Stands for vLLM's server in an image, and is run as it is in an environment that pip has filled.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackagePath, distribution
from pathlib import Path

ASKED = json.loads(os.environ["PROBE"])  # names of distributions
LOADED = [name for name in ("_distutils_hack", "coverage", "sphinxcontrib") if name in sys.modules]
NOTES = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")
os.environ.pop("COVERAGE_PROCESS_START", None)


def within(path: PackagePath) -> str:
    """Its path below where packages lie, or below the whole environment."""
    return "/".join(part for part in path.parts if part != "..").replace("include/site/python3.11/", "include/")


def is_broken(path: PackagePath) -> bool:
    """Whether the file is not what RECORD says."""
    file = Path(str(path.locate()))
    if not file.is_file():
        return True
    if path.hash is None:
        return path.name not in NOTES and path.suffix != ".pyc"
    found = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode()
    return (path.hash.mode, path.hash.value) != ("sha256", found.rstrip("="))


def outcome(module: str) -> str:
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    return "imported"


def answer(command: str) -> object:
    """What it says to --version, without the places that differ."""
    program = shutil.which(command)
    if program is None:
        return "not found"
    done = subprocess.run(
        [program, "--version"], stdin=subprocess.DEVNULL, stdout=-1, stderr=-2, text=True, timeout=60, check=False
    )
    said = done.stdout
    for place in (str(Path(program).parents[1]), os.environ["PLACE"]):
        said = said.replace(place, "PLACE")
    return [done.returncode, said.replace("PLACE/lib/python3.11/site-packages", "PLACE")]


def told(name: str) -> dict[str, object]:
    found = distribution(name)
    files = [path for path in found.files or () if path.suffix != ".pyc"]
    commands = sorted(path.name for path in files if within(path).startswith("bin/"))
    others = [path for path in files if not within(path).startswith("bin/") and path.name not in NOTES]
    tops = {within(path).split("/")[0].split(".")[0] for path in others if path.suffix in (".py", ".so")}
    return {
        "version": found.version,
        "broken": [within(path) for path in files if is_broken(path)],
        "files": {within(path): path.hash.value if path.hash else "" for path in others},
        "imports": {top: outcome(top) for top in sorted(tops) if top.isidentifier()},
        "commands": {command: answer(command) for command in commands},
        "entry points": sorted(map(str, found.entry_points)),
    }


print(json.dumps({"loaded": LOADED, **{name: told(name) for name in ASKED}}))
