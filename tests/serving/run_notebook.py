"""Running a notebook, and what its cells have put out."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
# 8 pairs of answers, some 1,200 tokens: twice what it takes to show that no token in 200 is wrong, on any machine.
SHORT = "prove(requests=4)"


def run(name: str, until: str | None = None) -> nbformat.NotebookNode:
    """The notebook after its last cell, or the last one before the heading `until`.

    It runs in a copy of its folder: what its cells write does not stay. Its cells are as they are, but that a proof
    asks a few requests, and not as many as fit into half a minute.
    """
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r"prove\(seconds=\d+\)", SHORT, cell.source)
    if until:
        end = next(index for index, cell in enumerate(notebook.cells) if cell.source.startswith(until))
        del notebook.cells[end:]
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(NOTEBOOKS, Path(folder) / "notebooks")
        NotebookClient(
            notebook, timeout=900, record_timing=False, resources={"metadata": {"path": str(copy)}}
        ).execute()
    return notebook


def output(notebook: nbformat.NotebookNode, of: str) -> str:
    """All that the first cell whose code has those words has put out."""
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code" and of in cell.source)
    texts = [output.get("text") or "".join(output.get("data", {}).values()) for output in cell.outputs]
    return "".join(texts)
