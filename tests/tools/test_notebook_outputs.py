"""The outputs in the notebooks: whole runs, of this code, and nothing of the machine that they were made on."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from toolkit.apply.stages import STAGES

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def shown(notebook: nbformat.NotebookNode) -> str:
    """All that its cells have put out, as text and as HTML."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text") or "\n".join(output.get("data", {}).values()) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_outputs_are_of_one_whole_run_of_this_code(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), f"run: python -m tools.notebooks {path.stem}"
    text = shown(notebook)
    assert re.findall(r"(?<![\w.])/(?:tmp|work|root|home/(?!me/toolkit))\S*", text) == []
    assert "<IPython.core.display.HTML" not in text
    assert set(re.findall(r"[\w-]+: ([^<>:|]+) took \d+:\d\d", text.replace("&#x27;", "'"))) <= {*STAGES, "training"}


def test_there_are_six() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]
