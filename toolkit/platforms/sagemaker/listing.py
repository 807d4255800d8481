"""All endpoints that the toolkit made in a region, with what they run on and cost: two calls for each, side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from toolkit.endpoint.listing import Deployed
from toolkit.platforms.sagemaker.aws_errors import is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.observe import owned_endpoints
from toolkit.platforms.sagemaker.rules.price import price_of_instances

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import DescribeEndpointConfigOutputTypeDef, DescribeEndpointOutputTypeDef

# boto3's clients may be used by several threads; more of them only meet AWS's throttling.
_THREADS = 8


def deployed(clients: Clients, platform: str) -> list[Deployed]:
    """By name, without those that are deleted meanwhile."""
    _ = clients.sagemaker  # made once, and not by eight threads at a time
    with ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda name: _deployed(clients, platform, name), sorted(owned_endpoints(clients)))
        return [item for item in found if item]


def _deployed(clients: Clients, platform: str, name: str) -> Deployed | None:
    try:
        endpoint = clients.sagemaker.describe_endpoint(EndpointName=name)
        config = clients.sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    instances = _instances(endpoint, config)
    return Deployed(
        name=name,
        platform=platform,
        region=clients.session.region_name,
        status=endpoint["EndpointStatus"],
        config=endpoint["EndpointConfigName"],
        created=endpoint["CreationTime"].timestamp(),
        instances=instances,
        price_per_hour=price_of_instances(instances) if platform == "sagemaker" else 0.0,
        failure_reason=endpoint.get("FailureReason", ""),
    )


def _instances(
    endpoint: DescribeEndpointOutputTypeDef, config: DescribeEndpointConfigOutputTypeDef
) -> tuple[tuple[str, int], ...]:
    """Type (the first of a variant's pools) and number, which is the one that autoscaling has come to."""
    summaries = [*endpoint.get("ProductionVariants", []), *endpoint.get("ShadowProductionVariants", [])]
    now = {item["VariantName"]: item.get("CurrentInstanceCount") for item in summaries}
    variants = [*config["ProductionVariants"], *config.get("ShadowProductionVariants", [])]
    return tuple(
        (
            variant.get("InstanceType") or variant["InstancePools"][0]["InstanceType"],
            now.get(variant["VariantName"]) or variant["InitialInstanceCount"],
        )
        for variant in variants
    )
