"""What watches and scales an endpoint, with boto3: CloudWatch, CloudWatch Logs, Application Auto Scaling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.planning import autoscaling, metrics, observability, widgets
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Existing, Kind
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing
from toolkit.platforms.sagemaker.tags import by_key

if TYPE_CHECKING:
    from types_boto3_cloudwatch.type_defs import MetricAlarmTypeDef
    from types_boto3_logs.type_defs import LogGroupTypeDef


def create(clients: Clients, kind: Kind, request: Mapping[str, Any]) -> None:
    """Make the resource, or make it what the request says where there is one already."""
    keys: dict[str, Any] = dict(request)
    match kind:
        case "LogGroup":
            _create_log_group(clients, request)
        case "MetricFilter":
            clients.logs.put_metric_filter(**keys)
        case "Alarm":
            clients.cloudwatch.put_metric_alarm(**keys)
        case "Dashboard":
            clients.cloudwatch.put_dashboard(**keys)
        case "ScalableTarget":
            clients.application_autoscaling.register_scalable_target(**keys)
        case "ScalingPolicy":
            alarm = keys.pop("Alarm", None)
            policy = clients.application_autoscaling.put_scaling_policy(**keys)["PolicyARN"]
            if alarm:
                clients.cloudwatch.put_metric_alarm(**alarm, AlarmActions=[policy])


def delete(clients: Clients, kind: Kind, name: str) -> None:
    """Remove the resource. A target takes its policies with it, and a policy the alarms that belong to it."""
    match kind:
        case "LogGroup":
            clients.logs.delete_log_group(logGroupName=name)
        case "MetricFilter":
            group, filter_name = observability.parts_of_filter(name)
            clients.logs.delete_metric_filter(logGroupName=group, filterName=filter_name)
        case "Alarm":
            clients.cloudwatch.delete_alarms(AlarmNames=[name])
        case "Dashboard":
            clients.cloudwatch.delete_dashboards(DashboardNames=[name])
        case "ScalableTarget":
            clients.application_autoscaling.deregister_scalable_target(**autoscaling.scalable(name))
        case "ScalingPolicy":
            _delete_policy(clients, name)


def tags_of_target(clients: Clients, name: str) -> dict[str, str]:
    """The tags of a scalable target that exists."""
    client = clients.application_autoscaling
    (target,) = client.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[name])["ScalableTargets"]
    return client.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"]


def observe(clients: Clients, endpoint: str) -> Iterator[Existing]:
    """What watches and scales an endpoint or an inference component of that name. Reads only."""
    alarms = _alarms(clients, endpoint)
    names = {resource_id: autoscaling.waking_alarm(resource_id) for resource_id in autoscaling.resource_ids(endpoint)}
    waking = {resource_id: alarms.pop(name) for resource_id, name in names.items() if name in alarms}
    for group in metrics.log_groups(endpoint):
        yield from _log_group(clients, endpoint, group)
    for name, alarm in alarms.items():
        owner = _owner(clients, alarm["AlarmArn"])
        if owner in (endpoint, None):
            yield _existing("Alarm", name, owner, alarm)
    yield from _dashboard(clients, endpoint)
    scaling = [*_scaling(clients, endpoint, waking)]
    yield from scaling
    for resource_id, alarm in waking.items():
        policy = f"{resource_id}/{autoscaling.WAKING}"
        if policy not in [item.name for item in scaling]:  # its endpoint was deleted elsewhere
            yield _existing("ScalingPolicy", policy, _owner(clients, alarm["AlarmArn"]), {"Alarm": alarm})


def _create_log_group(clients: Clients, request: Mapping[str, Any]) -> None:
    """SageMaker itself may have made it, for an endpoint that was not watched then: it becomes ours."""
    group, tags = request["logGroupName"], request["tags"]
    found = _find_log_group(clients, group)
    if found is None:
        try:
            clients.logs.create_log_group(logGroupName=group, tags=tags)
        except ClientError as error:  # made just now: by an earlier try, whose answer was lost
            if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
                raise
    else:
        clients.logs.tag_resource(resourceArn=_arn(found), tags=tags)
    if found is None or "retentionInDays" not in found:
        clients.logs.put_retention_policy(logGroupName=group, retentionInDays=request["RetentionInDays"])


def _delete_policy(clients: Clients, name: str) -> None:
    """The alarm first: one whose policy is gone belongs to nothing."""
    resource_id, _, policy = name.rpartition("/")
    if policy == autoscaling.WAKING:
        try:
            clients.cloudwatch.delete_alarms(AlarmNames=[autoscaling.waking_alarm(resource_id)])
        except ClientError as error:
            if not is_missing(error):
                raise
    clients.application_autoscaling.delete_scaling_policy(PolicyName=policy, **autoscaling.scalable(resource_id))


def _log_group(clients: Clients, endpoint: str, group: str) -> Iterator[Existing]:
    """The group and our filters in it, which cannot carry tags."""
    found = _find_log_group(clients, group)
    if found is None:
        return
    tags = clients.logs.list_tags_for_resource(resourceArn=_arn(found))["tags"]
    state = {"RetentionInDays": found.get("retentionInDays"), "Tagged": tags.get(ENDPOINT_TAG) == endpoint}
    # Ours by its name: an endpoint of ours writes to it, whoever made it.
    yield Existing("LogGroup", group, True, (endpoint,), state)
    pages = clients.logs.get_paginator("describe_metric_filters").paginate(
        logGroupName=group, filterNamePrefix=observability.FILTER_PREFIX
    )
    for page in pages:
        for item in page["metricFilters"]:
            yield _existing("MetricFilter", observability.filter_name(group, item["filterName"]), endpoint, item)


def _find_log_group(clients: Clients, group: str) -> LogGroupTypeDef | None:
    pages = clients.logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=group)
    return next((item for page in pages for item in page["logGroups"] if item["logGroupName"] == group), None)


def _arn(log_group: LogGroupTypeDef) -> str:
    """Tags want the ARN without the `:*` for its streams."""
    return log_group["arn"].removesuffix(":*")


def _alarms(clients: Clients, endpoint: str) -> dict[str, MetricAlarmTypeDef]:
    """By name; among them those of an endpoint whose name goes on where this one ends."""
    prefix = observability.alarm_prefix(endpoint)
    pages = clients.cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=prefix)
    return {item["AlarmName"]: item for page in pages for item in page["MetricAlarms"]}


def _owner(clients: Clients, arn: str) -> str | None:
    return by_key(clients.cloudwatch.list_tags_for_resource(ResourceARN=arn)["Tags"]).get(ENDPOINT_TAG)


def _dashboard(clients: Clients, endpoint: str) -> Iterator[Existing]:
    name = observability.dashboard_name(endpoint, clients.session.region_name)
    try:
        found = clients.cloudwatch.get_dashboard(DashboardName=name)
    except ClientError as error:
        if is_missing(error):
            return
        raise
    yield _existing("Dashboard", name, widgets.owner(found["DashboardBody"]), found)


def _scaling(clients: Clients, endpoint: str, waking: Mapping[str, MetricAlarmTypeDef]) -> Iterator[Existing]:
    client = clients.application_autoscaling
    ids = autoscaling.resource_ids(endpoint)
    targets = client.get_paginator("describe_scalable_targets").paginate(ServiceNamespace="sagemaker", ResourceIds=ids)
    for target in [target for page in targets for target in page["ScalableTargets"]]:
        owner = client.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"].get(ENDPOINT_TAG)
        name = target["ResourceId"]
        yield _existing("ScalableTarget", name, owner, target)
        policies = client.get_paginator("describe_scaling_policies").paginate(
            ServiceNamespace="sagemaker", ResourceId=name
        )
        for policy in [policy for page in policies for policy in page["ScalingPolicies"]]:
            alarm = waking.get(name, {})
            # An alarm that starts another policy is as good as none.
            starts_it = policy["PolicyARN"] in alarm.get("AlarmActions", ())
            yield _existing(
                "ScalingPolicy",
                f"{name}/{policy['PolicyName']}",
                owner,
                {**policy, "Alarm": alarm} if starts_it else policy,
            )


def _existing(kind: Kind, name: str, owner: str | None, description: Mapping[str, Any]) -> Existing:
    state = {"Content": observability.content(kind, description)}
    return Existing(kind, name, owner is not None, (owner or "",), state)
