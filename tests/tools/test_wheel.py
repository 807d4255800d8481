"""What is in the wheel: the package and its data, nothing that maintains the project."""

from __future__ import annotations

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_there_is_one_package_in_it(names: set[str]) -> None:
    top = {name.split("/")[0] for name in names}
    assert len(top) == 2, top
    assert "toolkit" in top
    assert any(name.endswith(".dist-info") for name in top)


@pytest.mark.parametrize("folder", ["recipes", "containers", "docs/howto", "docs/explain", "docs/tutorial.md"])
def test_data_is_in_it_as_in_the_checkout(names: set[str], folder: str) -> None:
    tracked = subprocess.run(["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True)
    assert {f"toolkit/_data/{name}" for name in tracked.stdout.split()} <= names


def test_the_weights_of_the_tiny_models_are_in_it(names: set[str]) -> None:
    models = {"target", "p-eagle", "eagle3", "draft-model"}
    assert {f"toolkit/_data/recipes/tiny/models/{model}/model.safetensors" for model in models} <= names
