"""GetResources of the Resource Groups Tagging API: SageMaker's resources from our service, all others from moto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moto.resourcegroupstaggingapi.models import resourcegroupstaggingapi_backends

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError
from toolkit.platforms.local.host import Answer, Request
from toolkit.platforms.local.resources import Tags, read_token, token_of

_MOST = 100  # resources of a page
_ALL = 1_000_000


def get_resources(region: Region, sagemaker: Tags, request: Request) -> Answer:
    """One page of the resources of a region that match the request, by ARN."""
    size = request.get("ResourcesPerPage", _MOST)
    if not 1 <= size <= _MOST:
        raise ServiceError(f"ResourcesPerPage must be between 1 and {_MOST}.", code="InvalidParameterException")
    found = {**dict(_from_moto(region)), **sagemaker.all()}
    arns = sorted(arn for arn, tags in found.items() if _is_wanted(arn, tags, request))
    if request.get("PaginationToken"):
        (last,) = read_token(request["PaginationToken"], 1)
        arns = [arn for arn in arns if arn > last]
    page = arns[:size]
    return {
        "ResourceTagMappingList": [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in found[arn].items()]}
            for arn in page
        ],
        "PaginationToken": token_of(page[-1]) if len(arns) > size else "",
    }


def _from_moto(region: Region) -> Iterator[tuple[str, Mapping[str, str]]]:
    _, resources = resourcegroupstaggingapi_backends[ACCOUNT][region.name].get_resources(None, _ALL, _ALL)
    for resource in resources:
        yield resource.arn, resource.tags


def _is_wanted(arn: str, tags: Mapping[str, str], request: Request) -> bool:
    types, arns = request.get("ResourceTypeFilters"), request.get("ResourceARNList")
    _, _, service, _, _, resource = arn.split(":", 5)
    names = (service, f"{service}:{resource.partition('/')[0]}")
    return (
        bool(tags)
        and (not types or any(name in types for name in names))
        and (not arns or arn in arns)
        and all(_matches(tags, wanted) for wanted in request.get("TagFilters", []))
    )


def _matches(tags: Mapping[str, str], wanted: Mapping[str, list[str]]) -> bool:
    key, values = str(wanted["Key"]), wanted.get("Values")
    return key in tags and (not values or tags[key] in values)
