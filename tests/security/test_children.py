"""Processes that we start run nothing of the current folder, know none of our secrets, and leave nothing to read."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.children import BUILDERS, OWN, PIP, TRAINING, own_variables, python_command, start_process
from toolkit.errors import BuildError
from toolkit.images.wheels import find_wheel
from toolkit.platforms.local.trainer import LocalTrainer

ROOT = Path(__file__).parents[2]
HOSTILE = ("pip", "torch", "toolkit", "transformers", "json")
MODULES = ("subprocess", "multiprocessing", "runpy", "pty", "concurrent.futures.process")
OF_OS = ("exec", "spawn", "posix_spawn", "fork", "system", "popen")
NAMED = {
    "containers/on-vllm/entrypoint.py: os.execve",
    "containers/on-vllm/init.py: os.fork",
    "containers/on-vllm/compiling.py: subprocess",
    "containers/on-vllm/start_with_pth.py: runpy",
    "containers/train/train: subprocess",
    "toolkit/children.py: subprocess",
    "toolkit/engines/vllm/answering.py: os.fork",
    "toolkit/engines/vllm/answering.py: runpy",
    "toolkit/engines/vllm/spare.py: runpy",
    "toolkit/platforms/local/__main__.py: os.fork",
    "toolkit/platforms/local/keeper.py: subprocess",
    "toolkit/training/launch.py: torch.distributed.elastic.multiprocessing",
}
"""Where processes are started, and by what: but for children.py, by what was started with its environment already."""
OWN_PYTHON = {"containers/on-vllm/entrypoint.py", "containers/on-vllm/compiling.py", "containers/train/train"}
"""Programs of images: they import nothing of the toolkit, and say it by a variable."""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules that leave a marker when they are imported."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name in HOSTILE:
        text = f"import pathlib\npathlib.Path({str(folder / name)!r} + '.ran').touch()\n"
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    return folder


def markers(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.ran"))


def ended(command: list[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize("module", ["pip", "toolkit"])
def test_the_modules_do_run_where_python_looks_in_the_current_folder(hostile: Path, module: str) -> None:
    ended([sys.executable, "-m", module, "--version"])
    assert module in markers(hostile)
    for path in hostile.glob("*.ran"):
        path.unlink()
    assert ended(python_command("-m", module, "--version")) == 0
    assert markers(hostile) == []


def test_no_file_beside_a_recipe_runs_when_packages_are_looked_up(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(BuildError, match=r"cannot download wheels for Python 3\.12"):
        find_wheel("little==1.0", "3.12")
    assert markers(hostile) == []


def test_no_file_beside_a_recipe_runs_when_a_head_is_trained(hostile: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    assert ended([*LocalTrainer(tmp_path).program, str(job)]) == 2  # it has no job.json
    assert markers(hostile) == []


SHOWN = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), oct(os.umask(0))]))"


def test_a_process_gets_what_it_needs_and_no_secret_of_ours(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"HF_TOKEN": "hf_1", "AWS_SECRET_ACCESS_KEY": "a", "DATABASE_URL": "b", "PIP_INDEX_URL": "http://i"}
    for name, value in {**given, "https_proxy": "http://p", "LC_ALL": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    private = hostile.parent / "private"
    private.mkdir()
    process = start_process([sys.executable, "-c", SHOWN], private, own_variables(*OWN))
    environment, folder, umask = json.loads(process.communicate()[0])

    assert not environment.keys() & given.keys()
    assert {"PATH", "https_proxy", "LC_ALL"} <= environment.keys()
    assert (folder, umask) == (str(private), "0o77")
    assert own_variables(*PIP)["PIP_INDEX_URL"] == "http://i"
    assert "HF_TOKEN" not in own_variables(*PIP, *BUILDERS)
    assert "AWS_SECRET_ACCESS_KEY" not in own_variables(*TRAINING)


def test_a_process_is_started_in_few_places_only() -> None:
    found = {f"{path.relative_to(ROOT)}: {start}" for path in product() for start in starts(path)}
    assert found == NAMED


def test_nobody_else_says_how_python_is_started() -> None:
    named = {str(path.relative_to(ROOT)) for path in product() if starts_python(path)}
    assert named - OWN_PYTHON == {"toolkit/children.py"}


def product() -> Iterator[Path]:
    """Every program of the package and of the containers, also those without an ending."""
    for path in [*(ROOT / "toolkit").rglob("*"), *(ROOT / "containers").rglob("*")]:
        if path.suffix == ".py" or (path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python")):
            yield path


def starts(path: Path) -> Iterator[str]:
    """The modules and functions in a file that start processes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):  # of `subprocess` as such only its types may be used
            named = [name for name in node.names if name.name != "subprocess" or name.asname]
            yield from (name.name for name in named if starts_processes(name.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
            yield from [name for name in full if starts_processes(name)][:1]
        elif isinstance(node, ast.Call) and dotted(node.func).startswith("subprocess."):
            yield "subprocess"
        elif isinstance(node, ast.Attribute) and dotted(node).startswith(("os.", "asyncio.")):
            yield from filter(starts_processes, [dotted(node)])


def dotted(node: ast.expr) -> str:
    """A name, or a name's attribute, as it is written; empty for what is neither."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
    return ""


def starts_processes(name: str) -> bool:
    module, _, last = name.rpartition(".")
    return (
        name in MODULES
        or "multiprocessing" in name.split(".")
        or (module == "os" and last.startswith(OF_OS))
        or name in ("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell")
    )


def starts_python(path: Path) -> bool:
    """Whether it puts a command together that begins with our Python."""
    lists = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.List | ast.Tuple)]
    return any(node.elts and dotted(node.elts[0]) == "sys.executable" for node in lists)
