"""A JumpStart model: from its entry in the hub to the container that a recipe makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.session import get_session
from botocore.validate import validate_parameters
from jumpstart_entries import GPT_OSS, HEAD, LLAMA, LMI, REGISTRY, VLLM, WEIGHTS, gated, gpt_oss
from pairs import write_recipe

from toolkit.errors import UnreadableModel, UsageError
from toolkit.loading import load
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.kinds.model import models
from toolkit.platforms.sagemaker.rules.jumpstart import with_jumpstart_defaults
from toolkit.platforms.sagemaker.rules.jumpstart_entry import DataSource, Preset, doubts, parse
from toolkit.recipe.recipe import Recipe

RECIPE = f"""\
name: gpt-oss
target: {{model: "jumpstart:{GPT_OSS}"}}
speculation:
  method: p-eagle
  model: jumpstart:{GPT_OSS}
engine: {{version: 0.18.0, max_num_seqs: 64, max_num_batched_tokens: 16384}}
platform: {{name: sagemaker}}
"""
OWN_HEAD = {"S3DataSource": {"S3Uri": "s3://mine/head/", "S3DataType": "S3Prefix", "CompressionType": "None"}}


def recipe(folder: Path, text: str = RECIPE) -> Recipe:
    return load(write_recipe(folder, text))


def filled(recipe: Recipe, content: dict[str, Any]) -> Recipe:
    return with_jumpstart_defaults(recipe, {content["HubContentName"]: content})


def container(recipe: Recipe, content: dict[str, Any]) -> dict[str, Any]:
    """`PrimaryContainer` of the Model that the recipe makes."""
    account = Account("111122223333", "us-west-2", jumpstart={content["HubContentName"]: content})
    (model,) = models(filled(recipe, content), account)
    found: dict[str, Any] = model.request["PrimaryContainer"]
    return found


def component(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["HubContentDocument"]["InferenceConfigComponents"]["lmi-optimized"]
    return found


# What an entry says.


def test_what_jumpstart_serves_on_its_own_choice_of_instance() -> None:
    model = parse(gpt_oss())

    assert (model.id, model.version, model.config) == (GPT_OSS, "3.38.0", "lmi-optimized")
    assert (model.instance_type, model.instance_types[0]) == ("ml.g7e.2xlarge", "ml.g7e.2xlarge")
    assert (model.image, model.engine_version) == (VLLM, "0.18.0")
    assert model.target == DataSource("", WEIGHTS, "S3Prefix", "None", gated=False, licence="")
    assert model.drafter == DataSource("eagle", HEAD, "S3Prefix", "None", gated=False, licence="")
    assert (model.health_check_timeout, model.download_timeout) == (3600, 3600)
    assert model.network_isolation
    assert model.environment["SAGEMAKER_MODEL_SERVER_WORKERS"] == "1"
    assert model.limits == {"max_model_len": 8192}
    assert replace(model, environment={"SM_VLLM_MAX_MODEL_LEN": "9" * 5000}).limits == {}


def test_how_it_drafts_is_read_from_what_the_container_is_told() -> None:
    model = parse(gpt_oss())
    assert model.preset == Preset("p-eagle", 3, "SM_VLLM_SPECULATIVE_CONFIG", read=True)
    assert str(model) == (
        f"JumpStart {GPT_OSS} 3.38.0 lmi-optimized on ml.g7e.2xlarge: "
        "vllm:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker, p-eagle K=3"
    )
    assert tuple(doubts(model)) == ()


def test_the_g5_image_of_the_preset_is_one_that_drafts_nothing() -> None:
    """True of AWS's own data: the preset is the same on every type, its image on g5 is LMI."""
    model = parse(gpt_oss(), "ml.g5.12xlarge")
    assert model.image == LMI
    assert model.preset
    assert not model.preset.read
    assert next(doubts(model)) == "JumpStart's preset drafts nothing on ml.g5.12xlarge: djl-inference does not read it."


def test_a_variable_of_another_image_is_told() -> None:
    model = parse(gpt_oss(), "ml.p5.48xlarge")
    assert model.environment["TENSOR_PARALLEL_DEGREE"] == "8"
    assert tuple(doubts(model)) == ("JumpStart sets TENSOR_PARALLEL_DEGREE, which its image vllm does not read.",)


def test_a_type_that_is_not_listed_takes_the_image_of_its_family() -> None:
    model = parse(gpt_oss(), "ml.g7e.4xlarge")
    assert model.image == VLLM
    assert next(doubts(model)).startswith(f"JumpStart does not list ml.g7e.4xlarge for {GPT_OSS}, but ml.g7e.2xlarge")


def test_a_configuration_may_be_named() -> None:
    model = parse(gpt_oss(), config="lmi")
    assert (model.image, model.drafter, model.preset, model.engine_version) == (LMI, None, None, "")


def test_a_drafting_configuration_goes_before_one_that_aws_ranks_higher() -> None:
    content = gpt_oss()
    content["HubContentDocument"]["InferenceConfigRankings"]["overall"]["Rankings"] = ["lmi", "lmi-optimized"]
    assert parse(content).config == "lmi-optimized"


def test_a_configuration_for_the_type_goes_before_a_drafting_one_for_others() -> None:
    content = gpt_oss()
    component(content)["SupportedInferenceInstanceTypes"] = ["ml.g7e.2xlarge"]
    assert parse(content, "ml.p5.48xlarge").config == "lmi"


def test_a_model_without_configurations_is_its_own() -> None:
    model = parse(gated())
    assert (model.config, model.image, model.preset) == ("", VLLM, None)


@pytest.mark.parametrize(
    ("variables", "preset"),
    [
        (
            {"OPTION_SPECULATIVE_CONFIG": '{"method": "eagle3"}'},
            Preset("eagle3", None, "OPTION_SPECULATIVE_CONFIG", True),
        ),
        (
            {"OPTION_SPECULATIVE_DRAFT_MODEL": "/opt/ml/additional-model-data-sources/draft_model"},
            Preset("draft-model", None, "OPTION_SPECULATIVE_DRAFT_MODEL", True),
        ),
        ({"SM_VLLM_SPECULATIVE_CONFIG": '{"method": "mtp"}'}, Preset("mtp", None, "SM_VLLM_SPECULATIVE_CONFIG", False)),
    ],
)
def test_ways_of_older_and_newer_images(variables: dict[str, str], preset: Preset) -> None:
    content = gated()
    document = content["HubContentDocument"]
    document["HostingEcrUri"] = LMI
    other = {"OPTION_MAX_MODEL_LEN": "4096"}
    document["InferenceEnvironmentVariables"] = [{"Name": k, "Default": v} for k, v in (other | variables).items()]
    model = parse(content)
    assert (model.preset, model.variables_besides_drafting) == (preset, other)


def test_an_image_may_be_an_alias() -> None:
    content = gpt_oss()
    listing = component(content)["HostingInstanceTypeVariants"]
    listing["Aliases"] = {"gpu_ecr_uri_2": f"{REGISTRY}/vllm:server-sagemaker-cuda-v2.1"}
    listing["Variants"]["g7e"]["Properties"]["ImageUri"] = "$gpu_ecr_uri_2"
    assert parse(content).engine_version == "0.24.0"


def test_a_variable_without_a_value_is_left_out() -> None:
    content = gpt_oss()
    component(content)["InferenceEnvironmentVariables"].append({"Name": "HF_TOKEN", "Type": "text"})
    assert "HF_TOKEN" not in parse(content).environment


def test_data_lies_in_the_bucket_of_the_region() -> None:
    content = gpt_oss()
    content["HubContentArn"] = content["HubContentArn"].replace("us-west-2", "eu-west-1")
    model = parse(content)
    assert model.target.uri == WEIGHTS.replace("us-west-2", "eu-west-1")
    assert model.drafter
    assert model.drafter.uri == HEAD.replace("us-west-2", "eu-west-1")


@pytest.mark.parametrize(
    ("provider", "bucket"),
    [
        ({"Name": "JumpStart", "Classification": "non-gated"}, "jumpstart-cache-prod-us-west-2"),
        ({"Name": "JumpStart", "Classification": "gated"}, "jumpstart-private-cache-prod-us-west-2"),
        (None, "sagemaker-sd-models-prod-us-west-2"),
    ],
)
def test_a_drafter_may_be_named_by_its_key_alone(provider: dict[str, str] | None, bucket: str) -> None:
    content = gpt_oss()
    (drafter,) = component(content)["HostingAdditionalDataSources"]["speculative_decoding"]
    drafter.update(Provider=provider, S3DataSource={"S3Uri": "lmi-eagle-heads/head/"})
    found = parse(content).drafter
    assert found
    assert found.uri == f"s3://{bucket}/lmi-eagle-heads/head/"


@pytest.mark.parametrize("field", ["HostingArtifactUri", "DefaultInferenceInstanceType", "HostingEcrUri"])
def test_a_needed_field_that_is_missing_is_named(field: str) -> None:
    content = gated()
    del content["HubContentDocument"][field]
    with pytest.raises(UnreadableModel, match=f"{LLAMA} has no `{field}`"):
        parse(content)


@pytest.mark.parametrize(
    "broken",
    [
        {"HostingInstanceTypeVariants": ["g5"]},
        {"InferenceEnvironmentVariables": [{"Name": "SM_VLLM_SPECULATIVE_CONFIG", "Default": "{"}]},
        {"InferenceConfigs": {"tgi": {"ComponentNames": ["tgi"]}}},
        {"HostingAdditionalDataSources": {"speculative_decoding": [{"ChannelName": "draft_model"}]}},
    ],
)
def test_an_entry_of_another_shape(broken: dict[str, Any]) -> None:
    content = gated()
    content["HubContentDocument"].update(broken)
    with pytest.raises(UnreadableModel, match=f"JumpStart's entry of {LLAMA} is of an unknown shape"):
        parse(content)


def test_an_unknown_configuration_tells_those_there_are() -> None:
    with pytest.raises(UsageError, match=f"{GPT_OSS} has no configuration fast") as error:
        parse(gpt_oss(), config="fast")
    assert error.value.hint == "It has lmi, lmi-optimized."


def test_a_marketplace_model_has_no_weights_to_deploy() -> None:
    content = gated()
    content["HubContentDocument"]["HostingModelPackageArn"] = "arn:aws:sagemaker:us-west-2:1:model-package/x"
    with pytest.raises(UsageError, match="model package of the Marketplace"):
        parse(content)


# What a recipe makes of it.


def test_jumpstart_fills_in_what_the_recipe_leaves_open(tmp_path: Path) -> None:
    found = filled(recipe(tmp_path), gpt_oss())
    assert found.speculation
    assert found.speculation.num_speculative_tokens == 3
    assert found.platform.types == ("ml.g7e.2xlarge",)
    assert (found.platform.health_check_timeout, found.download_timeout) == (3600, 3600)
    assert found.network.isolation


def test_what_the_recipe_says_stays(tmp_path: Path) -> None:
    text = RECIPE.replace(
        "{name: sagemaker}", "{name: sagemaker, instance_types: [ml.p5.48xlarge], health_check_timeout: 900}"
    )
    text = text.replace("engine:", "  num_speculative_tokens: 5\nengine:")
    found = filled(recipe(tmp_path, text), gpt_oss())
    assert found.speculation
    assert found.speculation.num_speculative_tokens == 5
    assert (found.platform.types, found.platform.health_check_timeout) == (("ml.p5.48xlarge",), 900)


def test_the_wrong_method_for_jumpstarts_head(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is for `p-eagle`, not for `eagle3`") as error:
        filled(recipe(tmp_path, RECIPE.replace("p-eagle", "eagle3")), gpt_oss())
    assert error.value.hint == "Write `speculation.method: p-eagle` in line 4 of recipe.yaml."


def test_the_container_of_a_recipe(tmp_path: Path) -> None:
    made = container(recipe(tmp_path), gpt_oss())

    assert made["Image"] == VLLM
    assert made["ModelDataSource"] == {
        "S3DataSource": {"S3Uri": WEIGHTS, "S3DataType": "S3Prefix", "CompressionType": "None"}
    }
    assert made["AdditionalModelDataSources"] == [
        {
            "ChannelName": "drafter",
            "S3DataSource": {"S3Uri": HEAD, "S3DataType": "S3Prefix", "CompressionType": "None"},
        }
    ]
    told = made["Environment"]
    assert json.loads(told["SM_VLLM_SPECULATIVE_CONFIG"]) == {
        "method": "eagle3",
        "model": "/opt/ml/additional-model-data-sources/drafter",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
    }
    assert told["SM_VLLM_MAX_NUM_SEQS"] == "64"  # the recipe's
    assert told["SM_VLLM_MAX_MODEL_LEN"] == "8192"  # JumpStart's
    assert told["SM_VLLM_SERVED_MODEL_NAME"] == "gpt-oss"


def test_the_baseline_is_the_same_container_without_a_drafter(tmp_path: Path) -> None:
    made = container(recipe(tmp_path).baseline(), gpt_oss())
    assert (made["Image"], "AdditionalModelDataSources" in made) == (VLLM, False)
    assert "SM_VLLM_SPECULATIVE_CONFIG" not in made["Environment"]


def test_a_head_of_ones_own_takes_the_place_of_jumpstarts(tmp_path: Path) -> None:
    text = RECIPE.replace(f"model: jumpstart:{GPT_OSS}", "model: s3://mine/head")
    made = container(recipe(tmp_path, text), gpt_oss())
    assert made["AdditionalModelDataSources"] == [{"ChannelName": "drafter", **OWN_HEAD}]
    assert json.loads(made["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])["num_speculative_tokens"] == 7


def test_jumpstarts_head_drafts_for_a_target_from_elsewhere(tmp_path: Path) -> None:
    text = RECIPE.replace(f'{{model: "jumpstart:{GPT_OSS}"}}', "{model: openai/gpt-oss-20b}").replace(
        "0.18.0", "0.30.0"
    )
    found = filled(recipe(tmp_path, text), gpt_oss())
    assert found.speculation
    assert found.speculation.num_speculative_tokens == 3
    assert found.platform.types == ("ml.g6e.xlarge",)  # by fit: JumpStart's are those of its own targets
    (drafter,) = container(found, gpt_oss())["AdditionalModelDataSources"]
    assert drafter["S3DataSource"]["S3Uri"] == HEAD


def test_a_model_that_brings_no_drafter(tmp_path: Path) -> None:
    content = gpt_oss()
    del component(content)["HostingAdditionalDataSources"]
    with pytest.raises(UsageError, match="no drafter comes with JumpStart's") as error:
        container(recipe(tmp_path), content)
    assert "`speculation.model`" in error.value.hint


GATED = RECIPE.replace(GPT_OSS, LLAMA).replace("p-eagle", "draft-model")


def test_a_licence_is_never_accepted_for_you(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        container(recipe(tmp_path, GATED), gated())
    assert error.value.message == (
        f"JumpStart's {LLAMA} comes under a licence that you have to accept: "
        "https://jumpstart-cache-prod-us-west-2.s3.us-west-2.amazonaws.com/fmhMetadata/eula/llama3_1Eula.txt"
    )
    assert error.value.hint == "If you do: Write `target.accept_eula: true` in line 2 of recipe.yaml."


def test_the_drafter_has_a_licence_of_its_own(tmp_path: Path) -> None:
    text = GATED.replace(f'{{model: "jumpstart:{LLAMA}"}}', "{model: meta-llama/Llama-3.1-70B}").replace(
        "0.18.0", "0.30.0"
    )
    with pytest.raises(UsageError, match=r"the drafter of JumpStart's .*/llama3_2Eula\.txt"):
        container(recipe(tmp_path, text), gated())


def test_an_accepted_licence_goes_with_every_gated_source(tmp_path: Path) -> None:
    text = GATED.replace(f'"jumpstart:{LLAMA}"', f'"jumpstart:{LLAMA}", accept_eula: true')
    made = container(recipe(tmp_path, text), gated())
    sources = [made["ModelDataSource"], *made["AdditionalModelDataSources"]]
    assert [source["S3DataSource"]["ModelAccessConfig"] for source in sources] == [{"AcceptEula": True}] * 2


def test_an_accepted_licence_is_not_sent_where_there_is_none(tmp_path: Path) -> None:
    text = RECIPE.replace(f'"jumpstart:{GPT_OSS}"', f'"jumpstart:{GPT_OSS}", accept_eula: true')
    made = container(recipe(tmp_path, text), gpt_oss())
    assert "ModelAccessConfig" not in made["ModelDataSource"]["S3DataSource"]


@pytest.mark.parametrize(
    ("arn", "licence"),
    [
        ("arn:aws-cn:sagemaker:cn-north-1:aws:", "-cn-north-1.s3.cn-north-1.amazonaws.com.cn/fmhMetadata/"),
        ("arn:aws-us-gov:sagemaker:us-gov-west-1:aws:", "-us-gov-west-1.s3.us-gov-west-1.amazonaws.com/fmhMetadata/"),
        ("arn:aws-eusc:sagemaker:eusc-de-east-1:aws:", "-eusc-de-east-1.s3.eusc-de-east-1.amazonaws.eu/fmhMetadata/"),
    ],
)
def test_the_licence_of_other_partitions(arn: str, licence: str) -> None:
    content = gated()
    content["HubContentArn"] = content["HubContentArn"].replace("arn:aws:sagemaker:us-west-2:aws:", arn)
    assert licence in parse(content).target.licence


def test_a_gated_bucket_without_a_licence_points_to_the_models_page() -> None:
    content = gated()
    del content["HubContentDocument"]["HostingEulaUri"]
    target = parse(content).target
    assert (target.gated, target.licence) == (True, content["HubContentDocument"]["Url"])


def test_a_private_hubs_reference_goes_with_the_data(tmp_path: Path) -> None:
    content = {**gpt_oss(), "HubContentType": "ModelReference"}
    source = container(recipe(tmp_path), content)["ModelDataSource"]["S3DataSource"]
    assert source["HubAccessConfig"] == {"HubContentArn": content["HubContentArn"]}


def test_another_engine_version_than_the_image_has(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"with vLLM 0\.18\.0, not 0\.30\.0") as error:
        container(recipe(tmp_path, RECIPE.replace("0.18.0", "0.30.0")), gpt_oss())
    assert error.value.hint == "Write `engine.version: 0.18.0` in line 6 of recipe.yaml."


def test_an_image_of_another_engine(tmp_path: Path) -> None:
    text = RECIPE.replace("{name: sagemaker}", "{name: sagemaker, instance_types: [ml.g5.12xlarge]}")
    with pytest.raises(UsageError, match=r"on ml\.g5\.12xlarge with djl-inference, not vllm") as error:
        container(recipe(tmp_path, text), gpt_oss())
    assert "platform.instance_types" in error.value.hint


def test_aws_would_take_the_containers(tmp_path: Path) -> None:
    shape = get_session().get_service_model("sagemaker").shape_for("ContainerDefinition")
    for content, text in ((gpt_oss(), RECIPE), (gated(), GATED.replace('"}', '", accept_eula: true}'))):
        validate_parameters(container(recipe(tmp_path, text), content), shape)


def test_without_the_hubs_entry_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has not been looked up") as error:
        with_jumpstart_defaults(recipe(tmp_path), {})
    assert "Log in to AWS" in error.value.hint
