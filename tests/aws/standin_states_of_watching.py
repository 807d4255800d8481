"""Refusals by state of Application Auto Scaling, CloudWatch and its logs; see standin_states.py."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Sequence
from typing import Any
from zoneinfo import available_timezones

from moto.kms.models import kms_backends
from moto.logs.models import logs_backends
from standin_patterns import fields_of, is_broken
from standin_states import Scope, World, state

from toolkit.platforms.local.aws import ACCOUNT

_COLUMNS = 24

# Autoscaling


@state
def new_policy_without_type(scope: Scope, world: World) -> bool:
    return "PolicyType" not in scope and not world.scaling.has_policy(world.call)


@state
def metric_tracked_already(scope: Scope, world: World) -> bool:
    wanted = scope.get("TargetTrackingScalingPolicyConfiguration", {}).get("PredefinedMetricSpecification")
    others = world.scaling.other_policies(world.call)
    tracked = [policy.get("TargetTrackingScalingPolicyConfiguration", {}) for policy in others]
    return wanted is not None and wanted in [item.get("PredefinedMetricSpecification") for item in tracked]


@state
def unknown_time_zone(scope: Scope, world: World) -> bool:
    return "Timezone" in scope and scope["Timezone"] not in available_timezones()


def _ranges(scope: Scope) -> list[tuple[float, float]]:
    steps = scope.get("StepAdjustments", [])
    return sorted(
        (step.get("MetricIntervalLowerBound", -math.inf), step.get("MetricIntervalUpperBound", math.inf))
        for step in steps
    )


@state
def steps_overlap(scope: Scope, world: World) -> bool:
    return any(before[1] > after[0] for before, after in itertools.pairwise(_ranges(scope)))


@state
def steps_gap(scope: Scope, world: World) -> bool:
    return any(before[1] < after[0] for before, after in itertools.pairwise(_ranges(scope)))


@state
def steps_open_below(scope: Scope, world: World) -> bool:
    return sum(low == -math.inf for low, _ in _ranges(scope)) > 1


@state
def steps_open_above(scope: Scope, world: World) -> bool:
    return sum(high == math.inf for _, high in _ranges(scope)) > 1


@state
def steps_negative_not_open(scope: Scope, world: World) -> bool:
    lows = [low for low, _ in _ranges(scope)]
    return any(-math.inf < low < 0 for low in lows) and -math.inf not in lows


@state
def steps_positive_not_open(scope: Scope, world: World) -> bool:
    highs = [high for _, high in _ranges(scope)]
    return any(0 < high < math.inf for high in highs) and math.inf not in highs


def _results(queries: Sequence[Scope]) -> int:
    return sum(query.get("ReturnData", True) for query in queries)


@state
def two_results_tracked(scope: Scope, world: World) -> bool:
    tracked = scope.get("TargetTrackingScalingPolicyConfiguration", {})
    queries = tracked.get("CustomizedMetricSpecification", {}).get("Metrics", [])
    return bool(queries) and _results(queries) != 1


# CloudWatch and its logs


@state
def not_one_result(scope: Scope, world: World) -> bool:
    return "Metrics" in scope and _results(scope["Metrics"]) != 1


@state
def periods_of_queries(scope: Scope, world: World) -> bool:
    queries = [*scope.get("Metrics", []), *scope.get("MetricDataQueries", [])]
    periods = [query["MetricStat"]["Period"] for query in queries if "MetricStat" in query]
    return any(period % 60 and period not in (1, 5, 10, 20, 30) for period in periods)


@state
def counts_differ(scope: Scope, world: World) -> bool:
    return "Counts" in scope and len(scope["Counts"]) != len(scope.get("Values", []))


def _seconds(moment: Any) -> float:
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)


def _moments(scope: Scope) -> list[float]:
    return [_seconds(datum["Timestamp"]) for datum in scope.get("MetricData", []) if "Timestamp" in datum]


@state
def data_too_old(scope: Scope, world: World) -> bool:
    return any(moment < time.time() - 14 * 24 * 3600 for moment in _moments(scope))


@state
def data_in_the_future(scope: Scope, world: World) -> bool:
    return any(moment > time.time() + 2 * 3600 for moment in _moments(scope))


@state
def not_before_end(scope: Scope, world: World) -> bool:
    return _seconds(scope["StartTime"]) >= _seconds(scope["EndTime"])


@state
def too_many_points(scope: Scope, world: World) -> bool:
    return (_seconds(scope["EndTime"]) - _seconds(scope["StartTime"])) / scope["Period"] > 1440


@state
def broken_pattern(scope: Scope, world: World) -> bool:
    return is_broken(scope.get("filterPattern", ""))


@state
def value_of_no_field(scope: Scope, world: World) -> bool:
    values = [item["metricValue"] for item in scope["metricTransformations"]]
    named = [value.removeprefix("$") for value in values if value.startswith("$") and not value.startswith("$.")]
    return not set(named) <= set(fields_of(scope["filterPattern"]))


@state
def no_such_group(scope: Scope, world: World) -> bool:
    return scope["logGroupName"] not in logs_backends[ACCOUNT][world.call.region].groups


def _filters(scope: Scope, world: World) -> set[str]:
    filters = logs_backends[ACCOUNT][world.call.region].filters.metric_filters
    return {item["filterName"] for item in filters if item["logGroupName"] == scope["logGroupName"]}


@state
def no_such_filter(scope: Scope, world: World) -> bool:
    return scope["filterName"] not in _filters(scope, world)


@state
def write_policy_not_json(scope: Scope, world: World) -> bool:
    try:
        return not isinstance(json.loads(scope["policyDocument"]), dict)
    except ValueError:
        return True


@state
def no_such_key(scope: Scope, world: World) -> bool:
    arn: str = scope.get("kmsKeyId", "")
    return f":{ACCOUNT}:key/" in arn and arn.rpartition("/")[2] not in kms_backends[ACCOUNT][world.call.region].keys


@state
def one_hundred_filters(scope: Scope, world: World) -> bool:
    names = _filters(scope, world)
    return scope["filterName"] not in names and len(names) >= 100


def _times(scope: Scope) -> list[int]:
    return [event["timestamp"] for event in scope["logEvents"]]


@state
def events_out_of_order(scope: Scope, world: World) -> bool:
    return _times(scope) != sorted(_times(scope))


@state
def events_over_a_day(scope: Scope, world: World) -> bool:
    return max(_times(scope)) - min(_times(scope)) > 24 * 3600 * 1000


@state
def events_too_large(scope: Scope, world: World) -> bool:
    return sum(len(event["message"].encode()) + 26 for event in scope["logEvents"]) > 1_048_576


@state
def action_of_another_region(scope: Scope, world: World) -> bool:
    actions = [arn for key in ("AlarmActions", "OKActions", "InsufficientDataActions") for arn in scope.get(key, [])]
    return any(arn.split(":")[3] not in ("", world.call.region) for arn in actions)


@state
def widget_wider_than_the_grid(scope: Scope, world: World) -> bool:
    try:
        widgets = json.loads(scope["DashboardBody"]).get("widgets", [])
    except ValueError:  # which is refused by itself
        return False
    return any(widget.get("x", 0) + widget.get("width", 0) > _COLUMNS for widget in widgets)
