"""What watches an endpoint: log group, metric filters, alarms, dashboard; and whether they are as they shall be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.planning import metrics, widgets
from toolkit.planning.metrics import ACCEPTED, DRAFTED, INVOCATIONS
from toolkit.planning.names import tag_map, tags
from toolkit.planning.resources import Account, Existing, Kind, Resource
from toolkit.recipe.resolve import Recipe

RETENTION_DAYS = 30
FILTER_PREFIX = "toolkit-"
"""What the names of our metric filters begin with."""

_ERROR_PERCENT = 5.0
_LONGEST_TTFT_SECONDS = 10.0


def alarms(recipe: Recipe, variants: Sequence[str]) -> list[Resource]:
    """Alarms and what feeds them. On AWS, unless `observability.alarms` says otherwise.

    No metric of SageMaker's says that a container was started again; requests that fail meanwhile do (`errors`).
    """
    if not _wanted(recipe.observability.alarms, recipe):
        return []
    found = [
        *(_errors(recipe, variant, _what("errors", variant, variants)) for variant in variants),
        *_first_token(recipe, variants),
        *_no_copy(recipe),
        *_acceptance(recipe),
    ]
    return [*_fed_by(recipe), *found]


def rollback_alarms(recipe: Recipe, variants: Sequence[str]) -> list[str]:
    """Names of the alarms that shall undo an update: those on errors.

    Not acceptance, which moves with the traffic, nor the first token, which is slow while caches are cold.
    """
    if not _wanted(recipe.observability.alarms, recipe):
        return []
    return [_alarm_name(recipe, _what("errors", variant, variants)) for variant in variants]


def dashboard(recipe: Recipe, account: Account, variants: Sequence[str]) -> list[Resource]:
    """The dashboard and what feeds it. On AWS, unless `observability.dashboard` says otherwise."""
    if not _wanted(recipe.observability.dashboard, recipe):
        return []
    watching = [item.name for item in alarms(recipe, variants) if item.kind == "Alarm"]
    body = json.dumps(widgets.body(recipe, account, variants, watching))
    name = dashboard_name(recipe.name, account.region)
    request = {"DashboardName": name, "DashboardBody": body, "Tags": tags(recipe)}
    return [*_fed_by(recipe), Resource("Dashboard", name, request)]


def alarm_prefix(name: str) -> str:
    """What the names of an endpoint's alarms begin with."""
    return f"toolkit-{name}-"


def dashboard_name(name: str, region: str) -> str:
    """The dashboard of an endpoint. Dashboards are the same in all regions of an account, so it names the region."""
    return f"toolkit-{name}-{region}"


def filter_name(log_group: str, name: str) -> str:
    """The name of a metric filter as a resource: filters of different log groups may have the same name."""
    return f"{log_group}:{name}"


def parts_of_filter(resource: str) -> tuple[str, str]:
    """Log group and name of the filter that `filter_name` named."""
    log_group, _, name = resource.partition(":")
    return log_group, name


def differs(resource: Resource, existing: Existing) -> bool:
    """Whether AWS holds something else than the request asks for.

    Tags do not count, nor what the request leaves to AWS. A log group only needs our tag and some retention: another
    than ours may be the account's rule.
    """
    if resource.kind == "LogGroup":
        return not (existing.state["Tagged"] and existing.state["RetentionInDays"])
    return not _holds(existing.state["Content"], content(resource.kind, resource.request))


def content(kind: Kind, request: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request, or of AWS's description of the resource, says what the resource is like."""
    found = {key: value for key, value in request.items() if key in _CONTENT[kind]}
    if "DashboardBody" in found:
        found["DashboardBody"] = json.loads(found["DashboardBody"])
    if "Alarm" in found:
        found["Alarm"] = content("Alarm", found["Alarm"])
    return found


_CONTENT: Mapping[Kind, tuple[str, ...]] = {
    "MetricFilter": ("filterPattern", "metricTransformations"),
    "Alarm": (
        "AlarmDescription",
        "ActionsEnabled",
        "AlarmActions",
        "OKActions",
        "Namespace",
        "MetricName",
        "Dimensions",
        "Statistic",
        "ExtendedStatistic",
        "Metrics",
        "Period",
        "EvaluationPeriods",
        "DatapointsToAlarm",
        "Threshold",
        "ComparisonOperator",
        "TreatMissingData",
    ),
    "Dashboard": ("DashboardBody",),
    "ScalableTarget": ("MinCapacity", "MaxCapacity"),
    "ScalingPolicy": (
        "PolicyType",
        "TargetTrackingScalingPolicyConfiguration",
        "StepScalingPolicyConfiguration",
        "Alarm",
    ),
}


def _holds(there: Any, wanted: Any) -> bool:
    """Whether everything in `wanted` is in `there`, which may have more keys. The order of lists does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(there, Mapping) and all(_holds(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        items = there or []
        return len(items) == len(wanted) and all(any(_holds(item, value) for item in items) for value in wanted)
    return bool(there == wanted)


def _wanted(setting: bool | None, recipe: Recipe) -> bool:
    return recipe.platform.name == "sagemaker" if setting is None else setting


def _fed_by(recipe: Recipe) -> list[Resource]:
    """The log group, made before SageMaker makes it without an end to its retention, and the counts of tokens in it."""
    group = metrics.log_group(recipe)
    request = {"logGroupName": group, "RetentionInDays": RETENTION_DAYS, "tags": tag_map(recipe)}
    k = metrics.draft_length(recipe)
    filters = [] if k is None else [_filter(recipe, ACCEPTED, k), _filter(recipe, DRAFTED, k)]
    return [Resource("LogGroup", group, request), *filters]


def _filter(recipe: Recipe, metric: str, k: int) -> Resource:
    group, name = metrics.log_group(recipe), FILTER_PREFIX + metric
    value = {ACCEPTED: "$accepted", DRAFTED: "$drafted"}[metric]
    transformation = {"metricNamespace": metrics.namespace(recipe), "metricName": metric, "metricValue": value}
    request = {
        "logGroupName": group,
        "filterName": name,
        "filterPattern": recipe.engine.rules.draft_line(k),
        "metricTransformations": [transformation],
    }
    return Resource("MetricFilter", filter_name(group, name), request)


def _errors(recipe: Recipe, variant: str, what: str) -> Resource:
    """The share of requests that failed in the container, refused ones (4xx) not counted: those are the caller's."""
    dimensions = metrics.dimensions(recipe, variant)
    return _alarm(
        recipe,
        what,
        f"More than {_ERROR_PERCENT:g} % of the requests to {recipe.name} failed, in 3 of 5 minutes. "
        f"See: toolkit logs {recipe.name}",
        Metrics=[
            _sum("model_errors", INVOCATIONS, "InvocationModelErrors", 60, dimensions),
            _sum("client_errors", INVOCATIONS, "Invocation4XXErrors", 60, dimensions),
            _sum("requests", INVOCATIONS, "Invocations", 60, dimensions),
            _math("100 * (model_errors - client_errors) / requests", "failed requests, %"),
        ],
        EvaluationPeriods=5,
        DatapointsToAlarm=3,
        Threshold=_ERROR_PERCENT,
        ComparisonOperator="GreaterThanThreshold",
    )


def _first_token(recipe: Recipe, variants: Sequence[str]) -> list[Resource]:
    """Of streamed answers, by endpoint and variant only: SageMaker has no such metric for components."""
    if recipe.platform.component:
        return []
    return [
        _alarm(
            recipe,
            _what("first-token", variant, variants),
            f"One of a hundred streamed answers of {recipe.name} began after more than {_LONGEST_TTFT_SECONDS:g} s, in "
            f"5 minutes running: requests wait. Raise scaling.max_instances, or send fewer.",
            Namespace=INVOCATIONS,
            MetricName="FirstChunkLatency",
            Dimensions=_pairs(metrics.dimensions(recipe, variant)),
            ExtendedStatistic="p99",
            Period=60,
            EvaluationPeriods=5,
            DatapointsToAlarm=5,
            Threshold=_LONGEST_TTFT_SECONDS * 1e6,  # the metric's unit is the microsecond
            ComparisonOperator="GreaterThanThreshold",
        )
        for variant in variants
    ]


def _no_copy(recipe: Recipe) -> list[Resource]:
    """Only where at least one copy shall serve at any time."""
    if recipe.platform.component is None or recipe.scaling.min_instances == 0:
        return []
    alarm = _alarm(
        recipe,
        "no-copy",
        f"No copy of {recipe.name} was in service for a request. See: toolkit status",
        Namespace=INVOCATIONS,
        MetricName="NoCapacityInvocationFailures",
        Dimensions=_pairs(metrics.dimensions(recipe, "")),
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        DatapointsToAlarm=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
    )
    return [alarm]


def _acceptance(recipe: Recipe) -> list[Resource]:
    """None without evidence for the recipe's K, or where the log does not tell; the dashboard says so."""
    k, floor = metrics.draft_length(recipe), metrics.acceptance_floor(recipe)
    if k is None or floor is None:
        return []
    alarm = _alarm(
        recipe,
        "acceptance",
        f"The acceptance length of {recipe.name} was below {floor:g} for 15 minutes, {metrics.MARGIN_PERCENT} % of the "
        f"lowest published for K={k}: the traffic, its chat template or the drafter is not what it was. "
        f"See: toolkit prove {recipe.name}",
        Metrics=[
            _sum("accepted", metrics.namespace(recipe), ACCEPTED, 300),
            _sum("drafted", metrics.namespace(recipe), DRAFTED, 300),
            _math(metrics.acceptance_length(k), "acceptance length"),
        ],
        EvaluationPeriods=3,
        DatapointsToAlarm=3,
        Threshold=floor,
        ComparisonOperator="LessThanThreshold",
    )
    return [alarm]


def _alarm(recipe: Recipe, what: str, description: str, **condition: Any) -> Resource:
    notify = [recipe.observability.notify] if recipe.observability.notify else []
    name = _alarm_name(recipe, what)
    request = {
        "AlarmName": name,
        "AlarmDescription": description,
        "ActionsEnabled": True,
        "AlarmActions": notify,
        "OKActions": notify,
        **condition,
        "TreatMissingData": "notBreaching",  # no traffic is no fault
        "Tags": tags(recipe),
    }
    return Resource("Alarm", name, request)


def _alarm_name(recipe: Recipe, what: str) -> str:
    return alarm_prefix(recipe.name) + what


def _what(alarm: str, variant: str, variants: Sequence[str]) -> str:
    return alarm if len(variants) == 1 else f"{alarm}-{variant}"


def _sum(
    name: str, namespace: str, metric: str, period: int, dimensions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    where = {"Namespace": namespace, "MetricName": metric, "Dimensions": _pairs(dimensions or {})}
    return {"Id": name, "MetricStat": {"Metric": where, "Period": period, "Stat": "Sum"}, "ReturnData": False}


def _math(expression: str, label: str) -> dict[str, Any]:
    return {"Id": "result", "Expression": expression, "Label": label, "ReturnData": True}


def _pairs(dimensions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in dimensions.items()]
