"""Python in a model's folder does not run when its container starts, and its requirements are not installed.

The library that would do both, model-hosting-container-standards, is the genuine one, with the environment that the
toolkit gives to a container, or that the toolkit's own entrypoint gives to vLLM.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pairs import write_pair

from toolkit.engines.arguments import environment, left_out_notes
from toolkit.loading import load
from toolkit.recipe.content import model_manifest
from toolkit.recipe.model_files import staged_names
from toolkit.recipe.recipe import Recipe

ENTRYPOINT = Path(__file__).parents[2] / "containers" / "on-vllm"
LOAD = (
    "from model_hosting_container_standards.sagemaker.sagemaker_loader import SageMakerFunctionLoader\n"
    "SageMakerFunctionLoader.get_function_loader()"
)
INSTALL = (
    "from model_hosting_container_standards.common.dependency_manager import is_auto_install_enabled\n"
    "print(is_auto_install_enabled())"
)
STARTED_BY_US = (
    f"import os; from entrypoint import vllm_environment; os.environ.update(vllm_environment(os.environ))\n{LOAD}"
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_pair(tmp_path))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model's folder with all that a publisher could have somebody else run."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("model.py", "inference.py", "modeling_tiny.py", "sitecustomize.py"):
        (folder / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for name in ("requirements.txt", "serving.properties", "run.sh", "evil.pth", "config.json", "merges.txt"):
        (folder / name).write_text("{}")
    for name in ("model.safetensors", "model.safetensors.index.json", "chat_template.jinja"):
        (folder / name).touch()
    return folder


def start(program: str, folder: Path, given: Mapping[str, str]) -> str:
    """What the library prints in a container whose model's folder this is."""
    env = {"PATH": "/usr/bin:/bin", "SAGEMAKER_MODEL_PATH": str(folder), "PYTHONPATH": str(ENTRYPOINT), **given}
    done = subprocess.run([sys.executable, "-P", "-c", program], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_library_runs_it_unless_it_is_told_not_to(hostile: Path, tmp_path: Path) -> None:
    start(LOAD, hostile, {})
    assert (tmp_path / "ran").exists()
    assert start(INSTALL, hostile, {}) == "True"


def test_in_a_container_with_our_environment_nothing_of_it_runs(recipe: Recipe, hostile: Path, tmp_path: Path) -> None:
    start(LOAD, hostile, environment(recipe))
    assert not (tmp_path / "ran").exists()
    assert start(INSTALL, hostile, environment(recipe)) == "False"


@pytest.mark.parametrize("given", [{}, {"CUSTOM_SCRIPT_FILENAME": "inference.py"}])
def test_our_own_entrypoint_sees_to_it_by_itself(given: dict[str, str], hostile: Path, tmp_path: Path) -> None:
    """Whatever name the variables give: it is not looked for in the model's folder."""
    start(STARTED_BY_US, hostile, given)
    assert not (tmp_path / "ran").exists()


def test_a_recipe_may_name_a_script_of_its_own(recipe: Recipe) -> None:
    """`check` demands that `engine.allow` names the variable, too (test_flags.py)."""
    own = replace(recipe, engine=recipe.engine.edit(env={"CUSTOM_SCRIPT_FILENAME": "ours.py"}))
    assert environment(own)["CUSTOM_SCRIPT_FILENAME"] == "ours.py"


def test_only_what_an_engine_reads_is_copied(hostile: Path) -> None:
    read = ["chat_template.jinja", "config.json", "merges.txt", "model.safetensors", "model.safetensors.index.json"]
    assert [file.path for file in model_manifest(hostile, code=False)] == read
    assert list(staged_names(sorted(path.name for path in hostile.iterdir()), code=False)) == read


def test_a_models_python_is_copied_where_the_recipe_lets_it_run(recipe: Recipe, hostile: Path) -> None:
    trusting = replace(recipe, engine=recipe.engine.edit(args={"trust-remote-code": True}))
    assert (trusting.runs_model_code, recipe.runs_model_code) == (True, False)
    copied = {file.path for file in model_manifest(hostile, code=True)}
    assert "modeling_tiny.py" in copied
    assert not copied & {"requirements.txt", "serving.properties", "run.sh", "evil.pth"}


def test_a_plan_says_what_is_not_copied(recipe: Recipe, hostile: Path) -> None:
    of_theirs = replace(recipe, target=recipe.target.edit(model=str(hostile)))
    first, second = left_out_notes(of_theirs)
    assert first == (
        "Of target.model these files are not copied, as the engine does not read them: evil.pth, inference.py, "
        "model.py, modeling_tiny.py, requirements.txt and 3 more"
    )
    assert "trust-remote-code" in second
