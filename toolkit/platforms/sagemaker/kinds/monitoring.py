"""Alarms on an endpoint, some of which roll back an update, and its dashboard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.measure import expected
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Existing, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.keys import aws, aws_observability, aws_rollout
from toolkit.platforms.sagemaker.kinds.base import ApiCall, ContentKind, Look, by_key
from toolkit.platforms.sagemaker.kinds.log_group import has_alarms, has_dashboard
from toolkit.platforms.sagemaker.rules import metrics, widgets
from toolkit.platforms.sagemaker.rules.arms import variants
from toolkit.platforms.sagemaker.rules.metrics import ACCEPTED, DRAFTED, INVOCATIONS
from toolkit.platforms.sagemaker.rules.names import resource_ids, scale_from_zero_alarm, tags
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

_ERROR_PERCENT = 5.0
_LONGEST_TTFT_SECONDS = 10.0


class AlarmKind(ContentKind):
    """All alarms but those that trigger a scaling policy, which belong to the policy."""

    kind = "Alarm"
    goes_on_pause = True
    resource_type = "AWS::CloudWatch::Alarm"
    creates = ("cloudwatch", "PutMetricAlarm")
    references: ClassVar[Mapping[str, str | None]] = {"AlarmName": None}
    content_keys = (
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
    )

    def desired(self, deployment: Deployment) -> list[Resource]:
        return alarms(deployment.recipe, variants(deployment.recipe))

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        from_zero = [scale_from_zero_alarm(resource_id) for resource_id in resource_ids(name)]
        for alarm, description in look.once(read_alarms, name).items():
            if alarm not in from_zero:
                owner = owner_of_alarm(look.clients, description)
                if owner in (name, None):
                    yield self.described(alarm, owner, description)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("cloudwatch", "DeleteAlarms", {"AlarmNames": [name]}),)


class DashboardKind(ContentKind):
    """A dashboard's tags cannot be read, so its first widget says to which endpoint it belongs."""

    kind = "Dashboard"
    goes_on_pause = True
    resource_type = "AWS::CloudWatch::Dashboard"
    creates = ("cloudwatch", "PutDashboard")
    content_keys = ("DashboardBody",)

    def desired(self, deployment: Deployment) -> list[Resource]:
        recipe, account, shown = deployment.recipe, deployment.account, variants(deployment.recipe)
        if not has_dashboard(recipe):
            return []
        names = [item.name for item in alarms(recipe, shown)]
        body = json.dumps(widgets.body(recipe, account, shown, names))
        name = dashboard_name(recipe.name, account.region)
        return [Resource(self.kind, name, {"DashboardName": name, "DashboardBody": body, "Tags": tags(recipe)})]

    def content(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"DashboardBody": json.loads(request["DashboardBody"])}

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        dashboard, cloudwatch = dashboard_name(name, look.clients.session.region_name), look.clients.cloudwatch
        answer = unless_missing(look.clients, lambda: cloudwatch.get_dashboard(DashboardName=dashboard))
        if answer:
            yield self.described(dashboard, widgets.owner(answer["DashboardBody"]), answer)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("cloudwatch", "DeleteDashboards", {"DashboardNames": [name]}),)


def alarms(recipe: Recipe, variants: Sequence[str]) -> list[Resource]:
    """The alarms of a recipe; empty if it wants none.

    SageMaker has no metric of container restarts, but requests fail during a restart (`errors`).
    """
    if not has_alarms(recipe):
        return []
    return [
        *(_errors(recipe, variant, _what("errors", variant, variants)) for variant in variants),
        *_first_token(recipe, variants),
        *_no_copy(recipe),
        *_acceptance(recipe),
    ]


def rollback_alarms(recipe: Recipe, variants: Sequence[str]) -> list[str]:
    """Names of the alarms that roll back an update: those on errors.

    Not those on acceptance, which varies with the traffic, nor on the first token, which is slow with cold caches.
    """
    if not has_alarms(recipe):
        return []
    return [alarm_prefix(recipe.name) + _what("errors", variant, variants) for variant in variants]


def alarms_of_updates(recipe: Recipe, variants: Sequence[str]) -> list[str]:
    """Names of all alarms that roll back an update: ours, and those that the recipe names."""
    return [*rollback_alarms(recipe, variants), *aws_rollout(recipe).alarms]


def alarm_prefix(name: str) -> str:
    """Prefix of the names of an endpoint's alarms."""
    return f"toolkit-{name}-"


def dashboard_name(name: str, region: str) -> str:
    """Name of an endpoint's dashboard. It has the region, because dashboards of an account are global."""
    return f"toolkit-{name}-{region}"


def read_alarms(look: Look, endpoint: str) -> dict[str, Mapping[str, Any]]:
    """Alarms by name. Includes those of other endpoints whose names begin with this one's."""
    pages = look.clients.cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=alarm_prefix(endpoint))
    return {item["AlarmName"]: item for page in pages for item in page["MetricAlarms"]}


def owner_of_alarm(clients: Clients, alarm: Mapping[str, Any]) -> str | None:
    """The endpoint in an alarm's tag."""
    return by_key(clients.cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]).get(ENDPOINT_TAG)


def _errors(recipe: Recipe, variant: str, what: str) -> Resource:
    """An alarm on the share of requests that failed in the container, without 4xx errors, which the caller causes."""
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
    """Alarms on the first token of streamed answers, per variant. SageMaker has no such metric for components."""
    if aws(recipe).inference_component:
        return []
    return [
        _alarm(
            recipe,
            _what("first-token", variant, variants),
            f"1 % of the streamed answers of {recipe.name} began after more than {_LONGEST_TTFT_SECONDS:g} s, in "
            f"5 consecutive minutes: requests wait. Raise scaling.max_instances, or send fewer.",
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
    """An alarm if no copy is in service, unless the recipe allows zero copies."""
    if aws(recipe).inference_component is None or recipe.scaling.min_instances == 0:
        return []
    alarm = _alarm(
        recipe,
        "no-copy",
        f"No copy of {recipe.name} was in service for a request. See: toolkit status",
        **no_copy(recipe),
    )
    return [alarm]


def no_copy(recipe: Recipe) -> dict[str, Any]:
    """An alarm's condition: a request to the inference component found no copy in service."""
    return {
        "Namespace": INVOCATIONS,
        "MetricName": "NoCapacityInvocationFailures",
        "Dimensions": _pairs(metrics.dimensions(recipe, "")),
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
    }


def _acceptance(recipe: Recipe) -> list[Resource]:
    """An alarm on acceptance. None without evidence for the recipe's K or log lines; the dashboard then says so."""
    k, floor = expected.draft_length(recipe), expected.acceptance_floor(recipe)
    if k is None or floor is None:
        return []
    alarm = _alarm(
        recipe,
        "acceptance",
        f"The acceptance length of {recipe.name} was below {floor:g} for 15 minutes, {expected.MARGIN_PERCENT} % of "
        f"the lowest published for K={k}: the traffic, its chat template or the drafter is not what it was. "
        f"See: toolkit prove {recipe.name}",
        Metrics=[
            _sum("accepted", metrics.namespace(recipe.name), ACCEPTED, 300),
            _sum("drafted", metrics.namespace(recipe.name), DRAFTED, 300),
            _math(metrics.acceptance_length(k), "acceptance length"),
        ],
        EvaluationPeriods=3,
        DatapointsToAlarm=3,
        Threshold=floor,
        ComparisonOperator="LessThanThreshold",
    )
    return [alarm]


def _alarm(recipe: Recipe, what: str, description: str, **condition: Any) -> Resource:
    notify = [aws_observability(recipe).notify] if aws_observability(recipe).notify else []
    name = alarm_prefix(recipe.name) + what
    request = {
        "AlarmName": name,
        "AlarmDescription": description,
        "ActionsEnabled": True,
        "AlarmActions": notify,
        "OKActions": notify,
        **condition,
        "TreatMissingData": "notBreaching",  # no traffic is not an error
        "Tags": tags(recipe),
    }
    return Resource("Alarm", name, request)


def _what(alarm: str, variant: str, variants: Sequence[str]) -> str:
    return alarm if len(variants) == 1 else f"{alarm}-{variant}"


def _sum(
    name: str, namespace: str, metric: str, period: int, dimensions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    identified = {"Namespace": namespace, "MetricName": metric, "Dimensions": _pairs(dimensions or {})}
    return {"Id": name, "MetricStat": {"Metric": identified, "Period": period, "Stat": "Sum"}, "ReturnData": False}


def _math(expression: str, label: str) -> dict[str, Any]:
    return {"Id": "result", "Expression": expression, "Label": label, "ReturnData": True}


def _pairs(dimensions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in dimensions.items()]
