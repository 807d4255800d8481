"""JumpStart's public hub through boto3: the entry of one model. Not tried on the live hub: unverified."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from toolkit import documents
from toolkit.errors import HubError, UsageError
from toolkit.platforms.sagemaker.aws_errors import is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import ListHubContentsRequestTypeDef

PUBLIC_HUB = "SageMakerPublicHub"


def read_jumpstart(clients: Clients, model_id: str) -> dict[str, Any]:
    """The newest entry of a JumpStart model in the region of `clients`, JSON all through: see `rules.jumpstart_entry`.

    Raises UsageError when the hub has no such model, HubError when its document is none, or PlatformError.
    """
    with aws_errors(f"asking JumpStart for {model_id}"):
        try:
            answer = clients.sagemaker.describe_hub_content(
                HubName=PUBLIC_HUB, HubContentType="Model", HubContentName=model_id
            )
        except ClientError as error:
            if is_missing(error):
                region = clients.sagemaker.meta.region_name
                message = f"JumpStart has no model {model_id} in {region}"
                raise UsageError(message, hint=_near(clients, model_id)) from error
            raise
    try:
        document = documents.parse(dict[str, Any], answer["HubContentDocument"])
    except documents.Unfit as error:
        message = f"JumpStart's entry of {model_id} cannot be used: {error}"
        raise HubError(message, hint="Name the model's Hugging Face id as `target.model`.") from error
    return {
        "HubContentName": answer["HubContentName"],
        "HubContentType": answer["HubContentType"],
        "HubContentVersion": answer["HubContentVersion"],
        "HubContentArn": answer["HubContentArn"],
        "HubContentDocument": document,
    }


def _near(clients: Clients, model_id: str) -> str:
    """Names like it, if they may be listed."""
    try:
        near = difflib.get_close_matches(model_id, _names(clients), n=3)
    except (BotoCoreError, ClientError):
        near = []
    command = f"aws sagemaker list-hub-contents --hub-name {PUBLIC_HUB} --hub-content-type Model"
    return f"Did you mean {' or '.join(near)}?" if near else f"All names: {command}"


def _names(clients: Clients) -> Iterator[str]:
    request: ListHubContentsRequestTypeDef = {"HubName": PUBLIC_HUB, "HubContentType": "Model", "MaxResults": 100}
    while True:  # boto3 has no paginator for it
        page = clients.sagemaker.list_hub_contents(**request)
        yield from (item["HubContentName"] for item in page["HubContentSummaries"])
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]
