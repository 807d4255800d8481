"""What watches and scales an endpoint: made, found again and removed through boto3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_kinds import KINDS, SCALING, differs, kind_of, wanted
from botocore.stub import Stubber
from fakes import Told
from pairs import recipe_with, write_hub_pair
from standin import ACCOUNT, StandIn

from toolkit.loading import load
from toolkit.planning.resources import Account, Existing, Resource
from toolkit.platforms.elsewhere import open_files
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.keys import ComponentSection
from toolkit.platforms.sagemaker.kinds.base import Look, Work
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Evidence, ScalingSection

HERE = Account(ACCOUNT, "us-west-2")
WATCHING = ("LogGroup", "MetricFilter", "Alarm", "Dashboard")
GROUP = "/aws/sagemaker/Endpoints/hub"


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return Clients(standin.session())


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    published = Evidence(
        workload="chat", acceptance_length=3.3, hardware="GPU", engine="vllm", date="2026-11-20", source="us"
    )
    return replace(load(write_hub_pair(tmp_path)), evidence=(published,))


def watchers(recipe: Recipe) -> list[Resource]:
    return wanted(recipe, *WATCHING, account=HERE)


def _nothing(request: object, progress: object) -> None:
    pass


def make(clients: Clients, resources: Sequence[Resource]) -> None:
    work = Work(clients, Told(), open_files, _nothing, lambda *_: nullcontext(), _nothing)
    for item in resources:
        kind_of(item.kind).create(work, item.request)


def remove(clients: Clients, item: Resource) -> None:
    kind_of(item.kind).delete(clients, item.name, {})


def seen(clients: Clients, endpoint: str = "hub") -> dict[str, Existing]:
    look = Look(clients, HERE, (), (endpoint,), lambda request: False, lambda image: None)
    found = [item for kind in (*WATCHING, *SCALING) for item in kind_of(kind).observe_endpoint(look, endpoint)]
    return {item.name: item for item in found}


def test_what_was_made_is_found_again_as_it_shall_be(clients: Clients, recipe: Recipe) -> None:
    wanted = watchers(recipe)
    make(clients, wanted)
    found = seen(clients)
    assert found.keys() == {item.name for item in wanted}
    for item in wanted:
        existing = found[item.name]
        assert (existing.kind, existing.ours, existing.endpoints) == (item.kind, True, ("hub",))
        assert not differs(item, existing), item.name


def test_an_inference_component_has_its_own_log_group(clients: Clients, recipe: Recipe) -> None:
    wanted = watchers(recipe_with(recipe, inference_component=ComponentSection()))
    make(clients, wanted)
    assert seen(clients).keys() == {item.name for item in wanted}


def test_making_it_again_changes_what_was_changed(clients: Clients, recipe: Recipe) -> None:
    wanted = watchers(recipe)
    make(clients, wanted)
    alarm = next(item for item in wanted if item.kind == "Alarm")
    make(clients, [replace(alarm, request={**alarm.request, "Threshold": 50.0})])
    assert differs(alarm, seen(clients)[alarm.name])
    make(clients, wanted)
    assert not differs(alarm, seen(clients)[alarm.name])


def test_nothing_watches_an_endpoint_that_was_never_deployed(clients: Clients) -> None:
    assert seen(clients) == {}


def test_removing_leaves_nothing(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    wanted = watchers(recipe)
    make(clients, wanted)
    for item in sorted(wanted, key=lambda item: -KINDS.index(item.kind)):
        remove(clients, item)
    assert standin.leftovers() == []


def test_another_endpoint_whose_name_begins_alike_is_not_mixed_up(clients: Clients, recipe: Recipe) -> None:
    make(clients, watchers(recipe.baseline()))
    assert seen(clients) == {}
    assert "toolkit-hub-baseline-errors" in seen(clients, "hub-baseline")


def test_an_alarm_and_a_dashboard_without_our_marks_are_not_ours(clients: Clients, recipe: Recipe) -> None:
    wanted = {item.kind: item for item in watchers(recipe)}
    alarm, board = wanted["Alarm"], wanted["Dashboard"]
    clients.cloudwatch.put_metric_alarm(**{**alarm.request, "Tags": []})
    clients.cloudwatch.put_dashboard(DashboardName=board.name, DashboardBody='{"widgets": []}')
    assert {item.name: item.ours for item in seen(clients).values()} == {alarm.name: False, board.name: False}


def test_the_log_group_that_sagemaker_made_becomes_ours(clients: Clients, recipe: Recipe) -> None:
    clients.logs.create_log_group(logGroupName=GROUP)
    group = watchers(recipe)[0]
    assert differs(group, seen(clients)[GROUP])
    make(clients, [group])
    assert not differs(group, seen(clients)[GROUP])
    assert seen(clients)[GROUP].state.items() >= {"RetentionInDays": 30, "Tagged": True}.items()


def test_a_retention_that_somebody_chose_stays(clients: Clients, recipe: Recipe) -> None:
    clients.logs.create_log_group(logGroupName=GROUP)
    clients.logs.put_retention_policy(logGroupName=GROUP, retentionInDays=365)
    make(clients, watchers(recipe)[:1])
    assert seen(clients)[GROUP].state.items() >= {"RetentionInDays": 365, "Tagged": True}.items()


def test_looking_only_reads(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    make(clients, watchers(recipe))
    standin.calls.clear()
    seen(clients)
    assert {call.operation.rstrip("s") for call in standin.calls} <= {
        "DescribeAlarm",
        "DescribeLogGroup",
        "DescribeMetricFilter",
        "DescribeScalableTarget",
        "GetDashboard",
        "ListTagsForResource",
    }
    assert len(standin.calls) <= 12


# ---- scaling: Application Auto Scaling is played by botocore's own Stubber ----

POLICY = "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:1:resource/sagemaker/inference-component/hub:p"
TARGET = "arn:aws:application-autoscaling:us-west-2:123456789012:scalable-target/1"


@pytest.fixture
def scaling(clients: Clients) -> Iterator[Stubber]:
    with Stubber(clients.application_autoscaling) as stubber:
        yield stubber


@pytest.fixture
def scaled(recipe: Recipe) -> dict[str, Resource]:
    """Target and policies of a component that may have no copies."""
    component = recipe_with(
        recipe, inference_component=ComponentSection(), scaling=ScalingSection(min_instances=0, max_instances=2)
    )
    return {item.name.removeprefix("inference-component/hub"): item for item in wanted(component, *SCALING)}


def described(item: Resource) -> dict[str, Any]:
    """The resource as Application Auto Scaling describes it."""
    request = {key: value for key, value in item.request.items() if key not in ("Tags", "Alarm")}
    if item.kind == "ScalingPolicy":
        return {**request, "PolicyARN": POLICY, "CreationTime": 0}
    return {**request, "ScalableTargetARN": TARGET, "RoleARN": "arn:aws:iam::123456789012:role/r", "CreationTime": 0}


def play(scaling: Stubber, scaled: Mapping[str, Resource], tags: Mapping[str, str]) -> None:
    """The answers to one look at the component's target and its policies."""
    target, *policies = [described(item) for item in scaled.values()]
    scaling.add_response("describe_scalable_targets", {"ScalableTargets": [target]})
    scaling.add_response("list_tags_for_resource", {"Tags": tags}, {"ResourceARN": TARGET})
    scaling.add_response("describe_scaling_policies", {"ScalingPolicies": policies})


def test_the_waking_policy_brings_the_alarm_that_starts_it(
    clients: Clients, scaling: Stubber, scaled: Mapping[str, Resource]
) -> None:
    from_zero = scaled["/from-zero"]
    sent = {key: value for key, value in from_zero.request.items() if key != "Alarm"}
    scaling.add_response("put_scaling_policy", {"PolicyARN": POLICY}, sent)
    make(clients, [from_zero])
    (alarm,) = clients.cloudwatch.describe_alarms(AlarmNames=["toolkit-hub-from-zero"])["MetricAlarms"]
    assert alarm["AlarmActions"] == [POLICY]


def test_a_target_and_its_policies_are_found_again_as_they_shall_be(
    clients: Clients, scaling: Stubber, scaled: Mapping[str, Resource]
) -> None:
    scaling.add_response("put_scaling_policy", {"PolicyARN": POLICY})
    make(clients, [scaled["/from-zero"]])
    play(scaling, scaled, scaled[""].request["Tags"])
    found = seen(clients)
    assert found.keys() == {item.name for item in scaled.values()}
    for item in scaled.values():
        assert (found[item.name].ours, found[item.name].endpoints) == (True, ("hub",))
        assert not differs(item, found[item.name]), item.name


def test_a_waking_policy_without_its_alarm_is_made_again(
    clients: Clients, scaling: Stubber, scaled: Mapping[str, Resource]
) -> None:
    play(scaling, scaled, scaled[""].request["Tags"])
    found = seen(clients)
    changed = [name for name, item in scaled.items() if differs(item, found[item.name])]
    assert changed == ["/from-zero"]


def test_an_alarm_that_starts_another_policy_is_as_good_as_none(
    clients: Clients, scaling: Stubber, scaled: Mapping[str, Resource]
) -> None:
    from_zero = scaled["/from-zero"]
    scaling.add_response("put_scaling_policy", {"PolicyARN": f"{POLICY}-of-before"})
    make(clients, [from_zero])
    play(scaling, scaled, scaled[""].request["Tags"])
    assert differs(from_zero, seen(clients)[from_zero.name])


def test_a_target_without_our_tag_is_not_ours(
    clients: Clients, scaling: Stubber, scaled: Mapping[str, Resource]
) -> None:
    play(scaling, scaled, {"team": "another"})
    assert {item.ours for item in seen(clients).values()} == {False}


def test_removing_a_waking_policy_removes_its_alarm(
    standin: StandIn, clients: Clients, scaling: Stubber, scaled: Mapping[str, Resource]
) -> None:
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "inference-component/hub",
        "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
    }
    scaling.add_response("put_scaling_policy", {"PolicyARN": POLICY})
    make(clients, [scaled["/from-zero"]])
    scaling.add_response("delete_scaling_policy", {}, {**target, "PolicyName": "from-zero"})
    scaling.add_response("deregister_scalable_target", {}, target)
    for name in ("/from-zero", ""):
        remove(clients, scaled[name])
    scaling.assert_no_pending_responses()
    assert standin.leftovers() == []
