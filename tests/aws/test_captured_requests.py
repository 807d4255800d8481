"""Requests that SageMaker captured in S3, read with the platform's own client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from standin import StandIn

from toolkit.errors import PlatformError, UsageError
from toolkit.measure.read_workloads import read_workloads
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform
from toolkit.training.conversations import Skipped, distinct
from toolkit.training.sources import source_rows

PREFIX = "s3://captured/data/chat/"


@pytest.fixture
def platform(standin: StandIn) -> SageMakerPlatform:
    platform = SageMakerPlatform(Clients(standin.session()))
    region = platform.clients.session.region_name
    s3 = platform.clients.s3
    s3.create_bucket(Bucket="captured", CreateBucketConfiguration={"LocationConstraint": region})  # type: ignore[typeddict-item]
    for hour in ("2026/11/22/10", "2026/11/22/09"):
        body = {"messages": [{"role": "user", "content": f"asked at {hour[-2:]}"}]}
        data = {"endpointInput": {"data": json.dumps(body), "encoding": "JSON"}}
        line = json.dumps({"captureData": data}).encode()
        s3.put_object(Bucket="captured", Key=f"data/chat/only/{hour}/requests.jsonl", Body=line)
    s3.put_object(Bucket="captured", Key="data/other/requests.jsonl", Body=b"{}")
    return platform


def test_captured_requests_are_a_workload(platform: SageMakerPlatform) -> None:
    (workload,) = read_workloads(PREFIX, platform.read_objects)

    assert [prompt.text for prompt in workload.prompts] == ["asked at 09", "asked at 10"]


def test_captured_requests_are_training_data(platform: SageMakerPlatform, tmp_path: Path) -> None:
    rows = source_rows(PREFIX, tmp_path, platform.read_objects)
    found = list(distinct(rows, False, Skipped()))

    assert [conversation.messages[0]["content"] for conversation in found] == ["asked at 09", "asked at 10"]
    assert found[0].location == "data/chat/only/2026/11/22/09/requests.jsonl:1"


def test_a_prefix_without_training_data(platform: SageMakerPlatform, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no rows below s3://captured/nothing/"):
        list(source_rows("s3://captured/nothing/", tmp_path, platform.read_objects))


def test_a_bucket_that_does_not_exist(platform: SageMakerPlatform) -> None:
    with pytest.raises(PlatformError, match="reading s3://nobody/"):
        list(platform.read_objects("s3://nobody/"))


def test_another_address(platform: SageMakerPlatform) -> None:
    with pytest.raises(UsageError, match="not an address in S3"):
        list(platform.read_objects("https://captured/"))
