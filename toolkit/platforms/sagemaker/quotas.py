"""How many instances endpoints may have in this account, and how many they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from toolkit.platforms.sagemaker.aws_errors import is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.reading import Reading
from toolkit.platforms.sagemaker.rules.checks.account import Quota

if TYPE_CHECKING:
    from types_boto3_service_quotas.type_defs import ServiceQuotaTypeDef

# A quota that was never changed is only in the second (API reference of ListServiceQuotas).
_LISTS: Final = (
    "list_service_quotas",
    "list_aws_default_service_quotas",
)
_LISTING = "servicequotas:ListServiceQuotas and servicequotas:ListAWSDefaultServiceQuotas"
_COUNTING = "sagemaker:ListEndpoints, sagemaker:DescribeEndpoint and sagemaker:DescribeEndpointConfig"
# Counting takes two calls for each endpoint.
_MOST_ENDPOINTS = 50
_HOLDS_NOTHING = ("Failed", "Deleting")


def read_quotas(reading: Reading, instance_types: Collection[str], own: Collection[str]) -> Iterator[Quota]:
    """The quota of each type, with what endpoints other than `own` have of it."""
    names = {f"{name} for endpoint usage": name for name in instance_types}
    found = reading.ask("the quota of instances", _LISTING, lambda: _find(reading.clients, names))
    if found is None:
        return
    in_use = None
    if any(quota["Value"] for quota in found.values()):
        in_use = reading.ask("the instances in use", _COUNTING, lambda: _in_use(reading, own))
    for quota_name, instance_type in names.items():
        if quota := found.get(quota_name):
            used = None if in_use is None else in_use[instance_type]
            yield Quota(instance_type, quota["Value"], quota["QuotaCode"], used)
        else:
            reading.note(f"Service Quotas lists no quota `{quota_name}`", _LISTING)


def _find(clients: Clients, names: Collection[str]) -> dict[str, ServiceQuotaTypeDef]:
    """Quotas by name. SageMaker has thousands, of which only the list can be asked for by name: it ends early."""
    found: dict[str, ServiceQuotaTypeDef] = {}
    for listing in _LISTS:
        for page in clients.service_quotas.get_paginator(listing).paginate(ServiceCode="sagemaker"):
            for quota in page["Quotas"]:
                if quota["QuotaName"] in names and "Value" in quota:
                    found.setdefault(quota["QuotaName"], quota)
            if len(found) == len(names):
                return found
    return found


def _in_use(reading: Reading, own: Collection[str]) -> Counter[str] | None:
    names: list[str] = []
    for page in reading.clients.sagemaker.get_paginator("list_endpoints").paginate():
        names += [
            item["EndpointName"]
            for item in page["Endpoints"]
            if item["EndpointStatus"] not in _HOLDS_NOTHING and item["EndpointName"] not in own
        ]
    if len(names) > _MOST_ENDPOINTS:
        reading.note(f"the instances in use: {len(names)} endpoints are too many to read", _COUNTING)
        return None
    used: Counter[str] = Counter()
    for name in names:
        used += _instances(reading.clients, name)
    return used


def _instances(clients: Clients, endpoint: str) -> Counter[str]:
    """Instances of an endpoint by type; none of one that has gone, or whose configuration has."""
    try:
        described = clients.sagemaker.describe_endpoint(EndpointName=endpoint)
        config = clients.sagemaker.describe_endpoint_config(EndpointConfigName=described["EndpointConfigName"])
    except ClientError as error:
        if is_missing(error):
            return Counter()
        raise
    now = {variant["VariantName"]: variant for variant in described.get("ProductionVariants", [])}
    used: Counter[str] = Counter()
    for variant in [*config["ProductionVariants"], *config.get("ShadowProductionVariants", [])]:
        running: Mapping[str, Any] = now.get(variant["VariantName"], {})
        for pool in running.get("InstancePools", []):
            used[pool["InstanceType"]] += pool["CurrentInstanceCount"]
        if instance_type := variant.get("InstanceType"):
            used[instance_type] += running.get("CurrentInstanceCount", variant.get("InitialInstanceCount", 1))
    return used
