"""Runs of MLflow, W&B and TensorBoard: what is missing is said before hours of work; the genuine clients write them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from reports import example

import toolkit
from toolkit.api.tracking import HELD_OUT, bench_metrics, find_trackers, train_metrics
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


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The genuine client, offline."""
    module = pytest.importorskip("wandb", reason="wandb is not installed")
    for name, value in {"PROJECT": "heads", "MODE": "offline", "DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    return module


def test_without_a_variable_nothing_is_tracked() -> None:
    assert find_trackers(Silent(), {}).trackers == []


def test_tensorboard_writes_to_no_bucket() -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    saying = Saying()
    assert find_trackers(saying, {"TENSORBOARD_LOGGING_DIR": "s3://bucket/runs"}).trackers == []
    assert "s3://bucket/runs is none" in saying.said[0]


def test_the_plugin_for_an_arn_is_named() -> None:
    arn = "arn:aws:sagemaker:us-west-2:123456789012:mlflow-tracking-server/ours"
    saying = Saying()
    assert find_trackers(saying, {"MLFLOW_TRACKING_URI": arn}).trackers == []
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
    figures = "output_tokens_per_second acceptance_length identical ttft_p50 tpot_p50 speedup"
    assert {name.rpartition("/")[2] for name in names} == set(figures.split())
    assert {found[name] for name in names if name.endswith("/speedup")} == {item.ratio for item in report.speedups}
    assert dict(train_metrics({"held_out_loss": 1.5, "evaluations": [1], "ended": "flat"})) == {"held_out_loss": 1.5}


CURVE = ((0, 1.5), (100, 2.25))


def log(saying: Saying) -> None:
    report, parameters = example(), {"seconds": 300.0, "model": ""}
    trackers = find_trackers(saying, dict(os.environ))
    trackers.log("bench chat", parameters, bench_metrics(report), report.to_dict(), CURVE)


def test_a_run_has_parameters_figures_and_the_report(mlflow: Any, tmp_path: Path) -> None:
    saying = Saying()
    log(saying)
    (found,) = mlflow.MlflowClient().search_runs(["0"])
    assert found.info.run_name == "bench chat"
    assert found.data.params.keys() == {"toolkit", "seconds"}
    assert found.data.metrics == pytest.approx({**dict(bench_metrics(example())), HELD_OUT: 2.25})
    curve = mlflow.MlflowClient().get_metric_history(found.info.run_id, HELD_OUT)
    assert [(item.step, item.value) for item in curve] == list(CURVE)
    (kept,) = (tmp_path / "runs").rglob("report.json")
    assert json.loads(kept.read_text())["title"] == example().title
    assert saying.said == [f"tracked in MLflow as run {found.info.run_id} (bench chat)"]


def test_a_server_that_refuses_loses_nothing(mlflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hidden@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    saying = Saying()
    log(saying)
    assert saying.said[0].startswith("not tracked")
    assert "hidden" not in saying.said[0]


def test_wandb_has_a_run_beside_that_of_the_caller(wandb: Any, tmp_path: Path) -> None:
    with wandb.init(name="mine", settings=wandb.Settings(silent=True)) as mine:
        saying = Saying()
        log(saying)
        assert wandb.run is mine
    assert saying.said[0].startswith("tracked in W&B as run ")
    ours = saying.said[0].removeprefix("tracked in W&B as run ").removesuffix(" (bench chat)")
    (folder,) = tmp_path.glob(f"wandb/offline-run-*-{ours}")
    assert json.loads((folder / "files/report.json").read_text())["title"] == example().title
    written = (folder / f"run-{ours}.wandb").read_bytes()
    assert HELD_OUT.encode() in written
    assert all(name.encode() in written for name, _ in bench_metrics(example()))


def test_wandb_without_a_key_is_said_and_asks_nobody(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    for key in ("", "too short"):
        monkeypatch.setenv("WANDB_API_KEY", key)
        saying = Saying()
        assert find_trackers(saying, {"WANDB_PROJECT": "heads"}).trackers == []
        assert "wandb login" in saying.said[0]
        assert "too short" not in saying.said[0]


def test_tensorboard_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    saying = Saying()
    log(saying)
    log(saying)
    assert saying.said == [f"tracked in TensorBoard: {tmp_path / name} (bench chat)" for name in FOLDERS]
    events = EventAccumulator(str(tmp_path / FOLDERS[1])).Reload()
    found = {name: events.Tensors(name) for name in events.Tags()["tensors"]}
    assert found.keys() == {HELD_OUT, *dict(bench_metrics(example()))}
    assert [item.step for item in found[HELD_OUT]] == [step for step, _ in CURVE]
    assert json.loads((tmp_path / FOLDERS[0] / "report.json").read_text())["parameters"]["seconds"] == 300.0


FOLDERS = ("bench-chat", "bench-chat-2")
