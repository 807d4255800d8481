"""What `train`, `tune` and `bench` found, as a run where the environment names a tracker: MLflow, W&B or TensorBoard.

Each is named by the variable that its other users set, and its own variables say the rest ($MLFLOW_EXPERIMENT_NAME,
$WANDB_ENTITY and the like). None is among the toolkit's extras: whoever has a server has its client.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolkit.apply.progress import Progress
from toolkit.measure.headline import comparable, speedup_of
from toolkit.measure.report import BenchReport
from toolkit.measure.tune_report import TuneReport
from toolkit.measure.wording import load
from toolkit.version import __version__

MLFLOW, WANDB, TENSORBOARD = "MLFLOW_TRACKING_URI", "WANDB_PROJECT", "TENSORBOARD_LOGGING_DIR"
REPORT = "report.json"
HELD_OUT = "held_out_acceptance_length"
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


class Refused(Exception):
    """The tracker took nothing; the text is what it said."""


@dataclass(frozen=True)
class Run:
    """What a tracker gets. `curve` is the held-out acceptance length by step of training."""

    name: str
    parameters: Mapping[str, object]
    metrics: Mapping[str, float]
    curve: Sequence[tuple[int, float]]
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Tracker:
    """Writes a run each. `write` says where the run is; it raises Refused."""

    variable: str
    write: Callable[[Run], str]


@dataclass(frozen=True)
class Trackers:
    """Those that the environment names."""

    trackers: Sequence[Tracker]
    progress: Progress

    def log(
        self,
        name: str,
        parameters: Mapping[str, object],
        metrics: Iterator[tuple[str, float]],
        report: Mapping[str, Any],
        curve: Sequence[tuple[int, float]] = (),
    ) -> None:
        """One run on each. What was measured is not lost where one refuses: that is said."""
        given = {key: value for key, value in parameters.items() if value not in (None, "", (), [])}
        figures = {_NOT_IN_NAMES.sub("_", key): value for key, value in metrics}
        run = Run(name, {"toolkit": __version__, **given}, figures, curve, report)
        for tracker in self.trackers:
            try:
                self.progress.say(f"tracked in {tracker.write(run)} ({name})")
            except (Refused, OSError) as error:  # requests' errors are OSErrors
                said = _CREDENTIALS.sub("//", str(error))
                self.progress.say(f"not tracked, for what ${tracker.variable} names said: {said}")


def find_trackers(progress: Progress, environ: Mapping[str, str] = os.environ) -> Trackers:
    """What the environment names, less what cannot write, which is said.

    A variable may be there for something else, so that is no reason not to measure.
    """
    found = []
    for variable, (write, packages) in _KNOWN.items():
        if not (named := environ.get(variable)):
            continue
        # SageMaker's own MLflow is named by ARN, which mlflow learns from a plugin.
        needed = {**packages, **({"sagemaker_mlflow": "sagemaker-mlflow"} if named.startswith("arn:") else {})}
        if missing := [package for module, package in needed.items() if find_spec(module) is None]:
            progress.say(f"not tracked: ${variable} is set, and this is not installed: pip install {' '.join(missing)}")
        elif variable == TENSORBOARD and "://" in named:
            progress.say(f"not tracked: ${variable} is to be a folder, and {named} is none")
        elif variable == WANDB and not _knows_wandb(environ):
            progress.say(f"not tracked: ${variable} is set, and W&B takes no key: wandb login, or WANDB_MODE=offline")
        else:
            found.append(Tracker(variable, write))
    return Trackers(found, progress)


def _to_mlflow(run: Run) -> str:
    """A run within the caller's own if there is one, with the report as an artifact."""
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        with mlflow.start_run(run_name=run.name, nested=True) as started:
            mlflow.log_params(dict(run.parameters))
            mlflow.log_metrics(dict(run.metrics))
            for step, length in run.curve:
                mlflow.log_metric(HELD_OUT, length, step=step)
            mlflow.log_dict(dict(run.report), REPORT)
    except MlflowException as error:
        raise Refused(str(error)) from error
    return f"MLflow as run {started.info.run_id}"


def _knows_wandb(environ: Mapping[str, str]) -> bool:
    """Whether a run would be written without asking for a key on the terminal."""
    import wandb

    try:
        return environ.get("WANDB_MODE") in ("offline", "disabled") or bool(wandb.login(prompt=False))
    except (wandb.Error, ValueError, OSError):  # a key that is none, or a server that is not there
        return False


def _to_wandb(run: Run) -> str:
    """A run beside the caller's own if there is one, with the report as a file."""
    import wandb

    quiet = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False)
    try:
        started = wandb.init(name=run.name, config=dict(run.parameters), reinit="create_new", settings=quiet)
        with started:
            for step, length in run.curve:
                started.log({HELD_OUT: length, "step": step})
            started.summary.update(run.metrics)
            (report := Path(started.dir, REPORT)).write_text(json.dumps(run.report))
            started.save(report, base_path=started.dir)
    except (wandb.Error, ValueError) as error:
        raise Refused(str(error)) from error
    return f"W&B as run {started.id}" if started.offline else f"W&B: {started.url}"


def _to_tensorboard(run: Run) -> str:
    """A folder of its own below the one that is named, with the report beside the events."""
    from tensorboard.summary import Writer

    folder = _new_folder(Path(os.environ[TENSORBOARD]), re.sub(r"\W+", "-", run.name).strip("-"))
    writer = Writer(str(folder))
    for name, value in run.metrics.items():
        writer.add_scalar(name, value, 0)
    for step, length in run.curve:
        writer.add_scalar(HELD_OUT, length, step)
    writer.close()
    (folder / REPORT).write_text(json.dumps({"parameters": run.parameters, **run.report}, default=str))
    return f"TensorBoard: {folder}"


def _new_folder(within: Path, name: str) -> Path:
    number = 1
    while True:
        try:
            (folder := within / (name if number == 1 else f"{name}-{number}")).mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


_KNOWN: Mapping[str, tuple[Callable[[Run], str], Mapping[str, str]]] = {
    MLFLOW: (_to_mlflow, {"mlflow": "mlflow-skinny"}),
    WANDB: (_to_wandb, {"wandb": "wandb"}),
    TENSORBOARD: (_to_tensorboard, {"tensorboard": "tensorboard"}),
}


def bench_metrics(report: BenchReport) -> Iterator[tuple[str, float]]:
    """Every figure of every arm, by workload, load and arm."""
    for arm in report.arms:
        at = f"{arm.workload}/{load(arm)}/{arm.arm}"
        speedup = speedup_of(report, arm) if comparable(report) else None
        figures = {
            "output_tokens_per_second": arm.output_tokens_per_second,
            "acceptance_length": arm.acceptance_length,
            "identical": arm.identical,
            "ttft_p50": arm.ttft.p50 if arm.ttft else None,
            "tpot_p50": arm.tpot.p50 if arm.tpot else None,
            "speedup": speedup.ratio if speedup else None,
        }
        yield from ((f"{at}/{key}", value) for key, value in figures.items() if value is not None)
    for item in report.saturation:
        if item.rate:
            yield f"{item.workload}/{item.arm}/highest_rate", item.rate
    for ratio in report.rate_ratios:
        yield f"{ratio.workload}/{ratio.arm}/highest_rate_ratio", ratio.ratio


def tune_metrics(report: TuneReport) -> Iterator[tuple[str, float]]:
    """The measured speedup and acceptance length of each setting, by workload and load."""
    for row in report.rows:
        figures = {"speedup": row.ratio, "acceptance_length": row.acceptance_length}
        again = " again" if row.measurement > 1 else ""
        at = f"{row.workload}/{row.concurrency}/{row.setting}{again}"
        yield from ((f"{at}/{key}", value) for key, value in figures.items() if value is not None)


def train_metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The single numbers of a head's report."""
    yield from ((key, value) for key, value in metrics.items() if isinstance(value, int | float))
