"""The log group of an endpoint, and the metric filters that count tokens in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.measure import expected
from toolkit.planning.names import ENDPOINT_TAG, tag_map
from toolkit.planning.resources import Existing, Resource
from toolkit.planning.retention import price_in_words, rules
from toolkit.platforms.sagemaker.aws_errors import has_code, unless
from toolkit.platforms.sagemaker.keys import aws_observability
from toolkit.platforms.sagemaker.kinds.base import ApiCall, ContentKind, Look, Work, capitalized, key_values
from toolkit.platforms.sagemaker.rules import metrics
from toolkit.platforms.sagemaker.rules.metrics import ACCEPTED, DRAFTED
from toolkit.platforms.sagemaker.rules.names import on_aws
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

_FILTER_PREFIX = "toolkit-"


class LogGroupKind(ContentKind):
    """Created before SageMaker creates it without a retention time. It is ours if our endpoint writes to it."""

    kind = "LogGroup"
    is_kept = True
    resource_type = "AWS::Logs::LogGroup"
    references: ClassVar[Mapping[str, str | None]] = {"LogGroupName": None}

    def desired(self, deployment: Deployment) -> list[Resource]:
        recipe = deployment.recipe
        if not has_monitoring(recipe):
            return []
        group, settings = metrics.log_group(recipe), aws_observability(recipe)
        key = {"kmsKeyId": settings.log_kms_key} if settings.log_kms_key else {}
        days = {"RetentionInDays": settings.log_retention_days}
        return [Resource(self.kind, group, {"logGroupName": group, **days, **key, "tags": tag_map(recipe)})]

    def differs(self, resource: Resource, existing: Existing) -> bool:
        """It only needs our tag and any retention time, which the account's rules may have changed."""
        return not (existing.state["Tagged"] and existing.state["RetentionInDays"])

    def kept_note(self, existing: Existing) -> str:
        if not self.on_aws:
            return ""
        days = existing.state.get("RetentionInDays")
        kept = f"kept for {days} days" if days else "kept without a time limit"
        return (
            f"log group {existing.name}: {kept}, {price_in_words(self.kept_as)}. `toolkit clean` removes it "
            f"{rules()[self.kept_as].days} days after its last line, and at once: "
            f"aws logs delete-log-group --log-group-name {existing.name}"
        )

    @property
    def kept_as(self) -> str:
        return "log group" if self.on_aws else ""

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        for group in metrics.log_groups(name):
            if described := look.once(_describe, group):
                tags = look.clients.logs.list_tags_for_resource(resourceArn=_arn(described))["tags"]
                state = {
                    "Arn": _arn(described),
                    "RetentionInDays": described.get("retentionInDays"),
                    "Tagged": tags.get(ENDPOINT_TAG) == name,
                }
                yield Existing(self.kind, group, True, (name,), state)

    def creating(self, request: Any) -> tuple[ApiCall, ...]:
        own = {key: value for key, value in request.items() if key != "RetentionInDays"}
        return ApiCall("logs", "CreateLogGroup", own), _keeping(request)

    def updating(self, request: Any, existing: Existing | None) -> tuple[ApiCall, ...]:
        """Takes over a group that SageMaker itself has created, for an endpoint without alarms."""
        if existing is None:
            return self.creating(request)
        tagging = ApiCall("logs", "TagResource", {"resourceArn": existing.state["Arn"], "tags": request["tags"]})
        return (tagging,) if existing.state["RetentionInDays"] else (tagging, _keeping(request))

    def create(self, work: Work, request: Any) -> None:
        """Also takes over one that is there by now."""
        group = request["logGroupName"]
        described = _find(work.clients, group)
        if described is not None:
            state = {"Arn": _arn(described), "RetentionInDays": described.get("retentionInDays")}
            for each in self.updating(request, Existing(self.kind, group, True, (), state)):
                each.send(work.clients)
            return
        made, kept = self.creating(request)
        # It exists when our own earlier call has just created it, whose answer was lost.
        unless(work.clients, partial(made.send, work.clients), has_code("ResourceAlreadyExistsException"))
        kept.send(work.clients)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("logs", "DeleteLogGroup", {"logGroupName": name}),)

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        return capitalized({**request, "tags": key_values(request.get("tags", {}))})


class MetricFilterKind(ContentKind):
    """It cannot have tags, and filters of different log groups may have the same name."""

    kind = "MetricFilter"
    resource_type = "AWS::Logs::MetricFilter"
    creates = ("logs", "PutMetricFilter")
    content_keys = ("filterPattern", "metricTransformations")

    def desired(self, deployment: Deployment) -> list[Resource]:
        recipe = deployment.recipe
        k, tells = expected.draft_length(recipe), recipe.engine_rules.metrics
        if k is None or tells is None or not has_monitoring(recipe):
            return []
        return [_filter(recipe, metric, tells.draft_line(k)) for metric in (ACCEPTED, DRAFTED)]

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        for group in metrics.log_groups(name):
            if look.once(_describe, group):
                pages = look.clients.logs.get_paginator("describe_metric_filters").paginate(
                    logGroupName=group, filterNamePrefix=_FILTER_PREFIX
                )
                for page in pages:
                    for item in page["metricFilters"]:
                        yield self.described(_name(group, item["filterName"]), name, item)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        group, _, filter_name = name.partition(":")
        return (ApiCall("logs", "DeleteMetricFilter", {"logGroupName": group, "filterName": filter_name}),)

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        transformations = [capitalized(each) for each in request["metricTransformations"]]
        return capitalized({**request, "metricTransformations": transformations})


def _keeping(request: Mapping[str, Any]) -> ApiCall:
    keys = {"logGroupName": request["logGroupName"], "retentionInDays": request["RetentionInDays"]}
    return ApiCall("logs", "PutRetentionPolicy", keys)


def has_alarms(recipe: Recipe) -> bool:
    """Whether to create alarms: by default on AWS only (`observability.alarms`)."""
    return _wants(aws_observability(recipe).alarms, recipe)


def has_dashboard(recipe: Recipe) -> bool:
    """Whether to create a dashboard: by default on AWS only (`observability.dashboard`)."""
    return _wants(aws_observability(recipe).dashboard, recipe)


def has_monitoring(recipe: Recipe) -> bool:
    """Whether to create anything that needs the log."""
    return has_alarms(recipe) or has_dashboard(recipe)


def _wants(setting: bool | None, recipe: Recipe) -> bool:
    return on_aws(recipe) if setting is None else setting


def _filter(recipe: Recipe, metric: str, pattern: str) -> Resource:
    group, name = metrics.log_group(recipe), _FILTER_PREFIX + metric
    value = {ACCEPTED: "$accepted", DRAFTED: "$drafted"}[metric]
    transformation = {"metricNamespace": metrics.namespace(recipe.name), "metricName": metric, "metricValue": value}
    request = {
        "logGroupName": group,
        "filterName": name,
        "filterPattern": pattern,
        "metricTransformations": [transformation],
    }
    return Resource("MetricFilter", _name(group, name), request)


def _name(log_group: str, name: str) -> str:
    return f"{log_group}:{name}"


def _describe(look: Look, group: str) -> Mapping[str, Any] | None:
    return _find(look.clients, group)


def _find(clients: Clients, group: str) -> Mapping[str, Any] | None:
    pages = clients.logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=group)
    return next((item for page in pages for item in page["logGroups"] if item["logGroupName"] == group), None)


def _arn(log_group: Mapping[str, Any]) -> str:
    """The ARN for tags, which is without `:*` for the streams."""
    arn: str = log_group["arn"]
    return arn.removesuffix(":*")
