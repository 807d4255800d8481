"""Running a notebook, and what its cells have put out."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SHORTER = {
    # 8 pairs of answers, some 1,200 tokens: twice what it takes to show that no token in 200 is wrong, on any machine.
    r"prove\(seconds=\d+\)": "prove(requests=4)",
    "steps: 20": "steps: 4",  # of a training: from the first on, held-out text is drafted better
}


def run(name: str, until: str | None = None) -> nbformat.NotebookNode:
    """The notebook after its last cell, or the last one before the heading `until`.

    It runs in a copy of its folder: what its cells write does not stay. Its cells are as they are, but that a proof
    asks a few requests, and not as many as fit into half a minute, and that a training takes a few steps.
    """
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        for long, short in SHORTER.items():
            cell.source = re.sub(long, short, cell.source)
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
