"""A model on SageMaker becomes a recipe: a container's image, variables and model data, and where it is hosted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from toolkit.api.importing import ImportedRecipe, import_recipe
from toolkit.errors import UsageError

ECR = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
IMAGE = f"{ECR}/vllm:0.29.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
LMI = f"{ECR}/djl-inference:0.36.0-lmi28.0.0-cu130"
ROLE = "arn:aws:iam::123456789012:role/studio"
PAIR = '{"method":"eagle3","parallel_drafting":true,"num_speculative_tokens":7,"model":"%s"}'
CHANNEL = "/opt/ml/additional-model-data-sources/drafter"


def source(uri: str, **more: str) -> dict[str, Any]:
    return {"S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None", **more}}


def hosted(image: str = IMAGE, environment: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    return {"PrimaryContainer": {"Image": image, "Environment": environment or {}, **container}}


def imported(document: dict[str, Any], folder: Path, **options: Any) -> tuple[dict[str, Any], ImportedRecipe]:
    made = import_recipe(json.dumps(document), out=folder / "recipe.yaml", **options)
    return YAML(typ="safe").load(made.path.read_text()), made


def left_out(made: ImportedRecipe) -> str:
    return "\n".join(f"{finding.message} {finding.hint}" for finding in made.left_out)


def test_a_model_of_aws_image_with_its_data_in_s3(tmp_path: Path) -> None:
    environment = {
        "SM_VLLM_MAX_MODEL_LEN": "8192",
        "SM_VLLM_ENABLE_PREFIX_CACHING": "false",
        "SM_VLLM_TRUST_REMOTE_CODE": "false",
        "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "",
        "SM_VLLM_SPECULATIVE_CONFIG": PAIR % CHANNEL,
        "SAGEMAKER_REGION": "us-west-2",
        "STANDARD_AUTO_INSTALL_REQ": "false",
        "MY_API_KEY": "s3cr3t-1234",
    }
    channels = [{"ChannelName": "drafter", **source("s3://mine/head")}]
    document = hosted(
        environment=environment, ModelDataSource=source("s3://mine/target/"), AdditionalModelDataSources=channels
    )
    recipe, made = imported(document, tmp_path)

    assert recipe["target"] == {"model": "s3://mine/target/"}
    assert recipe["speculation"] == {"method": "p-eagle", "num_speculative_tokens": 7, "model": "s3://mine/head/"}
    assert recipe["engine"] == {"version": "0.29.0", "args": {"enable-auto-tool-choice": True}, "max_model_len": 8192}
    assert "SAGEMAKER_REGION" in left_out(made)
    assert "MY_API_KEY" in left_out(made)
    assert "s3cr3t" not in made.path.read_text() + repr(made)
    # It has a switch for tools and no parser of their calls: vLLM does not start so.
    assert {finding.code for finding in made.findings} == {"lock.missing", "engine.combination"}


def test_where_it_is_hosted(tmp_path: Path) -> None:
    variant = {
        "VariantName": "a",
        "ModelName": "m",
        "InstanceType": "ml.g6.xlarge",
        "InitialInstanceCount": 2,
        "ContainerStartupHealthCheckTimeoutInSeconds": 900,
        "InferenceAmiVersion": "al2023",
        "RoutingConfig": {"RoutingStrategy": "RANDOM"},
    }
    document = {
        **hosted(environment={"SM_VLLM_MODEL": "Qwen/Qwen3-8B"}),
        "ExecutionRoleArn": ROLE,
        "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
        "EnableNetworkIsolation": True,
        "ProductionVariants": [variant, {"VariantName": "b"}],
    }
    recipe, made = imported(document, tmp_path)

    hosting = {"role": ROLE, "instance_types": ["ml.g6.xlarge"], "health_check_timeout": 900}
    assert recipe["platform"] == {"name": "sagemaker", **hosting}
    assert recipe["network"] == {"subnets": ["subnet-1"], "security_groups": ["sg-1"], "isolation": True}
    for part in (
        "variant b: a is taken",
        "max_instances: 2",
        "InferenceAmiVersion: al2023: the toolkit",
        "RoutingConfig",
    ):
        assert part in left_out(made)
    (tmp_path / "recipe.yaml").unlink()
    on_this_machine, made = imported(document, tmp_path, platform="local")
    assert (on_this_machine["platform"], "network" in on_this_machine) == ({"name": "local"}, False)
    assert "subnets: ['subnet-1']: it is of another platform than local" in left_out(made)


def test_the_settings_of_lmi(tmp_path: Path) -> None:
    environment = {
        "HF_MODEL_ID": "Qwen/Qwen3-8B",
        "OPTION_TENSOR_PARALLEL_DEGREE": "max",
        "OPTION_MAX_ROLLING_BATCH_SIZE": "64",
        "OPTION_QUANTIZE": "fp8",
        "OPTION_GPU_MEMORY_UTILIZATION": "0.85",
        "OPTION_ROLLING_BATCH": "vllm",
        "OPTION_SPECULATIVE_DRAFT_MODEL": "/opt/ml/additional-model-data-sources/draft_model",
        "SERVING_FAIL_FAST": "true",
    }
    recipe, made = imported(hosted(LMI, environment), tmp_path)

    assert recipe["target"] == {"model": "Qwen/Qwen3-8B"}
    assert recipe["speculation"] == {"method": "none"}
    assert recipe["engine"] == {"max_num_seqs": 64, "args": {"quantization": "fp8", "gpu-memory-utilization": 0.85}}
    for part in (
        "OPTION_TENSOR_PARALLEL_DEGREE=max: a recipe says the number Add `tensor-parallel-size`",
        "OPTION_ROLLING_BATCH=vllm: it is a setting of LMI's server",
        "vLLM in LMI does not read it: nothing drafts",
        "SERVING_FAIL_FAST",
        f"image {LMI}: AWS's image of vLLM is taken",
    ):
        assert part in left_out(made)


@pytest.mark.parametrize(
    ("image", "version", "insist"),
    [
        ("ghcr.io/ours/vllm:v0.29.0", "0.29.0", "and `engine.version: 0.29.0`."),
        ("ghcr.io/ours/vllm:0.29.0-ours-2", "0.29.0", "and `engine.version: 0.29.0`."),
        ("ghcr.io/ours/vllm:latest", None, "and its `engine.version`."),
        ("ghcr.io/ours/server:v0.29.0", None, "and its `engine.version`."),
    ],
)
def test_the_version_of_another_image_is_that_of_its_tag(
    image: str, version: str | None, insist: str, tmp_path: Path
) -> None:
    recipe, made = imported(hosted(image, {"SM_VLLM_MODEL": "Qwen/Qwen3-8B"}), tmp_path)
    assert recipe.get("engine", {}).get("version") == version
    assert f"keep it: `container: {{base: {image}}}` {insist}" in left_out(made)


def test_flags_of_a_file_are_not_read_and_a_named_revision_is(tmp_path: Path) -> None:
    environment = {"SM_VLLM_MODEL": "Qwen/Qwen3-8B", "SM_VLLM_REVISION": "v2", "SM_VLLM_CONFIG": "/opt/ml/model/e.json"}
    others = {"HF_MODEL_ID": "other/model", "SM_VLLM_TENSOR_PARALLEL_SIZE": "4", "TENSOR_PARALLEL_DEGREE": "2"}
    recipe, made = imported(hosted(environment={**environment, **others}), tmp_path)

    assert recipe["target"] == {"model": "Qwen/Qwen3-8B", "revision": "v2"}
    assert recipe["engine"]["args"] == {"tensor-parallel-size": 4}
    assert "SM_VLLM_CONFIG=/opt/ml/model/e.json: the flags of that file are not read" in left_out(made)


@pytest.mark.parametrize(
    ("document", "says", "hint"),
    [
        (hosted(f"{ECR}/sglang:0.5.1-gpu"), "is of another engine than vLLM (sglang)", "toolkit new MODEL"),
        (
            hosted(f"{ECR}/huggingface-pytorch-tgi-inference:2.6-tgi3.3"),
            "another engine than vLLM (tgi)",
            "toolkit new",
        ),
        (hosted(f"{ECR}/xgboost:1"), "is of no image of vLLM", "Only what vLLM serves"),
        (hosted(), "the container names no model", "SM_VLLM_MODEL or HF_MODEL_ID"),
        (hosted(ModelDataUrl="s3://b/model.tar.gz"), "an archive, which a recipe cannot name", "Unpack it"),
        (hosted(ModelDataSource=source("s3://b/m", CompressionType="Gzip")), "the model data is an archive", "Unpack"),
        ({"Containers": [{"Image": IMAGE}, {"Image": IMAGE}]}, "a pipeline of 2 containers", "one model"),
        ({"PrimaryContainer": {"ModelPackageName": "p/1"}}, "its container is the model package p/1", "toolkit new"),
    ],
)
def test_what_cannot_be_a_recipe(document: dict[str, Any], says: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        imported(document, tmp_path)
    assert says in caught.value.message
    assert hint in caught.value.hint
    assert not (tmp_path / "recipe.yaml").exists()
