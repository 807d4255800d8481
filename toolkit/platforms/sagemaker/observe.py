"""Read what exists on AWS, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from botocore.exceptions import ClientError

from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Existing, Observed
from toolkit.platforms.sagemaker.aws_errors import is_unknown_operation
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look


def observe(look: Look, kinds: Sequence[AwsKind]) -> Observed:
    """What exists of what is desired, and all that is tagged or marked for one of the endpoints. Reads only.

    An endpoint that serves one of them as an inference component belongs to it too. Without endpoints all
    are new, and kinds are skipped whose API reports an existing resource when it is created: see execute.create.
    Kinds whose service lacks an operation are skipped too, and the result says so.
    """
    seen = [kind for kind in kinds if look.endpoints or kind.seen_when_new]
    existing: list[Existing] = []
    unseen: list[str] = []
    for kind in seen:
        try:
            existing += kind.observe(look)
        except ClientError as error:
            if not is_unknown_operation(error):
                raise
            unseen.append(f"{kind.kind}: not looked for, because the service has no {error.operation_name}")
    return Observed(tuple({(item.kind, item.name): item for item in existing}.values()), tuple(unseen))


def owned_endpoints(clients: Clients) -> Iterator[str]:
    """Names of all endpoints that carry our tag."""
    pages = clients.tagging.get_paginator("get_resources").paginate(
        TagFilters=[{"Key": ENDPOINT_TAG}], ResourceTypeFilters=["sagemaker:endpoint"]
    )
    for page in pages:
        for item in page["ResourceTagMappingList"]:
            yield item["ResourceARN"].rpartition("/")[2]
