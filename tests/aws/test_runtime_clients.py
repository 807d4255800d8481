"""How boto3's clients are set up."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from standin import StandIn

from toolkit.platforms.sagemaker.clients import Clients
from toolkit.version import __version__

ALL = [
    "sagemaker",
    "runtime",
    "s3",
    "iam",
    "sts",
    "logs",
    "cloudwatch",
    "application_autoscaling",
    "service_quotas",
    "ecr",
    "secretsmanager",
    "tagging",
]


@pytest.fixture(scope="module")
def clients() -> Clients:
    return Clients(boto3.Session("AKID", "secret", region_name="us-west-2"))


@pytest.mark.parametrize("name", ALL)
def test_aws_can_tell_who_asks(clients: Clients, name: str) -> None:
    client: Any = getattr(clients, name)
    assert client.meta.config.user_agent.endswith(f" toolkit/{__version__}")


@pytest.mark.parametrize("name", [name for name in ALL if name != "runtime"])
def test_the_control_plane_is_asked_ten_times(clients: Clients, name: str) -> None:
    client: Any = getattr(clients, name)
    assert client.meta.config.retries["total_max_attempts"] == 10
    assert client.meta.config.retries["mode"] == "standard"


def test_a_model_is_asked_once_and_may_think_for_a_minute(clients: Clients) -> None:
    config: Any = clients.runtime.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout > 60


def test_a_throttling_storm_passes(standin: StandIn) -> None:
    standin.faults.throttle("ListModels", times=9)
    assert Clients(standin.session()).sagemaker.list_models()["Models"] == []


def test_a_throttling_storm_that_does_not_pass_is_told(standin: StandIn) -> None:
    standin.faults.throttle("ListModels", times=99)
    with pytest.raises(ClientError, match="ThrottlingException"):
        Clients(standin.session(), attempts=3).sagemaker.list_models()
    assert [str(call) for call in standin.calls] == ["sagemaker:ListModels"] * 3
