"""The notebooks run as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_notebook import output, run

from toolkit.platforms.local import daemon

pytestmark = [
    pytest.mark.serving,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.timeout(1200),  # the second starts a vLLM seven times
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    yield tmp_path
    daemon.stop(tmp_path / "local")


def test_an_endpoints_life_runs_to_its_end(home: Path) -> None:
    notebook = run("06_operations")

    assert "the same tokens as before: True" in output(notebook, "deploy(shorter)")
    assert "Counter({'speculative': 8})" in output(notebook, "rollback(")
    assert "flag-value - error: argument --max-logprobs" in output(notebook, "EndpointFailed as")
    assert output(notebook, "endpoints(") == "[]"


def test_a_draft_model_for_trainium_is_planned_and_rehearsed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(home / "none"))
    notebook = run("04_trainium_study")

    assert "it is the newest that supports draft-model on trn2" in output(notebook, "toolkit.plan(")
    assert "Supported: `eagle3`" in output(notebook, "p_eagle =")
    assert "devicegroup8_id" in output(notebook, "pprint(claim")
    assert "Its answers are the target model" in output(notebook, "prove(")
