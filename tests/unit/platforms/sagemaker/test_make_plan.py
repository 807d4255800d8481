"""Desired x observed -> plan: a table of states and the verbs that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_kinds import desired
from fakes import ACCOUNT
from pairs import HUB_RECIPE, recipe_with, write_hub_pair, write_pair

from toolkit.errors import PlatformError
from toolkit.loading import load
from toolkit.planning.kinds import configs
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.keys import ComponentSection
from toolkit.registry import rules_of

OTHER = "another-endpoint"


@pytest.fixture
def resources(tmp_path: Path) -> tuple[Resource, ...]:
    return desired([load(write_pair(tmp_path))], ACCOUNT)


def observed(resources: tuple[Resource, ...], *changes: Existing, without: tuple[str, ...] = ()) -> Observed:
    """Everything desired is there and in service, but for `changes` (which replace or add) and `without`."""
    there = {(item.kind, item.name): existing(item) for item in resources if item.kind not in without}
    return Observed(tuple({**there, **{(item.kind, item.name): item for item in changes}}.values()))


def existing(item: Resource) -> Existing:
    states: dict[str, Mapping[str, Any]] = {
        "Bucket": {"Bucket": item.name},
        "WeightsReference": item.request,
        "RolePolicy": item.request,
        "Endpoint": {"EndpointStatus": "InService", "EndpointConfigName": item.request.get("EndpointConfigName")},
    }
    if item.kind == "Weights":
        states["Weights"] = {**item.request, "Files": len(item.request["Files"])}
    return Existing(item.kind, item.name, True, ("tiny",), states.get(item.kind, {}))


def plan(resources: tuple[Resource, ...], state: Observed) -> Plan:
    return make_plan("recipe.yaml", rules_of("local"), ["tiny"], resources, state)


def only(resources: tuple[Resource, ...], kind: str) -> Resource:
    (item,) = [item for item in resources if item.kind == kind]
    return item


def changes(made: Plan) -> list[tuple[str, str]]:
    return [(action.verb, action.kind) for action in made.changes]


def test_nothing_there(resources: tuple[Resource, ...]) -> None:
    made = plan(resources, Observed())
    assert [action.verb for action in made.actions] == ["create"] * len(resources)
    assert [(action.kind, action.name) for action in made.actions] == [(item.kind, item.name) for item in resources]
    assert configs(made, rules_of(made.platform).kinds) == {"tiny": only(resources, "EndpointConfig").name}


def test_everything_there(resources: tuple[Resource, ...]) -> None:
    made = plan(resources, observed(resources))
    assert made.changes == []
    assert {action.reason for action in made.actions} == {
        "exists",
        "exists with this content",
        "all files are in S3",
        "is in service with this configuration",
    }


@pytest.mark.parametrize(
    ("status", "config", "verb", "reason"),
    [
        ("InService", "same", "reuse", "is in service with this configuration"),
        ("InService", "tiny-old", "update", "runs tiny-old"),
        ("Creating", "same", "reuse", "is creating already"),
        ("Creating", "tiny-old", "update", "runs tiny-old"),
        ("Updating", "same", "reuse", "is updating already"),
        ("Updating", "tiny-old", "update", "runs tiny-old"),
        ("SystemUpdating", "same", "reuse", "is systemupdating already"),
        ("RollingBack", "tiny-old", "update", "runs tiny-old"),
        ("Failed", "same", "replace", "is Failed"),
        ("Deleting", "same", "replace", "is Deleting"),
        ("OutOfService", "same", "replace", "is OutOfService"),
        ("UpdateRollbackFailed", "same", "replace", "is UpdateRollbackFailed"),
    ],
)
def test_an_endpoint_in_every_status(
    resources: tuple[Resource, ...], status: str, config: str, verb: str, reason: str
) -> None:
    running = only(resources, "EndpointConfig").name if config == "same" else config
    state = {"EndpointStatus": status, "EndpointConfigName": running}
    made = plan(resources, observed(resources, Existing("Endpoint", "tiny", True, ("tiny",), state)))
    assert (made.actions[-1].verb, made.actions[-1].reason) == (verb, reason)


@pytest.mark.parametrize(
    ("status", "model", "host", "verb", "reason"),
    [
        ("InService", "same", "tiny", "reuse", "is in service with this model"),
        ("InService", "tiny-old", "tiny", "update", "runs tiny-old"),
        ("Creating", "same", "tiny", "update", "is creating already"),
        ("Updating", "same", "tiny", "update", "is updating already"),
        ("Updating", "tiny-old", "tiny", "update", "runs tiny-old"),
        ("Failed", "same", "tiny", "replace", "is Failed"),
        ("Deleting", "same", "tiny", "replace", "is Deleting"),
        ("InService", "same", OTHER, "replace", f"is on endpoint {OTHER}"),
    ],
)
def test_an_inference_component_in_every_status(status: str, model: str, host: str, verb: str, reason: str) -> None:
    request = {"EndpointName": "tiny", "Specification": {"ModelName": "tiny-new"}}
    wanted = Resource("InferenceComponent", "tiny", {"InferenceComponentName": "tiny", **request}, request)
    models = {"": "tiny-new" if model == "same" else model}
    state = {"Status": status, "Models": models, "EndpointName": host}
    there = Existing("InferenceComponent", "tiny", True, ("tiny",), state)
    made = make_plan("recipe.yaml", rules_of("sagemaker"), ["tiny"], [wanted], Observed((there,)))
    (action,) = made.actions
    assert (action.verb, action.reason) == (verb, reason)


def test_weights_half_uploaded(resources: tuple[Resource, ...]) -> None:
    weights = next(item for item in resources if item.kind == "Weights")
    half = replace(existing(weights), state={"Bucket": "b", "Prefix": "p", "Files": 1})
    made = plan(resources, observed(resources, half))
    (action,) = made.changes
    assert (action.verb, action.name) == ("update", weights.name)
    assert action.reason == f"1 of {len(weights.request['Files'])} files are in S3"


def test_a_policy_for_other_weights(resources: tuple[Resource, ...]) -> None:
    policy = only(resources, "RolePolicy")
    made = plan(resources, observed(resources, replace(existing(policy), state={"PolicyDocument": "{}"})))
    assert changes(made) == [("update", "RolePolicy")]


@pytest.mark.parametrize("kind", ["Role", "Model", "EndpointConfig", "Endpoint"])
def test_what_is_not_ours_is_never_touched(resources: tuple[Resource, ...], kind: str) -> None:
    foreign = replace(existing(only(resources, kind)), ours=False)
    with pytest.raises(PlatformError, match=f"{kind} .* was not created by the toolkit"):
        plan(resources, observed(resources, foreign))


def test_what_is_not_ours_is_not_removed_either(resources: tuple[Resource, ...]) -> None:
    foreign = replace(existing(only(resources, "Endpoint")), ours=False)
    made = make_plan("tiny", rules_of("local"), ["tiny"], (), Observed((foreign,)))
    assert made.actions == ()


def test_what_a_changed_recipe_leaves_behind_is_removed_last(resources: tuple[Resource, ...]) -> None:
    old = [
        Existing("WeightsReference", "old/tiny", True, ("tiny",), {"Bucket": "b", "Key": "uses/old/tiny"}),
        Existing("Weights", "old", True, ("tiny",), {"Bucket": "b", "Prefix": "weights/old/", "Files": 2}),
        Existing("Model", "tiny-old", True, ("tiny",), {}),
        Existing("EndpointConfig", "tiny-old", True, ("tiny",), {}),
    ]
    made = plan(resources, observed(resources, *old))
    assert [(action.verb, action.kind, action.request) for action in made.changes] == [
        ("delete", "EndpointConfig", {"EndpointConfigName": "tiny-old"}),
        ("delete", "Model", {"ModelName": "tiny-old"}),
        ("delete", "Weights", {"Bucket": "b", "Prefix": "weights/old/"}),
        ("delete", "WeightsReference", {"Bucket": "b", "Key": "uses/old/tiny"}),
    ]
    assert {action.reason for action in made.changes} == {"no longer used"}
    assert made.actions[-4:] == tuple(made.changes)


def test_old_weights_that_another_endpoint_uses_stay(resources: tuple[Resource, ...]) -> None:
    old = [
        Existing("WeightsReference", "old/tiny", True, ("tiny",), {"Bucket": "b", "Key": "uses/old/tiny"}),
        Existing("Weights", "old", True, (OTHER, "tiny"), {"Bucket": "b", "Prefix": "weights/old/", "Files": 2}),
    ]
    assert changes(plan(resources, observed(resources, *old))) == [("delete", "WeightsReference")]


def test_destroying_the_only_endpoint_removes_everything(resources: tuple[Resource, ...]) -> None:
    made = make_plan("tiny", rules_of("local"), ["tiny"], (), observed(resources))
    assert [action.kind for action in made.actions] == [
        "Endpoint",
        "EndpointConfig",
        "Model",
        "RolePolicy",
        "Role",
        "Weights",
        "Weights",
        "WeightsReference",
        "WeightsReference",
        "Bucket",
    ]
    assert {action.verb for action in made.actions} == {"delete"}
    assert {action.reason for action in made.actions} == {"removes the endpoint"}
    assert configs(made, rules_of(made.platform).kinds) == {}
    assert made.price_per_hour == 0


def test_destroying_one_of_two_leaves_what_both_use(resources: tuple[Resource, ...]) -> None:
    shared = [
        replace(existing(item), endpoints=(OTHER, "tiny")) for item in resources if item.kind in ("Bucket", "Weights")
    ]
    made = make_plan("tiny", rules_of("local"), ["tiny"], (), observed(resources, *shared))
    assert {action.kind for action in made.actions}.isdisjoint({"Bucket", "Weights"})
    assert "WeightsReference" in {action.kind for action in made.actions}


def test_what_a_killed_deployment_left_is_found_and_used(resources: tuple[Resource, ...]) -> None:
    made = plan(resources, observed(resources, without=("Model", "EndpointConfig", "Endpoint")))
    assert changes(made) == [("create", "Model"), ("create", "EndpointConfig"), ("create", "Endpoint")]


def test_an_endpoint_says_how_long_it_will_take_the_rest_a_moment(resources: tuple[Resource, ...]) -> None:
    seconds = {action.kind: action.expected_seconds for action in plan(resources, Observed()).actions}
    assert seconds["Endpoint"] > 0
    assert sum(seconds.values()) == seconds["Endpoint"]


def test_the_same_inputs_give_the_same_plan(resources: tuple[Resource, ...]) -> None:
    assert plan(resources, observed(resources)) == plan(resources, observed(resources))


def test_the_fingerprint_does_not_depend_on_the_order_of_looking(resources: tuple[Resource, ...]) -> None:
    state = observed(resources)
    assert state.fingerprint() == Observed(state.existing[::-1]).fingerprint()


def test_the_fingerprint_changes_with_anything_that_is_observed(resources: tuple[Resource, ...]) -> None:
    endpoint = existing(only(resources, "Endpoint"))
    fingerprints = {
        Observed().fingerprint(),
        observed(resources).fingerprint(),
        observed(resources, without=("Model",)).fingerprint(),
        observed(resources, replace(endpoint, ours=False)).fingerprint(),
        observed(resources, replace(endpoint, endpoints=(OTHER,))).fingerprint(),
        observed(resources, replace(endpoint, state={**endpoint.state, "EndpointStatus": "Failed"})).fingerprint(),
    }
    assert len(fingerprints) == 6


OWN = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
DIGEST = f"@sha256:{'a' * 64}"


def built(
    base: str, *, builder: str | None = None, catalogue: int | None = None, observed: int | None = None
) -> Action:
    """The plan's action for an image on that base, whose size the catalogue or the registry knows, or nobody."""
    request = {"Image": f"{OWN}/toolkit/tiny:1", "Builder": builder, "NeedsRun": False, "Base": base}
    known = {"BaseBytes": catalogue} if catalogue else {}
    there = (Existing("Image", base, False, (), {"Bytes": observed}),) if observed else ()
    resource = Resource("Image", "toolkit/tiny:1", {**request, **known})
    (action,) = make_plan("recipe.yaml", rules_of("sagemaker"), ["tiny"], [resource], Observed(there)).actions
    return action


@pytest.mark.parametrize("size", [{"catalogue": 9_000_000_000}, {"observed": 9_000_000_000}])
def test_a_base_from_elsewhere_is_copied_as_long_as_its_size_says(size: Mapping[str, int]) -> None:
    action = built(f"docker.io/org/base{DIGEST}", **size)
    assert "(9.0 GB), to copy except for existing layers: about 3 min, at 60 MB/s" in action.reason
    assert action.expected_seconds == 160


def test_of_a_base_of_unknown_size_an_example_is_told() -> None:
    assert "(size unknown), to copy" in (action := built("docker.io/org/base:1")).reason
    assert "about 3 min if it has 10 GB" in action.reason


def test_a_base_of_the_own_registry_takes_seconds() -> None:
    action = built(f"{OWN}/base{DIGEST}", observed=9_000_000_000)
    assert "(9.0 GB), which is in the same registry" in action.reason
    assert action.expected_seconds == 10


def test_an_engine_fetches_the_base_from_wherever_it_is() -> None:
    assert built(f"{OWN}/base{DIGEST}", builder="docker", observed=9_000_000_000).expected_seconds == 160


def test_an_endpoint_is_waited_for_although_its_component_has_its_name(tmp_path: Path) -> None:
    recipe = recipe_with(load(write_hub_pair(tmp_path)), inference_component=ComponentSection())
    made = make_plan("recipe.yaml", rules_of("sagemaker"), ["hub"], desired([recipe], ACCOUNT), Observed())
    assert [action.kind for action in made.actions if action.name == "hub"] == ["Endpoint", "InferenceComponent"]
    assert configs(made, rules_of(made.platform).kinds).keys() == {"hub"}


def test_autoscaling_goes_just_before_the_update_that_aws_refuses_with_it_and_comes_back_after(tmp_path: Path) -> None:
    """Developer guide, endpoint-scaling-update: with it, an update to another instance type fails."""
    text = HUB_RECIPE + "scaling: {min_instances: 1, max_instances: 3}\n"
    before = desired([load(write_hub_pair(tmp_path, text))], ACCOUNT)
    after = desired([load(write_hub_pair(tmp_path, text.replace("ml.g6.xlarge", "ml.g6e.xlarge")))], ACCOUNT)
    config = only(before, "EndpointConfig").name
    states: dict[str, Mapping[str, Any]] = {
        "Endpoint": {"EndpointStatus": "InService", "EndpointConfigName": config, "Running": config},
        "EndpointConfig": {"Variants": {"AllTraffic": ["ml.g6.xlarge"]}},
        "ScalableTarget": {},
        "ScalingPolicy": {},
    }
    there = Observed(
        tuple(
            Existing(item.kind, item.name, True, ("hub",), states[item.kind]) for item in before if item.kind in states
        )
    )
    made = make_plan("recipe.yaml", rules_of("sagemaker"), ["hub"], after, there)
    around = [one for one in changes(made) if one[1] in ("ScalingPolicy", "ScalableTarget", "Endpoint")]
    assert around == [
        ("delete", "ScalingPolicy"),
        ("delete", "ScalableTarget"),
        ("update", "Endpoint"),
        ("create", "ScalableTarget"),
        ("create", "ScalingPolicy"),
    ]
