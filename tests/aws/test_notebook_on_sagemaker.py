"""The quickstart notebook on AWS's stand-in: its cells as they are, with another recipe; the role is the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from standin import StandIn
from standin_answers import three_tokens
from standin_user import User

from toolkit.recipe.load import catalogue_dir

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"
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


def test_the_quickstart_runs_with_a_recipe_for_sagemaker(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source.replace('"tiny/p-eagle"', repr(str(recipe))), names)
    assert "<7><8><9>" in capsys.readouterr().out
    assert names["endpoint"].platform.name == "sagemaker"
    assert [item for item in standin.leftovers() if item.startswith("sagemaker")] == []
