"""The outputs in the notebooks: whole runs, of this code, and nothing of the machine that they were made on."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from toolkit.apply.stages import STAGES

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_METHODS = {"to_pandas": "pandas", "openai": "openai"}


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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_page_names_what_a_notebook_needs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    nodes = [
        node
        for cell in cells
        if cell.cell_type == "code" and not cell.source.startswith("%%")
        for node in ast.walk(ast.parse(cell.source))
    ]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    used = {OF_METHODS[node.attr] for node in nodes if isinstance(node, ast.Attribute) and node.attr in OF_METHODS}
    packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"IPython", "toolkit"} | used
    page = (ROOT / "docs/howto/notebooks.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{path.stem}`")]
    needs = row.split("|")[3]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = [one for extra in re.findall(r"\w+", needs) for one in extras.get(extra, [extra])]
    assert packages <= {re.split(r"[^\w-]", one)[0] for one in named}
