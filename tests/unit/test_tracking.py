"""Runs on an MLflow server: what is asked for is said before hours of work; the genuine client writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reports import example

import toolkit
from toolkit.api.tracking import Tracker, bench_metrics, find_tracker, train_metrics
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import UsageError


class Saying(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The genuine client with a store in a folder."""
    module = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return module


def test_without_the_variable_nothing_is_tracked() -> None:
    assert find_tracker(Silent(), {}) is None


def test_the_plugin_for_an_arn_is_named() -> None:
    arn = "arn:aws:sagemaker:us-west-2:123456789012:mlflow-tracking-server/ours"
    saying = Saying()
    assert find_tracker(saying, {"MLFLOW_TRACKING_URI": arn}) is None
    (said,) = saying.said
    assert "pip install" in said
    assert "sagemaker-mlflow" in said


def test_a_missing_package_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "arn:aws:sagemaker:us-west-2:123456789012:mlflow-app/ours")
    for command in (("bench", "http://127.0.0.1:9/v1"), ("tune", "tiny/p-eagle", "--write")):
        assert run([*command]) in (2, 3)
        before, _, after = capsys.readouterr().err.partition("sagemaker-mlflow")
        assert "error:" not in before
        assert "error:" in after
    saying = Saying()
    with pytest.raises(UsageError):
        toolkit.train("tiny/p-eagle", progress=saying)
    assert "sagemaker-mlflow" in saying.said[0]


def test_every_figure_has_a_name_of_its_own() -> None:
    report = example()
    names = [name for name, _ in bench_metrics(report)]
    assert len(names) == len(set(names))
    found = dict(bench_metrics(report))
    assert {found[name] for name in names if name.endswith("/speedup")} == {item.ratio for item in report.speedups}
    assert dict(train_metrics({"held_out_loss": 1.5, "evaluations": [1], "ended": "flat"})) == {"held_out_loss": 1.5}


def test_a_run_has_parameters_figures_and_the_report(mlflow: Any, tmp_path: Path) -> None:
    report, saying = example(), Saying()
    Tracker(saying).log("bench chat", {"seconds": 300.0, "model": ""}, bench_metrics(report), report.to_dict())
    (found,) = mlflow.MlflowClient().search_runs(["0"])
    assert found.info.run_name == "bench chat"
    assert found.data.params.keys() == {"toolkit", "seconds"}
    assert found.data.metrics == pytest.approx(dict(bench_metrics(report)))
    (kept,) = (tmp_path / "runs").rglob("report.json")
    assert json.loads(kept.read_text())["title"] == report.title
    assert saying.said == [f"tracked in MLflow as run {found.info.run_id} (bench chat)"]


def test_a_server_that_refuses_loses_nothing(mlflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hidden@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    saying = Saying()
    Tracker(saying).log("bench chat", {}, iter(()), {})
    assert saying.said[0].startswith("not tracked")
    assert "hidden" not in saying.said[0]
