"""JumpStart's hub through boto3, with the answers that AWS's service model describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from jumpstart_entries import GPT_OSS, gpt_oss

from toolkit.errors import PlatformError, UnreadableModel, UsageError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.jumpstart import read_jumpstart
from toolkit.platforms.sagemaker.rules.jumpstart_entry import parse

HUB = {"HubName": "SageMakerPublicHub", "HubContentType": "Model"}
ONE = {**HUB, "HubContentName": GPT_OSS}
LIST = {**HUB, "MaxResults": 100}


@pytest.fixture
def clients() -> Clients:
    return Clients(boto3.Session("AKIATEST", "test", region_name="us-west-2"))


@pytest.fixture
def aws(clients: Clients) -> Iterator[Stubber]:
    with Stubber(clients.sagemaker) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def described(document: str) -> dict[str, Any]:
    return {
        **gpt_oss(),
        "HubContentDocument": document,
        "HubName": "SageMakerPublicHub",
        "HubArn": "arn:aws:sagemaker:us-west-2:aws:hub/SageMakerPublicHub",
        "HubContentStatus": "Available",
        "DocumentSchemaVersion": "2.3.0",
        "CreationTime": datetime(2026, 6, 17, tzinfo=UTC),
    }


def listed(*names: str, token: str | None = None) -> dict[str, Any]:
    summaries = [{**described(""), "HubContentName": name} for name in names]
    absent = ("HubName", "HubArn", "HubContentDocument")
    kept = [{field: value for field, value in item.items() if field not in absent} for item in summaries]
    page: dict[str, Any] = {"HubContentSummaries": kept}
    return {**page, "NextToken": token} if token else page


def test_an_entry_is_read_as_json_that_can_be_kept(clients: Clients, aws: Stubber) -> None:
    document = gpt_oss()["HubContentDocument"]
    aws.add_response("describe_hub_content", described(json.dumps(document)), ONE)

    content = read_jumpstart(clients, GPT_OSS)

    assert json.loads(json.dumps(content)) == content == gpt_oss()
    assert parse(content).id == GPT_OSS


def test_no_such_model_names_those_like_it_from_every_page(clients: Clients, aws: Stubber) -> None:
    wrong = "openai-reasoning-gpt-os-20b"
    aws.add_client_error("describe_hub_content", "ResourceNotFound", "HubContent does not exist")
    aws.add_response("list_hub_contents", listed("huggingface-vlm-gemma-4-31b-it", token="2"), LIST)
    aws.add_response("list_hub_contents", listed(GPT_OSS), {**LIST, "NextToken": "2"})

    with pytest.raises(UsageError, match=f"JumpStart has no model {wrong} in us-west-2") as error:
        read_jumpstart(clients, wrong)
    assert error.value.hint == f"Did you mean {GPT_OSS}?"


@pytest.mark.parametrize("may_list", [True, False])
def test_no_such_model_and_none_like_it(clients: Clients, aws: Stubber, may_list: bool) -> None:
    aws.add_client_error("describe_hub_content", "ResourceNotFound", "HubContent does not exist")
    if may_list:
        aws.add_response("list_hub_contents", listed("huggingface-vlm-gemma-4-31b-it"))
    else:
        aws.add_client_error("list_hub_contents", "AccessDeniedException", "no")

    with pytest.raises(UsageError) as error:
        read_jumpstart(clients, "zzz")
    assert error.value.hint.startswith("All names: aws sagemaker list-hub-contents")


def test_a_refusal_names_the_action(clients: Clients, aws: Stubber) -> None:
    message = "User: arn:aws:iam::1:user/me is not authorized to perform: sagemaker:DescribeHubContent"
    aws.add_client_error("describe_hub_content", "AccessDeniedException", message)
    with pytest.raises(PlatformError, match=f"asking JumpStart for {GPT_OSS}: .*sagemaker:DescribeHubContent") as error:
        read_jumpstart(clients, GPT_OSS)
    assert error.value.hint


def test_a_document_that_is_not_json(clients: Clients, aws: Stubber) -> None:
    aws.add_response("describe_hub_content", described("<html>"), ONE)
    with pytest.raises(UnreadableModel, match=f"JumpStart's entry of {GPT_OSS} cannot be used: it is not JSON"):
        read_jumpstart(clients, GPT_OSS)
