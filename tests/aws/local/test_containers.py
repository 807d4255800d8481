"""What a container of the local platform sees: its environment, its files, and nothing of the user's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_kinds import TEMPLATES, desired
from fakes import ACCOUNT
from local_account import Account
from pairs import write_hub_pair
from processes import until

from toolkit.loading import load
from toolkit.platforms.local.folders import endpoint_folder


@pytest.fixture(scope="module", autouse=True)
def weights(account: Account) -> None:
    account.s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for key in ("target/config.json", "target/parts/1.bin", "drafter/config.json", "odd/../../escape"):
        account.s3.put_object(Bucket="models", Key=key, Body=key.encode())


def source(prefix: str) -> dict[str, dict[str, str]]:
    return {"S3DataSource": {"S3Uri": f"s3://models/{prefix}/", "S3DataType": "S3Prefix", "CompressionType": "None"}}


def test_model_data_lies_where_sagemaker_puts_it(account: Account) -> None:
    account.deploy(
        "data",
        ModelDataSource=source("target"),
        AdditionalModelDataSources=[{"ChannelName": "drafter", **source("drafter")}],
    )
    assert account.invoke("data", do="files") == {
        "model/config.json": "target/config.json",
        "model/parts/1.bin": "target/parts/1.bin",
        "additional-model-data-sources/drafter/config.json": "drafter/config.json",
    }


def test_a_templates_container_finds_its_models(account: Account, tmp_path: Path) -> None:
    """CloudFormation's Model has one data source, which brings target and drafter."""
    recipe = load(write_hub_pair(tmp_path))
    (model,) = [item for item in desired([TEMPLATES.arrange(recipe, ACCOUNT)], ACCOUNT) if item.kind == "Model"]
    container = model.request["PrimaryContainer"]
    bucket, _, prefix = container["ModelDataSource"]["S3DataSource"]["S3Uri"].removeprefix("s3://").partition("/")
    account.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for name in ("target", "drafter"):
        account.s3.put_object(Bucket=bucket, Key=f"{prefix}{name}/config.json", Body=name.encode())
    account.deploy("stack", container["Environment"], ModelDataSource=container["ModelDataSource"])
    assert account.invoke("stack", do="files") == {
        "model/target/config.json": "target",
        "model/drafter/config.json": "drafter",
    }
    variables = account.invoke("stack", do="environment")["variables"]
    drafter = json.loads(variables["SM_VLLM_SPECULATIVE_CONFIG"])["model"]
    assert Path(variables["SM_VLLM_MODEL"], "config.json").read_text() == "target"
    assert Path(drafter, "config.json").read_text() == "drafter"


def test_paths_below_opt_ml_are_those_of_this_machine(account: Account, home: Path) -> None:
    speculative = json.dumps({"model": "/opt/ml/additional-model-data-sources/drafter", "method": "eagle3"})
    account.deploy(
        "paths",
        {
            "SM_VLLM_MODEL": "/opt/ml/model",
            "SM_VLLM_SPECULATIVE_CONFIG": speculative,
            "URL": "file:///opt/ml/model",
            "OTHER": "/data/opt/ml/model /opt/mlx s3://bucket/opt/ml",
        },
    )
    variables = account.invoke("paths", do="environment")["variables"]
    opt_ml = variables["SAGEMAKER_BASE_DIR"]
    assert Path(opt_ml).is_relative_to(endpoint_folder(home / "endpoints", "paths"))
    assert variables["SM_VLLM_MODEL"] == f"{opt_ml}/model"
    assert (
        json.loads(variables["SM_VLLM_SPECULATIVE_CONFIG"])["model"]
        == f"{opt_ml}/additional-model-data-sources/drafter"
    )
    assert variables["URL"] == f"file://{opt_ml}/model"
    assert variables["OTHER"] == "/data/opt/ml/model /opt/mlx s3://bucket/opt/ml"


def test_nothing_of_the_users_environment_gets_in(account: Account, home: Path) -> None:
    account.deploy("alone", {"HF_HUB_OFFLINE": "1"})
    variables = account.invoke("alone", do="environment")["variables"]
    assert set(variables) - {"LANG", "LC_ALL", "LC_CTYPE", "TZ"} == {
        "PATH",
        "HOME",
        "TMPDIR",
        "PYTHONUNBUFFERED",
        "VLLM_CACHE_ROOT",
        "HF_HUB_OFFLINE",
        "AWS_REGION",
        "SAGEMAKER_BASE_DIR",
        "SAGEMAKER_BIND_TO_PORT",
        "SM_VLLM_UDS",
        "SM_VLLM_KV_CACHE_MEMORY_BYTES",  # these three for this machine, where CreateModel leaves them open
        "SM_VLLM_DTYPE",
        "SM_VLLM_ENFORCE_EAGER",
        "OMP_NUM_THREADS",  # and these three, so that servers share its cores
        "NUMBA_NUM_THREADS",
        "VLLM_CPU_OMP_THREADS_BIND",
        "TOOLKIT_VLLM_FORKS",  # and this, so that its processes are forked
    }
    assert Path(variables["HOME"]).is_relative_to(home)
    assert len(variables["TMPDIR"]) < 60, "sockets are made there, and their paths end at 107 characters"


def test_model_data_that_is_gone_or_odd_fails_with_a_reason(account: Account) -> None:
    account.create("odd", ModelDataSource=source("odd"))
    assert "'odd/../../escape' cannot become a file" in account.settled("odd")["FailureReason"]

    account.s3.put_object(Bucket="models", Key="brief/config.json", Body=b"{}")
    account.create_model("brief", ModelDataSource=source("brief"))
    account.create_config("brief", "brief")
    account.s3.delete_object(Bucket="models", Key="brief/config.json")
    account.sagemaker.create_endpoint(EndpointName="brief", EndpointConfigName="brief")
    assert account.settled("brief")["FailureReason"] == "Could not find model data at s3://models/brief/."


def test_large_files_arrive_whole(account: Account) -> None:
    weights = bytes(range(256)) * 4096 * 20  # 20 MiB: a multipart upload
    account.s3.put_object(Bucket="models", Key="large/model.safetensors", Body=weights)
    account.deploy("large", ModelDataSource=source("large"))
    assert account.invoke("large", do="sizes") == {"model/model.safetensors": len(weights)}


def test_every_line_is_an_event_in_order(account: Account) -> None:
    account.deploy("talks")
    account.invoke("talks", do="say", text="".join(f"line {n}\n" for n in range(2000)) + "10%\r50%\r\nünï\n")
    said = until(lambda: _if_complete(account.log("talks")))
    assert said == ["container starts", *[f"line {n}" for n in range(2000)], "10%", "50%", "ünï"]


def _if_complete(lines: list[str]) -> list[str] | None:
    return lines if lines[-1:] == ["ünï"] else None


def test_a_log_group_that_is_deleted_comes_back_with_the_next_line(account: Account) -> None:
    account.deploy("deleted")
    account.logs.delete_log_group(logGroupName="/aws/sagemaker/Endpoints/deleted")
    account.invoke("deleted", do="say", text="still here\n")
    until(lambda: account.logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker/Endpoints/deleted")["logGroups"])
    assert until(lambda: account.log("deleted")) == ["still here"]
