"""The notebook runs as it is."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from toolkit.platforms.local import daemon

pytestmark = [pytest.mark.serving, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


def test_the_quickstart_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    try:
        NotebookClient(notebook, timeout=240).execute()
    finally:
        daemon.stop(tmp_path / "local")

    proof = next(cell for cell in notebook.cells if "prove" in cell.source and cell.cell_type == "code")
    assert "✔ the output is the target" in proof.outputs[-1]["data"]["text/html"]
