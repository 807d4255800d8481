"""A recipe's resources as a CloudFormation template. cfn-lint, which knows AWS's schemas, gives the second opinion."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_kinds import OPERATIONS, TEMPLATES, desired, kind_of
from botocore.model import ListShape, Shape, StringShape, StructureShape
from cfnlint.config import ConfigMixIn
from cfnlint.decode.decode import decode_str
from cfnlint.runner import Runner
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER
from fakes import ACCOUNT
from jumpstart_entries import gated, gpt_oss
from pairs import recipe_with, write_hub_pair, write_pair, write_recipe

from toolkit.loading import load
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.keys import AwsNetwork, AwsObservability, AwsRollout, ComponentSection
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.cloudformation import NOT_IN_CLOUDFORMATION, STAGE_FIRST, losses
from toolkit.platforms.sagemaker.rules.jumpstart import ids
from toolkit.recipe.known import catalogue
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection

KEY = "arn:aws:kms:us-west-2:123456789012:key/12345678-1234-1234-1234-123456789012"
PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours"
SCALED = ScalingSection(min_instances=1, max_instances=4)
FROM_ZERO = ScalingSection(min_instances=0, max_instances=2)
VPC: Mapping[str, Any] = {"subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}
UNWATCHED = AwsObservability(alarms=False, dashboard=False)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


def of(recipe: Recipe, **changes: Any) -> dict[str, Any]:
    """The template of the recipe with those changes, unwatched unless they say otherwise."""
    return template([recipe_with(recipe, **{"observability": UNWATCHED, **changes})])


def template(recipes: Sequence[Recipe], account: Account = ACCOUNT) -> dict[str, Any]:
    """The template as `toolkit plan --format cloudformation` makes it."""
    return TEMPLATES.template(desired([TEMPLATES.arrange(recipe, account) for recipe in recipes], account))


def complaints(made: Mapping[str, Any], region: str = "us-west-2") -> list[str]:
    """Errors and warnings of cfn-lint."""
    read, _ = decode_str(json.dumps(made))
    assert read is not None
    return [f"{match.rule.id}: {match.message}" for match in cfn_lint(region).validate_template(read)]


@cache
def cfn_lint(region: str) -> Runner:
    """One for all templates: to load its rules takes twice as long as to check a template."""
    return Runner(ConfigMixIn(regions=[region]))


def resource(made: Mapping[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [item for item in made["Resources"].values() if item["Type"] == kind_of(kind).resource_type]
    return found


def id_of(made: Mapping[str, Any], kind: str) -> str:
    (found,) = [key for key, item in made["Resources"].items() if item["Type"] == kind_of(kind).resource_type]
    return found


def test_the_whole_template_of_a_pair(recipe: Recipe, golden: Callable[[str, object], None]) -> None:
    golden("cloudformation-p-eagle", of(recipe))


def test_the_whole_template_of_a_component_that_scales_from_zero(
    recipe: Recipe, golden: Callable[[str, object], None]
) -> None:
    watched = AwsObservability(dashboard=False)
    golden(
        "cloudformation-component",
        of(recipe, inference_component=ComponentSection(), scaling=FROM_ZERO, observability=watched),
    )


MOST_BYTES_IN_A_REQUEST = 51_200  # CreateStack's TemplateBody, as docs/howto/cloudformation.md says
SHIPPED = [name for name in catalogue() if load(name).platform.name == "sagemaker"]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recipe_has_a_template_that_works(name: str) -> None:
    shipped = load(name)
    complete = pinned(shipped, read_lock(lock_path(shipped)))
    account = replace(ACCOUNT, jumpstart={name: {**gpt_oss(), "HubContentName": name} for name in ids(shipped)})
    arranged = TEMPLATES.arrange(complete, account)
    made = template([arranged, arranged.baseline()], account)
    assert complaints(made) == []
    assert TEMPLATES.failures(made) == []
    assert len(json.dumps(template([arranged], account), indent=2)) <= MOST_BYTES_IN_A_REQUEST


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "pools": {"instance_types": ("ml.g6e.2xlarge", "ml.g6e.4xlarge")},
    "weights of the hub": {"weights": "hub"},
    "routing": {"routing": "kv-aware"},
    "routing by prefix": {"routing": "prefix-aware"},
    "reservation": {"capacity_reservation": PLAN},
    "key": {"kms_key": KEY},
    "scaling": {"scaling": SCALED},
    "component": {"inference_component": ComponentSection()},
    "component of several types": {
        "inference_component": ComponentSection(),
        "instance_types": ("ml.g6e.2xlarge", "ml.g6e.4xlarge"),
        "rollout": AwsRollout(update="rolling", alarms=["mine"]),
    },
    "component to zero": {"inference_component": ComponentSection(), "scaling": FROM_ZERO},
    "network": {"network": AwsNetwork(**VPC)},
    "isolation": {"network": AwsNetwork(isolation=True)},
    "private registry": {"network": AwsNetwork(**VPC, private_registry=True)},
    "shadow": {"rollout": AwsRollout(shadow=True)},
    "weighted": {"rollout": AwsRollout(speculative_percent=25)},
    "canary": {"rollout": AwsRollout(update="canary", alarms=["mine"])},
    "linear": {"rollout": AwsRollout(update="linear")},
    "rolling": {"rollout": AwsRollout(update="rolling")},
    "capture": {"observability": AwsObservability(data_capture_percent=10)},
    "watched": {"observability": AwsObservability(notify="arn:aws:sns:us-west-2:123456789012:ours")},
}
changed = pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)


@changed
def test_cfn_lint_finds_nothing_whatever_the_recipe_says(recipe: Recipe, changes: Mapping[str, Any]) -> None:
    assert complaints(of(recipe, **changes)) == []


SAME_NAMES: tuple[str, ...] = ("Model", "EndpointConfig", "Endpoint", "InferenceComponent", "Alarm", "Dashboard")


@changed
def test_no_part_of_a_request_is_lost_in_silence(recipe: Recipe, changes: Mapping[str, Any]) -> None:
    resources = desired([TEMPLATES.arrange(recipe_with(recipe, **changes), ACCOUNT)], ACCOUNT)
    made = TEMPLATES.template(resources)
    asked = [leaf for item in resources if item.kind in SAME_NAMES for leaf in leaves(item.request)]
    types = [kind_of(kind).resource_type for kind in SAME_NAMES]
    properties = [item["Properties"] for item in made["Resources"].values() if item["Type"] in types]
    told = made["Metadata"][NOT_IN_CLOUDFORMATION].values()
    answered = [leaf for part in (*properties, *told) for leaf in leaves(resolved(part, made))]
    assert Counter(asked) - Counter(answered) == Counter()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value of everything that is neither object nor list."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, path)
    else:
        yield path, repr(value)


def resolved(value: Any, made: Mapping[str, Any]) -> Any:
    """The properties with what their references come to."""
    if isinstance(value, list):
        return [resolved(item, made) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "Fn::GetAtt" not in value and "Ref" not in value:
        return {key: resolved(item, made) for key, item in value.items()}
    logical_id, attribute = value.get("Fn::GetAtt") or (value["Ref"], "AlarmName")
    properties = made["Resources"][logical_id]["Properties"]
    if attribute == "Arn":
        return f"arn:aws:iam::{ACCOUNT.id}:role/{properties['RoleName']}"
    return properties.get(attribute)  # none of the policy that an alarm starts


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "us-gov-west-1", "cn-north-1"])
def test_cfn_lint_finds_nothing_in_other_regions(recipe: Recipe, region: str) -> None:
    assert complaints(template([recipe], Account(ACCOUNT.id, region)), region) == []


def test_cfn_lint_would_find_a_wrong_property(recipe: Recipe) -> None:
    made = of(recipe)
    resource(made, "Endpoint")["Properties"]["Wrong"] = 1
    assert [complaint.split(":")[0] for complaint in complaints(made)] == ["E3002"]


def test_every_kind_is_a_resource_or_is_told_otherwise() -> None:
    told = {"Weights", "WeightsReference", "RolePolicy", "Repository", "Image", "Artifacts"}
    elsewhere = {"TrainingJob", "ModelPackageGroup", "ModelPackage"}  # what compiles, and what is registered
    types = {kind.kind for kind in RULES.kinds if kind.resource_type}
    assert told | types | elsewhere == {kind.kind for kind in RULES.kinds}


# ---- what CloudFormation lacks ----


# Containers in a row, and the type of a component for a single type: neither is ever requested.
NEVER_REQUESTED = ("Containers.", "Specification.InstanceType")


@pytest.mark.parametrize("kind", OPERATIONS)
def test_what_cloudformation_lacks_is_known(kind: str) -> None:
    service, operation = OPERATIONS[kind]
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-west-2", kind_of(kind).resource_type).schema
    found = {field for field in difference(shape, schema, schema) if not field.startswith(NEVER_REQUESTED)}
    assert found == kind_of(kind).lacking


def difference(shape: Shape, node: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Paths of a request's fields, and `path=value` of its enumerated values, that a resource schema lacks."""
    while "$ref" in node:
        node = schema["definitions"][node["$ref"].rpartition("/")[2]]
    if isinstance(shape, ListShape):
        yield from difference(shape.member, node.get("items", {}), schema, path)
    elif isinstance(shape, StringShape) and "enum" in node:
        yield from (f"{path}={value}" for value in shape.enum if value not in node["enum"])
    elif isinstance(shape, StructureShape) and "properties" in node:
        for name, member in shape.members.items():
            at, property_name = f"{path}.{name}".lstrip("."), name[0].upper() + name[1:]
            if property_name in node["properties"]:
                yield from difference(member, node["properties"][property_name], schema, at)
            else:
                yield at


def test_what_is_lost_stands_in_the_metadata_and_is_told(recipe: Recipe) -> None:
    made = of(recipe, routing="kv-aware")
    lost = made["Metadata"][NOT_IN_CLOUDFORMATION]
    assert list(lost[id_of(made, "Model")]) == ["PrimaryContainer.ContainerMetricsConfig"]
    assert lost[id_of(made, "EndpointConfig")] == {"ProductionVariants.RoutingConfig.RoutingStrategy": "KV_AWARE"}
    assert "RoutingConfig" not in resource(made, "EndpointConfig")["Properties"]["ProductionVariants"][0]
    told = losses(made, RULES.kinds)
    assert len(told) == 2


# ---- several models in the one data source of AWS::SageMaker::Model ----


def container(made: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resource(made, "Model")["Properties"]["PrimaryContainer"]
    return found


def folders(made: Mapping[str, Any]) -> dict[str, str]:
    """Of the weights that are staged first: the command, by the S3 address that it copies to."""
    steps = [text for what, text in commands(made).items() if what.startswith("weights")]
    return {text.rpartition(" s3://")[2].split()[0]: text for text in steps}


def test_target_and_drafter_lie_in_folders_of_one_prefix(recipe: Recipe) -> None:
    made = of(recipe)
    prefix = container(made)["ModelDataSource"]["S3DataSource"]["S3Uri"].removeprefix("s3://")
    assert list(folders(made)) == [f"{prefix}target/", f"{prefix}drafter/"]
    environment = container(made)["Environment"]
    assert environment["SM_VLLM_MODEL"] == "/opt/ml/model/target"
    assert json.loads(environment["SM_VLLM_SPECULATIVE_CONFIG"])["model"] == "/opt/ml/model/drafter"
    assert TEMPLATES.failures(made) == []


def test_the_role_may_read_that_prefix(recipe: Recipe) -> None:
    made = of(recipe)
    bucket, _, prefix = container(made)["ModelDataSource"]["S3DataSource"]["S3Uri"][5:].partition("/")
    (policy,) = resource(made, "Role")["Properties"]["Policies"]
    assert policy["PolicyDocument"]["Statement"][0]["Resource"] == [f"arn:aws:s3:::{bucket}/{prefix}*"]


def test_a_baseline_shares_what_its_twin_stages(recipe: Recipe) -> None:
    arranged = TEMPLATES.arrange(recipe, ACCOUNT)
    made = TEMPLATES.template(desired([arranged, arranged.baseline()], ACCOUNT))
    assert len(folders(made)) == 2
    models = [item for item in made["Resources"].values() if item["Type"] == "AWS::SageMaker::Model"]
    sources = [item["Properties"]["PrimaryContainer"]["ModelDataSource"] for item in models]
    assert len(sources) == 2
    assert sources[0] == sources[1]


def test_one_model_stays_where_a_deployment_has_it(recipe: Recipe) -> None:
    """So that a stack uses what `toolkit deploy` has staged."""
    made = of(recipe.baseline())
    assert container(made)["ModelDataSource"]["S3DataSource"]["S3Uri"].endswith("/weights/target-main-6b7be4d0/")
    assert "SM_VLLM_MODEL" not in container(made)["Environment"]


def test_models_that_the_container_fetches_itself_are_not_staged(recipe: Recipe) -> None:
    assert folders(of(recipe, weights="hub")) == {}


def test_a_drafter_in_a_bucket_is_copied(recipe: Recipe) -> None:
    assert recipe.speculation
    of_a_bucket = recipe.speculation.edit(model="s3://mine/drafter/")
    made = of(recipe_with(recipe, weights="hub", speculation=of_a_bucket))
    (command,) = folders(made).values()
    assert command.startswith("aws s3 sync s3://mine/drafter/ s3://toolkit-123456789012-us-west-2/weights/target-set-")
    assert container(made)["Environment"]["SM_VLLM_MODEL"] == "org/target"


def test_flags_that_are_too_long_for_the_environment_are_a_file_beside_the_models(recipe: Recipe) -> None:
    made = of(recipe_with(recipe, engine=recipe.engine.edit(args={"chat-template": "x" * 2000})))
    assert container(made)["Environment"]["SM_VLLM_CONFIG"] == "/opt/ml/model/config/engine.yaml"
    assert [address.split("/")[3] for address in folders(made)] == ["target", "drafter", "config"]


AHEAD = """\
name: ahead
target: {model: org/target}
engine: {name: neuron, max_model_len: 1024}
platform: {name: sagemaker, role: create, instance_types: [ml.trn2.48xlarge]}
speculation: {method: none}
"""


def test_compiled_code_is_copied_beside_the_model(tmp_path: Path) -> None:
    made = of(load(write_recipe(tmp_path, AHEAD)))
    key = container(made)["Environment"]["TOOLKIT_ARTIFACTS_KEY"]
    assert container(made)["Environment"]["TOOLKIT_ARTIFACTS"] == "/opt/ml/model/compiled"
    (command,) = [text for address, text in folders(made).items() if address.endswith("/compiled/")]
    ours = "s3://toolkit-123456789012-us-west-2"
    assert command.startswith(f"toolkit compile RECIPE && aws s3 sync {ours}/neuron/{key}/ {ours}/weights/")


def test_what_cannot_be_copied_needs_a_deployment(recipe: Recipe) -> None:
    """JumpStart's models behind a licence lie in a bucket that only SageMaker reads."""
    assert recipe.speculation
    account = replace(ACCOUNT, jumpstart={"gated": gated()})
    theirs = recipe.speculation.edit(method="draft-model", model="jumpstart:gated")
    changed = recipe_with(recipe, speculation=theirs, target=recipe.target.edit(accept_eula=True))
    (failure,) = TEMPLATES.failures(template([changed], account))
    assert "the container does not find its drafter and stops. Use `toolkit deploy`" in failure


# ---- order ----


def test_the_model_of_a_made_role_waits_for_it(recipe: Recipe) -> None:
    made = of(recipe)
    assert resource(made, "Model")["Properties"]["ExecutionRoleArn"] == {"Fn::GetAtt": [id_of(made, "Role"), "Arn"]}


def test_a_role_that_exists_is_named_by_its_arn(recipe: Recipe) -> None:
    role = "arn:aws:iam::123456789012:role/service/ours"
    made = TEMPLATES.template(desired([recipe], replace(ACCOUNT, role=role)))
    assert resource(made, "Model")["Properties"]["ExecutionRoleArn"] == role


def test_endpoint_configuration_and_model_wait_for_one_another(recipe: Recipe) -> None:
    made = of(recipe)
    variant = resource(made, "EndpointConfig")["Properties"]["ProductionVariants"][0]
    assert variant["ModelName"] == {"Fn::GetAtt": [id_of(made, "Model"), "ModelName"]}
    config = {"Fn::GetAtt": [id_of(made, "EndpointConfig"), "EndpointConfigName"]}
    assert resource(made, "Endpoint")["Properties"]["EndpointConfigName"] == config


def test_a_component_waits_for_its_endpoint_and_model(recipe: Recipe) -> None:
    made = of(recipe, inference_component=ComponentSection())
    properties = resource(made, "InferenceComponent")["Properties"]
    assert properties["EndpointName"] == {"Fn::GetAtt": [id_of(made, "Endpoint"), "EndpointName"]}
    assert properties["Specification"]["ModelName"] == {"Fn::GetAtt": [id_of(made, "Model"), "ModelName"]}


def test_the_endpoint_finds_its_log_group_made(recipe: Recipe) -> None:
    made = of(recipe, observability=AwsObservability())
    group = id_of(made, "LogGroup")
    assert resource(made, "Endpoint")["DependsOn"] == [group]
    filters = [item for item in made["Resources"].values() if item["Type"] == kind_of("MetricFilter").resource_type]
    assert [item["Properties"]["LogGroupName"] for item in filters] == [{"Ref": group}] * 2


@pytest.mark.parametrize(("component", "what"), [(None, "Endpoint"), (ComponentSection(), "InferenceComponent")])
def test_scaling_waits_for_what_it_scales(recipe: Recipe, component: ComponentSection | None, what: str) -> None:
    made = of(recipe, inference_component=component, scaling=SCALED)
    assert resource(made, "ScalableTarget")["DependsOn"] == [id_of(made, what)]
    assert resource(made, "ScalingPolicy")["DependsOn"] == [id_of(made, "ScalableTarget")]


def test_the_alarm_that_wakes_a_component_starts_its_policy(recipe: Recipe) -> None:
    made = of(recipe, inference_component=ComponentSection(), scaling=FROM_ZERO)
    (from_zero,) = [key for key, item in made["Resources"].items() if "StepScaling" in str(item)]
    assert "Alarm" not in made["Resources"][from_zero]["Properties"]
    assert made["Resources"][f"{from_zero}Alarm"]["Properties"]["AlarmActions"] == [{"Ref": from_zero}]


def test_alarms_that_roll_an_update_back_are_made_before(recipe: Recipe) -> None:
    made = of(recipe, rollout=AwsRollout(alarms=["mine"]), observability=AwsObservability(dashboard=False))
    alarms = resource(made, "Endpoint")["Properties"]["DeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"]
    assert alarms == [{"AlarmName": {"Ref": "AlarmToolkitHubErrors"}}, {"AlarmName": "mine"}]


def test_logical_ids_are_stable_and_alphanumeric(recipe: Recipe) -> None:
    first, again = of(recipe), of(recipe)
    assert list(first["Resources"]) == list(again["Resources"])
    assert all(name.isalnum() for name in first["Resources"])


def test_names_that_differ_in_a_hyphen_get_ids_of_their_own() -> None:
    logs = [Resource("LogGroup", name, {"logGroupName": name}) for name in ("a-b", "a/b", "a_b")]
    assert list(TEMPLATES.template(logs)["Resources"]) == ["LogGroupAB", "LogGroupABx2", "LogGroupABx3"]


# ---- what is no resource ----


def commands(made: Mapping[str, Any]) -> dict[str, str]:
    return {step["what"]: step["command"] for step in made["Metadata"][STAGE_FIRST]}


def staged(resources: Sequence[Resource]) -> str:
    """The command that stages the first weights."""
    (command, *_) = [
        text for what, text in commands(TEMPLATES.template(resources)).items() if what.startswith("weights")
    ]
    return command


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_only_the_files_that_a_deployment_stages_are_fetched(recipe: Recipe) -> None:
    files = {"org/target": ("config.json", "model.safetensors", "tokenizer.json")}
    pinned = replace(recipe, target=recipe.target.edit(revision=COMMIT), staged_files=files)
    fetch, _ = staged(desired([pinned], ACCOUNT)).split(" && ")
    words = shlex.split(fetch)
    assert words[:4] == ["hf", "download", "--revision", COMMIT]
    assert words[6:] == ["--", "org/target", "config.json", "model.safetensors", "tokenizer.json"]


def test_without_the_names_of_the_files_folders_are_left_out(recipe: Recipe) -> None:
    fetch, sync = staged(desired([recipe], ACCOUNT)).split(" && ")
    assert fetch.startswith("hf download org/target --revision main --local-dir target-main-6b7be4d0")
    assert fetch.endswith("--exclude '*/*'")  # gpt-oss-120b is 65 GB, and 196 GB with its folders
    steps = [what for what in commands(of(recipe.baseline())) if what.startswith("weights")]
    assert "run `toolkit lock` first" in steps[0]
    assert sync.startswith(
        "aws s3 sync target-main-6b7be4d0 s3://toolkit-123456789012-us-west-2/weights/target-main-6b7be4d0/"
    )


def test_weights_in_a_folder_are_copied_without_hidden_files(tmp_path: Path) -> None:
    folder = tmp_path / "a pair"
    words = shlex.split(staged(desired([load(write_pair(folder))], ACCOUNT)))
    assert words[:4] == ["aws", "s3", "sync", str(folder / "target")]
    assert words[5:] == ["--exclude", ".*", "--exclude", "*/.*", "--checksum-algorithm", "SHA256"]


def test_settings_too_long_for_the_environment_are_written_from_the_template() -> None:
    request = {"Bucket": "b", "Prefix": "weights/config-1/", "Content": {"engine.yaml": "{'a': 1}"}, "Files": []}
    command = staged([Resource("Weights", "config-1", request)])
    copy = "aws s3 cp - s3://b/weights/config-1/engine.yaml --checksum-algorithm SHA256"
    assert command == f"""printf %s '{{'"'"'a'"'"': 1}}' | {copy}"""


def test_staged_weights_are_encrypted_with_the_key_of_the_recipe(recipe: Recipe) -> None:
    command = staged(desired([recipe_with(recipe, kms_key=KEY)], ACCOUNT))
    assert f"--sse aws:kms --sse-kms-key-id {KEY}" in command


def test_an_endpoint_marks_the_weights_that_it_uses(recipe: Recipe) -> None:
    """By the mark `toolkit destroy` knows that they are in use, and what to remove with the endpoint."""
    made = of(recipe)
    prefix = container(made)["ModelDataSource"]["S3DataSource"]["S3Uri"]
    (mark,) = [text for what, text in commands(made).items() if what.startswith("mark of use target")]
    weights = prefix.removeprefix("s3://toolkit-123456789012-us-west-2/weights/")
    assert mark == f"aws s3api put-object --bucket toolkit-123456789012-us-west-2 --key uses/{weights}hub"


def test_the_bucket_is_made_only_when_asked_for_and_outlives_the_stack(recipe: Recipe) -> None:
    made = of(recipe)
    bucket = resource(made, "Bucket")
    assert (bucket["Condition"], bucket["DeletionPolicy"]) == ("MakesBucket", "Retain")
    assert made["Parameters"]["MakeBucket"]["Default"] == "no"
    (command,) = [text for what, text in commands(made).items() if what.startswith("bucket")]
    assert command == "aws s3 mb s3://toolkit-123456789012-us-west-2 --region us-west-2"


def test_the_name_of_the_endpoint_is_an_output(recipe: Recipe) -> None:
    made = of(recipe)
    assert made["Outputs"]["EndpointHubName"]["Value"] == {"Fn::GetAtt": [id_of(made, "Endpoint"), "EndpointName"]}
