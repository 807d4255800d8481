"""A report as the figures that a platform's monitoring keeps: dashboards and alarms ask for them by these names."""

from __future__ import annotations

from dataclasses import replace

from reports import arm, example, times

from toolkit.measure.measurement import Speedup
from toolkit.measure.report import figures_of

# Each figure has another value, so that none can stand for another.
ARM = replace(
    arm("p-eagle", "chat", 4, 52.0),
    ttft=times(0.1),
    itl=times(0.2),
    tpot=times(0.3),
    e2e=times(0.4),
    acceptance_length=3.5,
    requests=48,
    failed=2,
    price_per_million_output_tokens=9.7,
)
SPEEDUP = Speedup("chat", 4, "p-eagle", 2.3, 2.2, 2.4, pays=True)


def test_each_figure_of_an_arm_and_its_speedup_by_name() -> None:
    figures = figures_of(replace(example(), arms=(ARM,), speedups=(SPEEDUP,)))
    assert {figure.name: (round(figure.value, 9), figure.unit) for figure in figures} == {
        "OutputTokensPerSecond": (52.0, "Count/Second"),
        "TimeToFirstTokenP50": (0.1, "Seconds"),
        "TimeToFirstTokenP99": (0.21, "Seconds"),
        "InterTokenLatencyP50": (0.2, "Seconds"),
        "InterTokenLatencyP99": (0.42, "Seconds"),
        "TimePerOutputTokenP50": (0.3, "Seconds"),
        "TimePerOutputTokenP99": (0.63, "Seconds"),
        "EndToEndLatencyP50": (0.4, "Seconds"),
        "EndToEndLatencyP99": (0.84, "Seconds"),
        "AcceptanceLength": (3.5, "None"),
        "Requests": (48, "Count"),
        "FailedRequests": (2, "Count"),
        "DollarsPerMillionOutputTokens": (9.7, "None"),
        "Speedup": (2.3, "None"),
        "SpeedupLow": (2.2, "None"),
        "SpeedupHigh": (2.4, "None"),
    }
    assert {tuple(figure.dimensions.values()) for figure in figures} == {("p-eagle", "chat", "4")}


def test_what_is_not_known_is_no_figure() -> None:
    few = replace(times(0.1), p99=None)
    bare = replace(ARM, ttft=few, itl=None, tpot=None, e2e=None, acceptance_length=None)
    names = {figure.name for figure in figures_of(replace(example(), arms=(bare,), speedups=()))}
    assert "TimeToFirstTokenP50" in names
    assert not {name for name in names if name.endswith("P99") or "Token" in name} - {
        "OutputTokensPerSecond",
        "TimeToFirstTokenP50",
        "DollarsPerMillionOutputTokens",
    }
    assert "AcceptanceLength" not in names
