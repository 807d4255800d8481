"""Tags of what AWS holds, as one mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.platforms.sagemaker.clients import Clients


def sagemaker_tags(clients: Clients, arn: str) -> dict[str, str]:
    """All tags of a resource of SageMaker, every page of them."""
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    return by_key([tag for page in pages for tag in page["Tags"]])


def by_key(tags: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Most of AWS's services list keys and values."""
    return {tag["Key"]: tag["Value"] for tag in tags}
