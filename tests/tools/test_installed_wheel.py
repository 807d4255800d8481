"""The wheel as a user gets it: installed alone into a new environment, on each Python that this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CORE_MEGABYTES = 100

run = partial(subprocess.run, capture_output=True, text=True)


def interpreter(version: str) -> Path | None:
    """That Python of the system or of pyenv, whose stand-ins on the PATH do not start."""
    of_pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    of_system = [Path(folder) / f"python{version}" for folder in os.get_exec_path()]
    return next((path for path in (*of_system, *of_pyenv) if path.is_file() and not run([path, "-V"]).returncode), None)


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel and what it cannot do without."""
    python = interpreter(request.param)
    if not python:
        pytest.skip(f"this machine has no Python {request.param}")
    folder = tmp_path_factory.mktemp("core") / "venv"
    run([UV, "venv", "--python", python, folder], check=True)
    pinned = ["--constraint", ROOT / "requirements.lock"]
    done = run([UV, "pip", "install", "--python", folder / "bin" / "python", *pinned, wheel])
    assert done.returncode == 0, done.stderr
    return folder


def toolkit(installed: Path, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")}
    return run([installed / "bin" / "toolkit", *arguments], env=environment, cwd=tmp_path)


def test_the_core_checks_plans_and_prices(installed: Path, tmp_path: Path) -> None:
    for arguments in (("check", "tiny/p-eagle"), ("plan", "gpt-oss-20b/p-eagle"), ("fit", "qwen3-8b/p-eagle")):
        done = toolkit(installed, tmp_path, *arguments)
        assert done.returncode == 0, done.stderr


def test_the_oldest_packages_that_it_may_have_do(wheel: Path, tmp_path: Path) -> None:
    """Where others ask for older ones, as in Studio, pip leaves those that are there."""
    run([UV, "venv", "--python", sys.executable, tmp_path / "venv"], check=True)
    # Of a wheel, uv takes the newest that it asks for; of a project, the oldest.
    extras = [option for extra in ("bench", "kubernetes", "openai", "sign") for option in ("--extra", extra)]
    oldest = ["--resolution", "lowest-direct", "--requirement", ROOT / "pyproject.toml", *extras]
    for packages in (oldest, ["--no-deps", wheel]):
        done = run([UV, "pip", "install", "--python", tmp_path / "venv" / "bin" / "python", *packages])
        assert done.returncode == 0, done.stderr
    for command in ("check tiny/p-eagle", "plan gpt-oss-20b/p-eagle", "schema", "recipes"):
        done = toolkit(tmp_path / "venv", tmp_path, *command.split())
        assert done.returncode == 0, done.stderr
    done = toolkit(tmp_path / "venv", tmp_path, "status", "--platform", "kubernetes")
    assert done.stderr.startswith("error: no kubeconfig was found"), done.stderr


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("kubernetes", ("status", "--platform", "kubernetes")),
        ("bench", ("bench", "http://127.0.0.1:9/v1", "--html", "report.html")),
    ],
)
def test_what_needs_an_extra_names_the_command_that_installs_it(
    installed: Path, tmp_path: Path, extra: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "config").touch()
    done = toolkit(installed, tmp_path, *command)
    assert done.returncode == 2
    assert done.stderr.endswith(f"Run: pip install 'peagle-toolkit[{extra}]'\n")
    assert "Traceback" not in done.stderr


def test_vllm_for_cpus_needs_pytorchs_own_index(installed: Path, tmp_path: Path) -> None:
    done = toolkit(installed, tmp_path, "deploy", "tiny/p-eagle")
    assert done.returncode == 2
    assert done.stderr.endswith(
        "Run: pip install 'peagle-toolkit[local]' --extra-index-url https://download.pytorch.org/whl/cpu\n"
    )


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("openai", "from toolkit.api.endpoint import _openai_package as package; package()"),
        ("sagemaker", "from toolkit.platforms.sagemaker.sdk import sdk_object; sdk_object(None, 'llm', 'endpoint')"),
    ],
)
def test_other_clients_are_extras_too(installed: Path, tmp_path: Path, extra: str, program: str) -> None:
    done = run([installed / "bin" / "python", "-c", program], cwd=tmp_path)
    assert f"Run: pip install 'peagle-toolkit[{extra}]'" in done.stderr


def test_the_core_is_small(installed: Path) -> None:
    """As uv installs it. Modules that were compiled since, as pip compiles all of them, do not count."""
    usage = run(["du", "-s", "--apparent-size", "-B", "MB", "--exclude=__pycache__", installed], check=True)
    assert int(usage.stdout.partition("MB")[0]) <= CORE_MEGABYTES


def test_what_the_index_shows_of_it_is_well_formed(wheel: Path) -> None:
    done = run([sys.executable, "-m", "twine", "check", "--strict", wheel])
    assert done.returncode == 0, done.stdout


def test_uninstalling_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    run([UV, "venv", "--python", sys.executable, tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    run([UV, "pip", "install", "--no-deps", "--python", python, wheel], check=True)
    packages = next((tmp_path / "venv" / "lib").glob("*/site-packages"))
    assert (packages / "toolkit").is_dir()
    run([UV, "pip", "uninstall", "--python", python, "peagle-toolkit"], check=True)
    assert not (packages / "toolkit").exists()
