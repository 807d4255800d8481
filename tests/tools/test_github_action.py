"""The GitHub Action: its steps are run as the runner would, but for the installation; a server stands for GitHub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.recipe.known import catalogue_dir

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / ".github/actions/toolkit/action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, Any] = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}


def run_step(name: str, folder: Path, recipe: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RECIPE": recipe,
        "BASELINE": "--baseline",
        "RUNNER_TEMP": str(folder),
        "GITHUB_ACTION_PATH": str(ROOT / ".github/actions/toolkit"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
    return subprocess.run(shell, env=environment, capture_output=True, text=True, check=False, cwd=folder)


def test_the_plan_is_in_the_summary_and_in_the_comment(tmp_path: Path) -> None:
    done = run_step("Check and plan", tmp_path, "gpt-oss-20b/p-eagle")
    assert done.returncode == 0, done.stderr
    plan = (tmp_path / "plan.md").read_text(encoding="utf-8")
    assert plan == (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert plan.startswith("### Plan\n\n    $ toolkit plan gpt-oss-20b/p-eagle --baseline\n")
    assert "gpt-oss-20b-p-eagle-baseline" in plan
    assert [line for line in plan.splitlines()[1:] if line and not line.startswith("    ")] == []


def test_a_recipe_with_a_mistake_fails_the_job(tmp_path: Path) -> None:
    recipe = (catalogue_dir() / "tiny/p-eagle.yaml").read_text(encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(recipe.replace("method: p-eagle", "method: p-eagel"), encoding="utf-8")
    done = run_step("Check and plan", tmp_path, "wrong.yaml")
    assert done.returncode == 1
    assert "Did you mean `p-eagle`?" in done.stdout


@pytest.mark.parametrize("step", ACTION["runs"]["steps"])
def test_no_input_becomes_part_of_a_script(step: dict[str, Any]) -> None:
    assert "${{" not in step.get("run", "")


def test_each_variable_comes_from_an_input_that_exists() -> None:
    text = str(ACTION["runs"])
    unread = {name for name in ACTION["inputs"] if f"inputs.{name}" not in text}
    assert unread == set()
    assert STEPS["Deploy"]["if"] == "inputs.deploy == 'true'"
    assert STEPS["Deploy"]["run"].endswith("--yes\n") or STEPS["Deploy"]["run"].endswith("--yes")


def test_it_installs_the_toolkit_of_its_own_commit(tmp_path: Path) -> None:
    """As pip is called; that the lock is enough for the toolkit is shown in test_requirements.py."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\n', encoding="utf-8")
    (programs / "python").chmod(0o755)
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS["Install"]["run"]]
    place = str(ROOT / ".github/actions/toolkit")
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_ACTION_PATH": place}
    subprocess.run(shell, env=environment, check=True, cwd=tmp_path)
    packages, own = [line.split() for line in (tmp_path / "calls").read_text(encoding="utf-8").splitlines()]
    assert packages[:4] == own[:4] == ["-I", "-m", "pip", "install"]
    assert "--require-hashes" in packages
    assert Path(packages[-1]).resolve() == ROOT / "requirements-action.lock"
    assert "--no-index" in own
    assert Path(own[-1]).resolve() == ROOT
