"""Notebooks that deploy endpoints of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_notebook import output, run

from toolkit.platforms.local import daemon

pytestmark = [pytest.mark.serving, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    yield tmp_path
    daemon.stop(tmp_path / "local")


def test_a_head_is_trained_served_and_proved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = run("05_train_a_head")

    assert "trained" in output(notebook, "toolkit.train(")
    card = output(notebook, "Markdown(")
    (accepted,) = re.findall(r"acceptance length at K=7 \| ([\d.]+)", card)
    assert float(accepted) > 2, "the tokens of a target step on held-out texts; 1 without a head"
    _, by_step = card.split("| step | acceptance length |")
    lengths = [float(length) for length in re.findall(r"\| \d+ \| ([\d.]+) \|", by_step)]
    assert len(lengths) == 5
    assert lengths[-1] > lengths[0] + 0.05, "it has learned the new traffic"
    assert "Its answers are the target model" in output(notebook, "prove(")
    assert "create TrainingJob qwen3-8b-train-p-eagle-" in output(notebook, "train_plan(")


def test_a_draft_model_for_trainium_is_planned_and_rehearsed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(home / "none"))
    notebook = run("04_trainium_study")

    assert "it is the newest that supports draft-model on trn2" in output(notebook, "toolkit.plan(")
    assert "Supported: `eagle3`" in output(notebook, "p_eagle =")
    assert "devicegroup8_id" in output(notebook, "pprint(claim")
    assert "Its answers are the target model" in output(notebook, "prove(")
