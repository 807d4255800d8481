"""The notebooks run as they are."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from toolkit.platforms.local import daemon

pytestmark = [
    pytest.mark.serving,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.timeout(1200),  # the second starts a vLLM seven times
]
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_the_quickstart_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = _run("01_quickstart", tmp_path, monkeypatch)

    assert "✔ the output is the target" in _output(notebook, "prove(")


def test_an_endpoints_life_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = _run("02_sagemaker_operations", tmp_path, monkeypatch)

    assert "the same tokens as before: True" in _output(notebook, "deploy(shorter)")
    assert "Counter({'speculative': 8})" in _output(notebook, "rollback(")
    assert "flag-value - error: argument --max-logprobs" in _output(notebook, "EndpointFailed as")
    assert _output(notebook, "endpoints(") == "[]"


def test_a_draft_model_for_trainium_is_planned_and_rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    notebook = _run("03_trainium_kubernetes", tmp_path, monkeypatch)

    assert "it is the newest that does draft-model on trn2" in _output(notebook, "toolkit.plan(")
    assert "Nearest: `eagle3`" in _output(notebook, "p_eagle =")
    assert "devicegroup8_id" in _output(notebook, "pprint(claim")
    assert "✔ the output is the target" in _output(notebook, "prove(")


def _run(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    monkeypatch.setenv("TOOLKIT_HOME", str(home))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    try:
        NotebookClient(notebook, timeout=600).execute()
    finally:
        daemon.stop(home / "local")
    return notebook


def _output(notebook: nbformat.NotebookNode, of: str) -> str:
    """All that the first cell whose code has those words has put out."""
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code" and of in cell.source)
    texts = [output.get("text") or "".join(output.get("data", {}).values()) for output in cell.outputs]
    return "".join(texts)
