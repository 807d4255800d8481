"""A recipe as AWS resources: names that say their content, requests to the letter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_kinds import KINDS, desired
from fakes import ACCOUNT
from pairs import recipe_with, write_hub_pair, write_pair

from toolkit.loading import load
from toolkit.planning.names import content_name, is_content_name
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.keys import AwsNetwork, AwsObservability, AwsRollout, ComponentSection
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.arms import arms
from toolkit.platforms.sagemaker.rules.names import ran_before, role_name
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import InstanceType, ScalingSection
from toolkit.recipe.source import ModelSource


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_pair(tmp_path))


def names(recipe: Recipe) -> dict[str, str]:
    """Name of each kind of resource that has but one."""
    return {item.kind: item.name for item in desired([recipe], ACCOUNT)}


def test_every_request_of_a_pair(recipe: Recipe, tmp_path: Path, golden: Callable[[str, object], None]) -> None:
    made = [{"kind": item.kind, "name": item.name, "request": item.request} for item in desired([recipe], ACCOUNT)]
    golden("desired-p-eagle", json.loads(json.dumps(made).replace(str(tmp_path), "<recipe>")))


def test_resources_stand_in_the_order_in_which_they_are_made(recipe: Recipe) -> None:
    kinds = [item.kind for item in desired([recipe], ACCOUNT)]
    assert kinds == sorted(kinds, key=KINDS.index)


def test_requests_are_json_all_through(recipe: Recipe) -> None:
    for item in desired([recipe], ACCOUNT):
        assert json.loads(json.dumps(item.request)) == item.request


def test_the_same_recipe_elsewhere_has_the_same_names(recipe: Recipe, tmp_path: Path) -> None:
    again = load(write_pair(tmp_path / "elsewhere" / "deeper"))
    assert names(again) == names(recipe)


def changed(what: str) -> Callable[[Recipe], Recipe]:
    def change(recipe: Recipe) -> Recipe:
        assert recipe.speculation
        return {
            "description": lambda: replace(recipe, description="other words"),
            "evidence": lambda: replace(recipe, evidence=()),
            "tokens": lambda: replace(recipe, speculation=recipe.speculation.edit(num_speculative_tokens=3)),
            "flag": lambda: replace(recipe, engine=recipe.engine.edit(args={"dtype": "bfloat16"})),
            "instance": lambda: recipe_with(recipe, instance_types=("ml.c7i.large",)),
            "drafter": lambda: replace(recipe, speculation=recipe.speculation.edit(model=recipe.target.model)),
        }[what]()

    return change


@pytest.mark.parametrize(
    ("what", "renamed"),
    [
        ("description", set()),
        ("evidence", set()),
        ("instance", {"EndpointConfig"}),
        ("tokens", {"Model", "EndpointConfig"}),
        ("flag", {"Model", "EndpointConfig"}),
        ("drafter", {"Weights", "WeightsReference", "Model", "EndpointConfig"}),
    ],
)
def test_a_change_renames_what_it_changes_and_nothing_else(recipe: Recipe, what: str, renamed: set[str]) -> None:
    before, after = names(recipe), names(changed(what)(recipe))
    assert {kind for kind in before if before[kind] != after[kind]} == renamed


def test_new_weights_under_the_old_path_have_another_name(recipe: Recipe, tmp_path: Path) -> None:
    before = names(recipe)
    (tmp_path / "drafter" / "model.safetensors").write_bytes(b"other")
    after = names(recipe)
    assert {kind for kind in before if before[kind] != after[kind]} == {
        "Weights",
        "WeightsReference",
        "Model",
        "EndpointConfig",
    }


def test_hidden_files_are_not_weights(recipe: Recipe, tmp_path: Path) -> None:
    before = names(recipe)
    (tmp_path / "drafter" / ".git").mkdir()
    (tmp_path / "drafter" / ".git" / "config").write_text("x")
    assert names(recipe) == before


def test_a_recipe_and_its_baseline_share_bucket_and_target(recipe: Recipe) -> None:
    both = desired([recipe, recipe.baseline()], ACCOUNT)
    assert len({(item.kind, item.name) for item in both}) == len(both)
    count = Counter(item.kind for item in both)
    assert count == {
        "Bucket": 1,
        "WeightsReference": 3,
        "Weights": 2,
        "Role": 2,
        "RolePolicy": 2,
        "Model": 2,
        "EndpointConfig": 2,
        "Endpoint": 2,
    }


def test_every_name_fits_sagemaker_for_the_longest_recipe_name(recipe: Recipe) -> None:
    longest = replace(recipe, name="a" * 44).baseline()
    for item in desired([longest], ACCOUNT):
        if item.kind in ("Model", "EndpointConfig", "Endpoint", "Role", "Bucket"):
            assert len(item.name) <= (64 if item.kind == "Role" else 63)


def test_roles_of_two_regions_have_names_of_their_own() -> None:
    """IAM's names are the same in all regions, and a role's policy names a region's bucket and logs."""
    names = {role_name(name, Account("123456789012", region)) for name in NAMES for region in REGIONS}
    assert len(names) == len(NAMES) * len(REGIONS)
    assert role_name("hub", ACCOUNT) == "toolkit-hub-us-west-2"
    assert max(map(len, names)) == 64


NAMES = ("hub", "hub-baseline", "a" * 44 + "-baseline", "a" * 44 + "-compile")
REGIONS = ("us-west-2", "eu-west-1", "ap-southeast-2")


def bucket(recipe: Recipe, region: str) -> Resource:
    return desired([recipe], Account("123456789012", region))[0]


def config_of(recipe: Recipe) -> dict[str, Any]:
    (found,) = [item.request for item in desired([recipe], ACCOUNT) if item.kind == "EndpointConfig"]
    variant: dict[str, Any] = found["ProductionVariants"][0]
    return variant


@pytest.mark.parametrize("key", [None, "alias/ours"])
def test_captured_prompts_are_encrypted_with_the_recipes_key(recipe: Recipe, key: str | None) -> None:
    capturing = recipe_with(recipe, kms_key=key, observability=AwsObservability(data_capture_percent=50))
    (config,) = [item.request for item in desired([capturing], ACCOUNT) if item.kind == "EndpointConfig"]
    assert config["DataCaptureConfig"].get("KmsKeyId") == key


def test_a_candidate_is_one_instance_with_as_many_requests_as_each_of_the_others(recipe: Recipe) -> None:
    trial = replace(
        recipe_with(recipe, scaling=ScalingSection(min_instances=4, max_instances=4)), candidate=recipe.speculation
    )
    (config,) = [item.request for item in desired([trial], ACCOUNT) if item.kind == "EndpointConfig"]
    shares = {
        item["VariantName"]: (item["InitialInstanceCount"], item.get("InitialVariantWeight", 1.0))
        for item in config["ProductionVariants"]
    }
    assert shares == {"AllTraffic": (4, 1.0), "candidate": (1, 0.25)}


TYPES = ("ml.g6.xlarge", "ml.g6.2xlarge", "ml.g6.4xlarge", "ml.g6e.xlarge", "ml.g6e.2xlarge")


@pytest.mark.parametrize(
    ("types", "written", "seconds"),
    [(TYPES[:1], None, None), (TYPES[:2], None, 1800), (TYPES, None, 3600), (TYPES[:2], 300, 300)],
)
def test_the_time_to_find_capacity_is_the_total_over_all_instance_types(
    tmp_path: Path, types: tuple[str, ...], written: int | None, seconds: int | None
) -> None:
    """Developer guide, "Deploy to multiple instance types with instance pools": "across all pools"."""
    found = recipe_with(load(write_hub_pair(tmp_path)), instance_types=types, capacity_timeout=written)
    assert config_of(found).get("VariantInstanceProvisionTimeoutInSeconds") == seconds


def test_a_component_has_the_time_outs_that_a_variant_has_without_components(tmp_path: Path) -> None:
    timeouts = {"ModelDataDownloadTimeoutInSeconds": 1200, "ContainerStartupHealthCheckTimeoutInSeconds": 600}
    plain = recipe_with(load(write_hub_pair(tmp_path)), download_timeout=1200, health_check_timeout=600)
    shared = recipe_with(plain, inference_component=ComponentSection())
    (component,) = [item.request for item in desired([shared], ACCOUNT) if item.kind == "InferenceComponent"]
    assert component["Specification"]["StartupParameters"] == timeouts
    assert timeouts.items() <= config_of(plain).items()
    assert not timeouts.keys() & config_of(shared).keys()


def component_of(recipe: Recipe) -> Resource:
    (found,) = [item for item in desired([recipe], ACCOUNT) if item.kind == "InferenceComponent"]
    return found


def test_a_component_runs_a_model_of_its_own_on_each_instance_type(tmp_path: Path) -> None:
    small, large = TYPES[:2]
    fewer = {large: InstanceType(type=large, num_speculative_tokens=3, args={"tensor-parallel-size": 2})}
    shared = recipe_with(
        load(write_hub_pair(tmp_path)),
        instance_types=(small, large),
        overrides=fewer,
        inference_component=ComponentSection(),
    )
    found = component_of(shared)
    assert "Specification" not in found.request
    first, second = found.request["Specifications"]
    assert (first["InstanceType"], second["InstanceType"]) == (small, large)
    models = {item.name for item in desired([shared], ACCOUNT) if item.kind == "Model"}
    assert {first["ModelName"], second["ModelName"]} == models
    assert len(models) == 2
    needed = [item["ComputeResourceRequirements"]["NumberOfAcceleratorDevicesRequired"] for item in (first, second)]
    assert needed == [1, 2]
    assert found.update["Specifications"] == [first, second]


def test_a_component_is_updated_in_steps_that_alarms_roll_back(tmp_path: Path) -> None:
    rolling = AwsRollout(update="rolling", step_percent=25, wait_seconds=60, alarms=["mine"])
    shared = recipe_with(load(write_hub_pair(tmp_path)), inference_component=ComponentSection(), rollout=rolling)
    found = component_of(shared)
    assert "DeploymentConfig" not in found.request
    config = found.update["DeploymentConfig"]
    assert config["RollingUpdatePolicy"]["MaximumBatchSize"] == {"Type": "CAPACITY_PERCENT", "Value": 25}
    assert config["RollingUpdatePolicy"]["WaitIntervalInSeconds"] == 60
    assert config["AutoRollbackConfiguration"] == {
        "Alarms": [{"AlarmName": "toolkit-hub-errors"}, {"AlarmName": "mine"}]
    }
    at_once = recipe_with(shared, rollout=AwsRollout())
    assert "DeploymentConfig" not in component_of(at_once).update


@pytest.mark.parametrize(
    ("role", "named"),
    [(None, "a role that is made for it"), ("arn:aws:iam::1:role/studio", "arn:aws:iam::1:role/studio (mine)")],
)
def test_a_plan_says_where_it_deploys_and_as_whom(role: str | None, named: str) -> None:
    here, there = replace(ACCOUNT, role=role, role_source="mine"), load("gpt-oss-20b/p-eagle")
    (told,) = [note for note in RULES.notes(there, here) if note.startswith("Account ")]
    assert told.startswith(f"Account {here.id}, {here.region}: runs as {named}, weights in s3://toolkit-")


def test_a_second_data_source_of_a_component_is_unverified(tmp_path: Path) -> None:
    staged = recipe_with(load(write_hub_pair(tmp_path)), inference_component=ComponentSection())
    told = [note for note in RULES.notes(staged, ACCOUNT) if note.startswith("Unverified: AWS documents no second")]
    assert len(told) == 1
    fetched = recipe_with(staged, weights="hub")
    assert not [note for note in RULES.notes(fetched, ACCOUNT) if "no second model data source" in note]


def test_the_baseline_of_an_experiment_is_told_the_same_but_for_the_drafter() -> None:
    half = replace(load("llama-3.1-8b-instruct/dflash-trn2"), rollout=AwsRollout(speculative_percent=50))
    speculative, baseline = (arm.flags for arm in arms(half))
    assert {**baseline, "speculative-config": speculative["speculative-config"]} == speculative


def test_a_copy_of_a_component_has_chips_for_every_kind_of_parallelism() -> None:
    recipe = load("llama-3.1-8b-instruct/eagle3-trn2")
    engine = recipe.engine.edit(args={"tensor-parallel-size": 8, "data-parallel-size": 2})
    made = desired([recipe_with(recipe, engine=engine, inference_component=ComponentSection())], ACCOUNT)
    (component,) = (item for item in made if item.kind == "InferenceComponent")
    needs = component.request["Specification"]["ComputeResourceRequirements"]
    assert needs["NumberOfAcceleratorDevicesRequired"] == 4  # of 4 logical cores each


def test_us_east_1_takes_no_location_constraint(recipe: Recipe) -> None:
    assert bucket(recipe, "us-east-1").request == {"Bucket": "toolkit-123456789012-us-east-1"}
    assert bucket(recipe, "eu-west-1").request["CreateBucketConfiguration"] == {"LocationConstraint": "eu-west-1"}


def test_the_role_may_read_its_own_weights_and_write_its_own_log_only(recipe: Recipe) -> None:
    made = {item.kind: item for item in desired([recipe.baseline()], ACCOUNT)}
    policy = json.loads(made["RolePolicy"].request["PolicyDocument"])
    prefix = made["Weights"].request["Prefix"]
    assert policy["Statement"][0]["Resource"] == [f"arn:aws:s3:::toolkit-123456789012-us-west-2/{prefix}*"]
    assert policy["Statement"][1]["Condition"] == {"StringLike": {"s3:prefix": [f"{prefix}*"]}}
    assert policy["Statement"][2]["Resource"][0].endswith(":log-group:/aws/sagemaker/Endpoints/tiny-baseline")
    trust = json.loads(made["Role"].request["AssumeRolePolicyDocument"])
    assert trust["Statement"][0]["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:123456789012:*"},
    }


def test_the_tags_of_the_user_never_replace_ours(recipe: Recipe) -> None:
    tagged = replace(recipe, tags={"team": "x", "toolkit:endpoint": "another"})
    made = {item.kind: item for item in desired([tagged], ACCOUNT)}
    tags = {tag["Key"]: tag["Value"] for tag in made["Endpoint"].request["Tags"]}
    assert (tags["team"], tags["toolkit:endpoint"]) == ("x", "tiny")
    assert tags.keys() == {"team", "toolkit:endpoint", "toolkit:recipe", "toolkit:version"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ModelSource(model="org/target"), ModelSource(model="fork/target")),
        (
            ModelSource(model="org/target", revision="release-2026-01"),
            ModelSource(model="org/target", revision="release-2026-02"),
        ),
        (ModelSource(model="org/target", revision="a/b"), ModelSource(model="org/target", revision="a-b")),
    ],
)
def test_weights_of_different_models_never_share_a_place(recipe: Recipe, one: ModelSource, other: ModelSource) -> None:
    first, second = (names(replace(recipe, target=source, speculation=None)) for source in (one, other))
    assert first["Weights"] != second["Weights"]


@pytest.mark.parametrize(("weights_gb", "volume_gb"), [(100, 150), (400, 510), (500, 512)])
def test_the_volume_has_room_for_the_weights_up_to_sagemakers_512_gb(weights_gb: int, volume_gb: int) -> None:
    recipe = load("llama-3.1-8b-instruct/eagle3-trn2").baseline()
    large = recipe_with(recipe, instance_types=("ml.inf2.48xlarge",), weight_bytes=weights_gb * 10**9)
    made = {item.kind: item for item in desired([large], ACCOUNT)}
    (variant,) = made["EndpointConfig"].request["ProductionVariants"]
    assert variant["VolumeSizeInGB"] == volume_gb


@pytest.mark.parametrize(
    ("tag", "before"),
    [
        (None, None),
        ("a", "a"),  # the update from `a` to `b` came
        ("a b", "a"),  # an update from `b` was asked for and refused
        ("b", "b"),  # the first update of all was rolled back
        ("b a", "a"),
    ],
)
def test_what_an_endpoint_that_runs_b_ran_before(tag: str | None, before: str | None) -> None:
    assert ran_before(tag, "b") == before


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        (content_name("tiny", {}), True),
        ("tiny-0a1b2c3d", True),
        ("tiny-0a1b2c3d-old", False),
        ("tiny-0a1b2c3d4", False),
        ("tiny-baseline-0a1b2c3d", False),
    ],
)
def test_a_name_with_a_digest_is_told_from_one_that_begins_alike(name: str, is_ours: bool) -> None:
    assert is_content_name("tiny", name) is is_ours


@pytest.mark.parametrize(
    ("instance_type", "has_volume"), [("ml.g6.xlarge", False), ("ml.inf2.xlarge", True), ("ml.of-tomorrow", False)]
)
def test_sagemaker_takes_a_key_for_its_own_volume_only(instance_type: str, has_volume: bool) -> None:
    """It refuses a volume's size and key for a type with a disk of its own; a type that nobody knows may have one."""
    recipe = load("llama-3.1-8b-instruct/eagle3-trn2").baseline()
    keyed = recipe_with(recipe, instance_types=(instance_type,), kms_key="alias/ours", weight_bytes=10**9)
    made = {item.kind: item for item in desired([keyed], ACCOUNT)}
    assert ("KmsKeyId" in made["EndpointConfig"].request) is has_volume
    assert ("VolumeSizeInGB" in config_of(keyed)) is has_volume


def test_the_vpc_of_a_component_is_its_endpoints(tmp_path: Path) -> None:
    """An endpoint has one network: that of its Model, or for components that of its configuration."""
    private = AwsNetwork(subnets=["subnet-1"], security_groups=["sg-1"], isolation=True)
    keys = {"VpcConfig", "EnableNetworkIsolation"}
    plain = replace(load(write_hub_pair(tmp_path)), network=private)
    has = {item.kind: keys & item.request.keys() for item in desired([plain], ACCOUNT)}
    assert (has["Model"], has["EndpointConfig"]) == (keys, set())
    shared = recipe_with(plain, inference_component=ComponentSection())
    has = {item.kind: keys & item.request.keys() for item in desired([shared], ACCOUNT)}
    assert (has["Model"], has["EndpointConfig"]) == (set(), keys)
