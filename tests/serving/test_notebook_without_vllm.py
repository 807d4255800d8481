"""The notebooks that start nothing run as they are, without a network."""

from __future__ import annotations

import nbformat
import pytest
from run_notebook import NOTEBOOKS, output, run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_from_a_models_name_to_a_recipe_and_a_head_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = run("02_own_model_and_head")

    assert "RedHatAI/Qwen3-8B-speculator.peagle" in output(notebook, "toolkit.new(")
    assert "fits 2 of 3 instance types" in output(notebook, "toolkit.fit(")
    assert "2.61 $/h while running" in output(notebook, "toolkit.plan(")
    assert "method: ngram" in output(notebook, "print(Path(")
    assert "toolkit lock own-head.yaml" in output(notebook, 'check("own-head.yaml")')


def test_a_saved_report_says_whether_it_is_worth_it() -> None:
    notebook = run("03_is_it_worth_it")

    kept = nbformat.read(NOTEBOOKS / "03_is_it_worth_it.ipynb", as_version=4)
    assert notebook.cells == kept.cells, "to keep today's outputs: python -m tools.notebooks 03_is_it_worth_it"
    assert "pays" in output(notebook, "for speedup in")
    assert "tokens per step" in output(notebook, "break_even:")
    assert "$ per million output tokens" in output(notebook, "PRICE_PER_HOUR =")
