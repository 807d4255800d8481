"""What `train`, `tune` and `bench` found, as a run on an MLflow server, where $MLFLOW_TRACKING_URI names one.

MLflow's own variables say the rest: $MLFLOW_EXPERIMENT_NAME, $MLFLOW_TRACKING_TOKEN and the like. mlflow is not among
the toolkit's extras: whoever has a server has its client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from toolkit.apply.progress import Progress
from toolkit.measure.headline import comparable, speedup_of
from toolkit.measure.report import BenchReport
from toolkit.measure.tune_report import TuneReport
from toolkit.measure.wording import load
from toolkit.version import __version__

VARIABLE = "MLFLOW_TRACKING_URI"
REPORT = "report.json"
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


@dataclass(frozen=True)
class Tracker:
    """Writes a run each."""

    progress: Progress

    def log(
        self,
        name: str,
        parameters: Mapping[str, object],
        metrics: Iterator[tuple[str, float]],
        report: Mapping[str, Any],
    ) -> None:
        """One run with the report as an artifact, within the caller's own run if there is one.

        What was measured is not lost where the server refuses: that is said.
        """
        import mlflow
        from mlflow.exceptions import MlflowException

        said = {key: value for key, value in parameters.items() if value not in (None, "", (), [])}
        try:
            with mlflow.start_run(run_name=name, nested=True) as run:
                mlflow.log_params({"toolkit": __version__, **said})
                mlflow.log_metrics({_NOT_IN_NAMES.sub("_", key): value for key, value in metrics})
                mlflow.log_dict(dict(report), REPORT)
        except (MlflowException, OSError) as error:  # requests' errors are OSErrors
            said_why = _CREDENTIALS.sub("//", str(error))
            self.progress.say(f"not tracked, for the server that ${VARIABLE} names said: {said_why}")
        else:
            self.progress.say(f"tracked in MLflow as run {run.info.run_id} ({name})")


def find_tracker(progress: Progress, environ: Mapping[str, str] = os.environ) -> Tracker | None:
    """What tracks; None where the environment names no server, or its packages are missing, which is said.

    The variable may be there for something else, so that is no reason not to measure.
    """
    if not (uri := environ.get(VARIABLE)):
        return None
    # SageMaker's own servers are named by ARN, which mlflow learns from a plugin.
    needed = {"mlflow": "mlflow-skinny", **({"sagemaker_mlflow": "sagemaker-mlflow"} if uri.startswith("arn:") else {})}
    if missing := [package for module, package in needed.items() if find_spec(module) is None]:
        progress.say(f"not tracked: ${VARIABLE} is set, and this is not installed: pip install {' '.join(missing)}")
        return None
    return Tracker(progress)


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
