"""Results of `toolkit tune` that never ran."""

from __future__ import annotations

from toolkit.measure.tune_report import TuneReport, TuneRow


def tuned() -> TuneReport:
    """K=4 is better than K=1, from which K=2 is predicted."""
    rows = (
        TuneRow("K=1", "structured", 1, None, 1.46, 1.41, 1.51, 1.9),
        TuneRow("K=4", "structured", 1, 2.1, 2.16, 2.09, 2.22, 4.1),
        TuneRow("K=2", "structured", 1, 1.81),
    )
    setting = {"hardware": "2 CPU cores", "engine": "vllm 0.32.0", "date": "2026-11-22"}
    title = "tiny: 2 settings against the baseline"
    keys = {"method": "p-eagle", "num_speculative_tokens": 4}
    return TuneReport(title, "latency", rows, "K=4", keys, 2, setting=setting, written="mine.yaml")
