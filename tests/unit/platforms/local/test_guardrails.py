"""What AWS's API references demand of an update's DeploymentConfig. The wording is ours."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.platforms.local.validation import guardrail_problems


def percent(value: int) -> dict[str, Any]:
    return {"Type": "CAPACITY_PERCENT", "Value": value}


def blue_green(kind: str, wait: int = 60, **sizes: Any) -> dict[str, Any]:
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **sizes}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, "MaximumExecutionTimeoutInSeconds": 600}}


def rolling(size: dict[str, Any], wait: int = 60) -> dict[str, Any]:
    return {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": wait}}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (blue_green("CANARY"), "CANARY needs CanarySize"),
        (blue_green("LINEAR"), "LINEAR needs LinearStepSize"),
        (blue_green("CANARY", CanarySize=percent(60)), "CanarySize must be between 1% and 50%"),
        (blue_green("LINEAR", wait=10, LinearStepSize=percent(5)), "LinearStepSize must be between 10% and 50%"),
        (blue_green("ALL_AT_ONCE", CanarySize=percent(10)), "CanarySize is not for"),
        (blue_green("LINEAR", LinearStepSize=percent(10)), "larger than the total waiting time, 600 seconds"),
        (rolling(percent(60)), "MaximumBatchSize must be between 5% and 50%"),
        (rolling({"Type": "INSTANCE_COUNT", "Value": 3}), "MaximumBatchSize must be between 5% and 50%"),
        ({**blue_green("ALL_AT_ONCE"), **rolling(percent(50))}, "not both"),
    ],
)
def test_what_is_refused(config: dict[str, Any], words: str) -> None:
    (problem,) = guardrail_problems(config, capacity=4)
    assert words in problem


@pytest.mark.parametrize(
    "config",
    [
        {},
        blue_green("ALL_AT_ONCE"),
        blue_green("CANARY", CanarySize=percent(10)),
        blue_green("LINEAR", wait=30, LinearStepSize=percent(10)),
        rolling(percent(5)),
        rolling({"Type": "INSTANCE_COUNT", "Value": 2}),
    ],
)
def test_what_is_taken(config: dict[str, Any]) -> None:
    assert list(guardrail_problems(config, capacity=4)) == []
