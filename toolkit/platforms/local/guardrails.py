"""What AWS demands of the DeploymentConfig of updates beyond the shapes of its fields.

By the API references of DeploymentConfig, BlueGreenUpdatePolicy, TrafficRoutingConfig, RollingUpdatePolicy and
InferenceComponentRollingUpdatePolicy. AWS's words are not known: the messages are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

# Of a traffic routing's type: the size that it needs, and the percentages that are allowed.
_SIZES = {"CANARY": ("CanarySize", 1, 50), "LINEAR": ("LinearStepSize", 10, 50)}
_SMALLEST_BATCH, _LARGEST_BATCH = 5, 50


def problems(config: Mapping[str, Any], capacity: int | None = None) -> Iterator[str]:
    """What is wrong with a DeploymentConfig. `capacity` is the number of instances or copies, if it is known."""
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    if blue_green and rolling:
        yield "DeploymentConfig takes BlueGreenUpdatePolicy or RollingUpdatePolicy, not both."
    if blue_green:
        yield from _blue_green(blue_green, capacity)
    if rolling:
        yield from _size("MaximumBatchSize", rolling["MaximumBatchSize"], _SMALLEST_BATCH, _LARGEST_BATCH, capacity)
        yield from _time(rolling, rolling["MaximumBatchSize"], rolling["WaitIntervalInSeconds"])


def _blue_green(policy: Mapping[str, Any], capacity: int | None) -> Iterator[str]:
    routing = policy["TrafficRoutingConfiguration"]
    needed, least, most = _SIZES.get(routing["Type"], ("", 0, 0))
    if needed and needed not in routing:
        yield f"TrafficRoutingConfiguration of type {routing['Type']} needs {needed}."
        return
    for other in ("CanarySize", "LinearStepSize"):
        if other in routing and other != needed:
            yield f"{other} is not for TrafficRoutingConfiguration of type {routing['Type']}."
    if needed:
        yield from _size(needed, routing[needed], least, most, capacity)
    step = routing[needed] if routing["Type"] == "LINEAR" else {"Type": "CAPACITY_PERCENT", "Value": 100}
    yield from _time(policy, step, routing["WaitIntervalInSeconds"])


def _size(name: str, size: Mapping[str, Any], least: int, most: int, capacity: int | None) -> Iterator[str]:
    percent = size["Value"] if size["Type"] == "CAPACITY_PERCENT" else capacity and 100 * size["Value"] / capacity
    if percent and not least <= percent <= most:
        yield f"{name} must be between {least}% and {most}% of the capacity."


def _time(policy: Mapping[str, Any], step: Mapping[str, Any], wait: int) -> Iterator[str]:
    steps = math.ceil(100 / step["Value"]) if step["Type"] == "CAPACITY_PERCENT" else 1
    waiting = steps * wait + policy.get("TerminationWaitInSeconds", 0)
    if policy.get("MaximumExecutionTimeoutInSeconds", math.inf) <= waiting:
        yield f"MaximumExecutionTimeoutInSeconds must be larger than the total waiting time, {waiting} seconds."
