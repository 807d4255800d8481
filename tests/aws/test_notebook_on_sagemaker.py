"""Notebooks 01 and 06 on AWS's stand-in: with another recipe, and a shorter proof. The role is the
user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from standin import StandIn
from standin_answers import three_tokens
from standin_user import User

from toolkit.recipe.known import catalogue_dir

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TINY = catalogue_dir() / "tiny" / "p-eagle.yaml"
ON_AWS = "platform: {name: sagemaker, instance_types: [ml.g6.xlarge]}"


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOOLKIT_EXECUTION_ROLE", User(standin).role)
    standin.serve(three_tokens)
    text = TINY.read_text().replace("./", f"{TINY.parent}/").replace("version: 0.32.0", "version: 0.30.0")
    path = tmp_path / "tiny.yaml"
    path.write_text(text.replace("platform: {name: local}", ON_AWS))
    return path


@pytest.mark.parametrize(("name", "shown"), [("01_quickstart", "<7><8><9>"), ("06_operations", "before: True")])
def test_a_notebook_runs_with_a_recipe_for_sagemaker(
    recipe: Path,
    standin: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    shown: str,
) -> None:
    monkeypatch.chdir(recipe.parent)
    names: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            source = cell.source.replace('"tiny/p-eagle"', repr(str(recipe)))
            source = source.replace("seconds=30", "requests=2")
            exec(source.replace('platform="local"', 'platform="sagemaker"'), names)
    assert shown in capsys.readouterr().out
    assert names["endpoint"].platform.name == "sagemaker"
    assert [item for item in standin.leftovers() if item.startswith("sagemaker")] == []
