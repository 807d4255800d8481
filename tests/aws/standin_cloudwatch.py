"""CloudWatch's GetMetricData with every statistic, and PromQL; metric filters that are put twice."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any
from urllib.parse import parse_qs

from moto.cloudwatch.models import cloudwatch_backends
from moto.logs.models import logs_backends
from standin_http import Call

from toolkit.platforms.local.aws import ACCOUNT

_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "Sum": math.fsum,
    "Minimum": min,
    "Maximum": max,
    "SampleCount": len,
    "Average": lambda values: math.fsum(values) / len(values),
}


class CloudWatch:
    """Values come from moto, which PutMetricData fills. `promql` has the value of each query that contains its key."""

    def __init__(self) -> None:
        self.promql: dict[str, float] = {}
        self.operations: Mapping[str, Callable[[Call], object]] = {
            "cloudwatch:GetMetricData": _get_metric_data,
            "cloudwatch:PromQL": self._promql,
            "logs:PutMetricFilter": _forget_metric_filter,
        }

    def _promql(self, call: Call) -> object:
        form = parse_qs(call.request["Body"])
        (query,), (moment,) = form["query"], form["time"]
        values = [value for key, value in self.promql.items() if key in query]
        result = [{"metric": {}, "value": [float(moment), str(values[0])]}] if values else []
        return {"status": "success", "data": {"resultType": "vector", "result": result}}


def _forget_metric_filter(call: Call) -> None:
    """PutMetricFilter replaces a filter of that name; moto, which goes on from here, would keep both."""
    filters = logs_backends[ACCOUNT][call.region].filters
    filters.delete_filter(call.request["filterName"], call.request["logGroupName"])


def _get_metric_data(call: Call) -> object:
    """All results on one page, oldest first; expressions have none."""
    results = [
        {"Id": query["Id"], "Label": query["Id"], "StatusCode": "Complete", **_series(call, query["MetricStat"])}
        for query in call.request["MetricDataQueries"]
        if "MetricStat" in query
    ]
    return {"MetricDataResults": results}


def _series(call: Call, wanted: Mapping[str, Any]) -> dict[str, Any]:
    metric, period = wanted["Metric"], wanted["Period"]
    start, end = call.request["StartTime"], call.request["EndTime"]
    dimensions = {item["Name"]: item["Value"] for item in metric.get("Dimensions", [])}
    periods: dict[float, list[float]] = defaultdict(list)
    for datum in cloudwatch_backends[ACCOUNT][call.region].metric_data:
        moment = datum.timestamp.replace(tzinfo=UTC).timestamp()
        same = (datum.namespace, datum.name) == (metric["Namespace"], metric["MetricName"])
        if same and start <= moment < end and {d.name: d.value for d in datum.dimensions} == dimensions:
            periods[start + (moment - start) // period * period].append(datum.value)  # type: ignore[attr-defined]
    moments = sorted(periods)
    return {"Timestamps": moments, "Values": [_statistic(periods[moment], wanted["Stat"]) for moment in moments]}


def _statistic(values: Sequence[float], name: str) -> float:
    if name in _STATISTICS:
        return float(_STATISTICS[name](values))
    share = float(name.removeprefix("p")) / 100
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
