"""Endpoints of the local platform, from Creating to deleted."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_account import Account
from processes import until

from toolkit.platforms.local.folders import endpoint_folder


def test_an_endpoint_is_created_serves_and_is_deleted(account: Account, home: Path) -> None:
    account.create("simple")
    created = account.sagemaker.describe_endpoint(EndpointName="simple")
    assert created["EndpointStatus"] == "Creating"
    assert created["PendingDeploymentSummary"]["EndpointConfigName"] == "simple"

    serving = account.settled("simple")
    assert serving["EndpointStatus"] == "InService"
    assert serving["EndpointConfigName"] == "simple"
    assert serving["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    assert "FailureReason" not in serving
    assert account.invoke("simple", text="hello")["text"] == "hello"

    account.sagemaker.delete_endpoint(EndpointName="simple")
    until(lambda: "simple" not in [item["EndpointName"] for item in account.sagemaker.list_endpoints()["Endpoints"]])
    assert not endpoint_folder(home / "endpoints", "simple").exists()
    with pytest.raises(
        ClientError, match='Could not find endpoint "arn:aws:sagemaker:us-west-2:123456789012:endpoint/'
    ):
        account.sagemaker.describe_endpoint(EndpointName="simple")


def test_a_container_that_dies_at_start_fails_with_its_last_lines_before_its_time_is_up(account: Account) -> None:
    account.create("dies", {"DIE_AT_START": "7"})
    until(lambda: "ValueError: last words" in account.log("dies"))
    died = time.monotonic()
    failed = account.settled("dies")
    assert time.monotonic() - died < 60  # it has 600 s to become healthy
    assert failed["EndpointStatus"] == "Failed"
    assert failed["FailureReason"] == (
        "The primary container for production variant only did not pass the ping health check. "
        "Please check CloudWatch logs for this endpoint. It ended with exit code 7."
    )
    assert account.log("dies") == ["container starts", "Traceback: no such model", "ValueError: last words"]


def test_the_reason_is_in_the_log_as_soon_as_the_status_says_failed(account: Account) -> None:
    account.create("told", {"DIE_AT_START": "1"})
    account.settled("told")
    assert account.log("told")[-1] == "ValueError: last words"


def test_a_failed_endpoint_can_only_be_deleted(account: Account) -> None:
    account.create("failed", {"DIE_AT_START": "1"})
    account.settled("failed")
    with pytest.raises(ClientError, match="Cannot update failed endpoint"):
        account.sagemaker.update_endpoint(EndpointName="failed", EndpointConfigName="failed")
    account.sagemaker.delete_endpoint(EndpointName="failed")


def test_an_endpoint_under_way_can_neither_be_updated_nor_deleted(account: Account, tmp_path: Path) -> None:
    account.create("slow", {"STARTS_WHEN": str(tmp_path / "now")})
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        account.sagemaker.delete_endpoint(EndpointName="slow")
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        account.sagemaker.update_endpoint(EndpointName="slow", EndpointConfigName="slow")
    with pytest.raises(
        account.runtime.exceptions.ValidationError, match="Endpoint slow of account 123456789012 not found"
    ):
        account.invoke("slow")
    (tmp_path / "now").touch()
    assert account.settled("slow")["EndpointStatus"] == "InService"


def test_an_update_moves_requests_to_new_containers(account: Account, home: Path) -> None:
    account.deploy("moves", {"VERSION": "1"})
    account.create_model("moves-2", {"VERSION": "2"})
    account.create_config("moves-2", "moves-2")

    account.sagemaker.update_endpoint(EndpointName="moves", EndpointConfigName="moves-2")
    versions = []
    while account.sagemaker.describe_endpoint(EndpointName="moves")["EndpointStatus"] == "Updating":
        versions.append(account.invoke("moves")["version"])
    assert account.invoke("moves")["version"] == "2"
    assert versions == sorted(versions), "the old one serves until the new one does"
    assert account.settled("moves")["EndpointConfigName"] == "moves-2"
    assert len(list(endpoint_folder(home / "endpoints", "moves").iterdir())) == 1, "the old container's folder is gone"


def test_an_answer_under_way_survives_an_update(account: Account) -> None:
    account.deploy("drains")
    account.create_config("drains-2", "drains")
    parts = account.stream("drains", do="stream", chunks=30, pause=0.05)
    next(parts)
    account.sagemaker.update_endpoint(EndpointName="drains", EndpointConfigName="drains-2")
    assert b"".join(parts).endswith(b"data: 29\n\n")
    assert account.settled("drains")["EndpointConfigName"] == "drains-2"


def test_a_failed_update_leaves_what_serves(account: Account) -> None:
    account.deploy("stays", {"VERSION": "1"})
    account.create_model("stays-2", {"DIE_AT_START": "1"})
    account.create_config("stays-2", "stays-2")
    account.sagemaker.update_endpoint(EndpointName="stays", EndpointConfigName="stays-2")

    settled = account.settled("stays")
    assert settled["EndpointStatus"] == "InService"
    assert settled["EndpointConfigName"] == "stays"
    assert "did not pass the ping health check" in settled["FailureReason"]
    assert account.invoke("stays")["version"] == "1"


def test_a_container_that_is_killed_is_started_again(account: Account) -> None:
    account.deploy("again")
    first = account.invoke("again", do="environment")["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: "The container ended with exit code 137; starting it again." in account.log("again"))
    until(lambda: _answers(account, "again"))
    assert account.invoke("again", do="environment")["pid"] != first
    assert account.settled("again")["EndpointStatus"] == "InService"


def _answers(account: Account, endpoint: str) -> bool:
    try:
        return bool(account.invoke(endpoint, text="hello"))
    except account.runtime.exceptions.ServiceUnavailable:
        return False


def test_a_container_that_does_not_come_back_makes_its_endpoint_fail(account: Account, tmp_path: Path) -> None:
    once = tmp_path / "once"
    account.deploy("lost", {"DIE_IF_EXISTS": str(once)})
    once.touch()
    with pytest.raises(account.runtime.exceptions.ModelError, match="broke the connection"):
        account.invoke("lost", do="die")
    failed = until(lambda: _if_failed(account, "lost"))
    assert "It had been in service before." in failed["FailureReason"]
    assert "last words" in account.log("lost")


def _if_failed(account: Account, endpoint: str) -> dict[str, Any] | None:
    described: dict[str, Any] = account.sagemaker.describe_endpoint(EndpointName=endpoint)
    return described if described["EndpointStatus"] == "Failed" else None


def _two_variants(account: Account, name: str, **request: Any) -> None:
    """An endpoint whose variant `a` takes all requests; `request` says where variant `b` is."""
    for version in ("a", "b"):
        account.create_model(f"{name}-{version}", {"VERSION": version})
    account.sagemaker.create_endpoint_config(EndpointConfigName=name, **request)
    account.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    assert account.settled(name)["EndpointStatus"] == "InService"


def _variant(endpoint: str, version: str, weight: float) -> dict[str, Any]:
    return {
        "VariantName": version,
        "ModelName": f"{endpoint}-{version}",
        "InitialInstanceCount": 1,
        "InstanceType": "ml.g6e.xlarge",
        "InitialVariantWeight": weight,
    }


def test_two_variants_share_the_requests_by_weight(account: Account) -> None:
    _two_variants(account, "share", ProductionVariants=[_variant("share", "a", 1.0), _variant("share", "b", 0.0)])
    assert {account.invoke("share")["version"] for _ in range(10)} == {"a"}
    chosen = account.runtime.invoke_endpoint(EndpointName="share", Body=b"{}", TargetVariant="b")
    assert chosen["InvokedProductionVariant"] == "b"


def test_weights_are_changed_while_the_containers_go_on(account: Account) -> None:
    _two_variants(account, "shift", ProductionVariants=[_variant("shift", "a", 1.0), _variant("shift", "b", 0.0)])
    desired: Any = [{"VariantName": "a", "DesiredWeight": 0.0}, {"VariantName": "b", "DesiredWeight": 1.0}]
    account.sagemaker.update_endpoint_weights_and_capacities(EndpointName="shift", DesiredWeightsAndCapacities=desired)
    assert {account.invoke("shift")["version"] for _ in range(10)} == {"b"}
    assert [item["CurrentWeight"] for item in account.settled("shift")["ProductionVariants"]] == [0.0, 1.0]


def test_one_machine_runs_no_second_instance_later_either(account: Account) -> None:
    account.deploy("single")
    desired: Any = [{"VariantName": "only", "DesiredInstanceCount": 2}]
    with pytest.raises(account.sagemaker.exceptions.ResourceLimitExceeded, match="Set DesiredInstanceCount to 1"):
        account.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="single", DesiredWeightsAndCapacities=desired
        )


def test_a_shadow_variant_gets_copies_of_requests_and_nobody_its_answers(account: Account) -> None:
    production, shadow = [_variant("mirror", "a", 1.0)], [_variant("mirror", "b", 1.0)]
    _two_variants(account, "mirror", ProductionVariants=production, ShadowProductionVariants=shadow)
    assert {account.invoke("mirror")["version"] for _ in range(5)} == {"a"}
    account.invoke("mirror", do="say", text="hello\n")
    until(lambda: account.log("mirror").count("hello") == 2)
    described = account.settled("mirror")
    assert [item["VariantName"] for item in described["ShadowProductionVariants"]] == ["b"]


def test_the_boto3_waiter_works(account: Account) -> None:
    account.create("waited")
    account.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="waited", WaiterConfig={"Delay": 1})
    assert account.invoke("waited", text="hello")["text"] == "hello"
