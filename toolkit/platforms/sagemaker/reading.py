"""What an account has: its quotas and subnets, by calls that only look, and that we may not be allowed to make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.observe import read_endpoint
from toolkit.platforms.sagemaker.rules.checks.account import Quota, Subnet, Unread
from toolkit.platforms.sagemaker.rules.checks.capacity import BoughtPlan

if TYPE_CHECKING:
    from types_boto3_service_quotas.type_defs import ServiceQuotaTypeDef

_T = TypeVar("_T")
_EVERYWHERE = "0.0.0.0/0"
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


@dataclass(frozen=True)
class Reading:
    """Asks AWS, and notes in `unread` what it did not get to know."""

    clients: Clients
    unread: list[Unread] = field(default_factory=list)

    def ask(self, what: str, action: str, call: Callable[[], _T]) -> _T | None:
        """What `call` returns; None when AWS refused or failed. `action` is what IAM calls the right to it."""
        try:
            with aws_errors(what):
                return call()
        except PlatformError as error:
            self.note(error.message, action)
        return None

    def note(self, message: str, action: str) -> None:
        """Something remains unknown."""
        self.unread.append(Unread(message, action))


def read_plan(clients: Clients, arn: str) -> tuple[BoughtPlan | None]:
    """The training plan, None where there is none of that name; in a tuple, for `Reading.ask` has None for unread."""
    name = arn.rpartition("/")[2]
    found = unless_missing(clients, lambda: clients.sagemaker.describe_training_plan(TrainingPlanName=name))
    if found is None:
        return (None,)
    machines: Counter[str] = Counter()
    for capacity in found.get("ReservedCapacitySummaries", []):
        machines[capacity["InstanceType"]] = max(machines[capacity["InstanceType"]], capacity["TotalInstanceCount"])
    return (BoughtPlan(found["Status"], tuple(found.get("TargetResources", [])), machines),)


def read_subnets(reading: Reading, names: Sequence[str], region: str) -> tuple[tuple[Subnet, ...], tuple[str, ...]]:
    """The subnets that exist with what they reach, and the names of those that do not."""
    if not names:
        return (), ()
    ec2 = reading.clients.ec2
    described = reading.ask("the subnets", "ec2:DescribeSubnets", lambda: _describe(ec2, names))
    if described is None:
        return (), ()
    missing = tuple(name for name in names if name not in described)
    if not described:
        return (), missing
    filters = [{"Name": "vpc-id", "Values": sorted({subnet["VpcId"] for subnet in described.values()})}]
    tables = reading.ask(
        "the routes of the subnets",
        "ec2:DescribeRouteTables",
        lambda: _all(ec2, "route_tables", "RouteTables", filters),
    )
    endpoints = reading.ask(
        "the VPC endpoints", "ec2:DescribeVpcEndpoints", lambda: _all(ec2, "vpc_endpoints", "VpcEndpoints", filters)
    )
    subnets = []
    for name, subnet in described.items():
        reaches = None
        if tables is not None and endpoints is not None:
            reaches = frozenset(_reaches(subnet, tables, endpoints, f"com.amazonaws.{region}."))
        subnets.append(Subnet(name, subnet["VpcId"], subnet["AvailabilityZone"], reaches))
    return tuple(subnets), missing


def _describe(ec2: Any, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """By a filter: asked by their ids, one that is missing would hide the others."""
    filters = [{"Name": "subnet-id", "Values": list(names)}]
    return {item["SubnetId"]: item for item in _all(ec2, "subnets", "Subnets", filters)}


def _all(ec2: Any, what: str, key: str, filters: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [item for page in ec2.get_paginator(f"describe_{what}").paginate(Filters=filters) for item in page[key]]


def _reaches(
    subnet: Mapping[str, Any],
    tables: Sequence[Mapping[str, Any]],
    endpoints: Sequence[Mapping[str, Any]],
    prefix: str,
) -> Iterator[str]:
    table = _route_table(subnet, tables)
    if table and any(_leads_out(route) for route in table["Routes"]):
        yield "internet"
    for endpoint in endpoints:
        gateway = endpoint["VpcEndpointType"] == "Gateway"
        near = endpoint["VpcId"] == subnet["VpcId"] and endpoint["State"].lower() == "available"
        if near and (not gateway or (table and table["RouteTableId"] in endpoint["RouteTableIds"])):
            # In China names begin with `cn.`.
            yield endpoint["ServiceName"].removeprefix("cn.").removeprefix(prefix)


def _route_table(subnet: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The table that the subnet is associated with, else the main one of its VPC."""
    main = None
    for table in tables:
        for association in table["Associations"]:
            if association.get("SubnetId") == subnet["SubnetId"]:
                return table
            if association.get("Main") and table["VpcId"] == subnet["VpcId"]:
                main = table
    return main


def _leads_out(route: Mapping[str, Any]) -> bool:
    """An internet gateway does not: SageMaker's network interfaces have no public address."""
    through_gateway = route.get("GatewayId", "").startswith("igw-")
    return route.get("DestinationCidrBlock") == _EVERYWHERE and route.get("State") == "active" and not through_gateway


def read_quotas(reading: Reading, instance_types: Collection[str], own: Collection[str]) -> Iterator[Quota]:
    """The quota of each type, with what endpoints other than `own` have of it."""
    names = {f"{name} for endpoint usage": name for name in instance_types}
    quotas = reading.ask("the quota of instances", _LISTING, lambda: _find(reading.clients, names))
    if quotas is None:
        return
    in_use = None
    if any(quota["Value"] for quota in quotas.values()):
        in_use = reading.ask("the instances in use", _COUNTING, lambda: _in_use(reading, own))
    for quota_name, instance_type in names.items():
        if quota := quotas.get(quota_name):
            used = None if in_use is None else in_use[instance_type]
            yield Quota(instance_type, quota["Value"], quota["QuotaCode"], used)
        else:
            reading.note(f"Service Quotas lists no quota `{quota_name}`", _LISTING)


def _find(clients: Clients, names: Collection[str]) -> dict[str, ServiceQuotaTypeDef]:
    """Quotas by name. SageMaker has thousands, of which only the list can be asked for by name: it ends early."""
    quotas: dict[str, ServiceQuotaTypeDef] = {}
    for listing in _LISTS:
        for page in clients.service_quotas.get_paginator(listing).paginate(ServiceCode="sagemaker"):
            for quota in page["Quotas"]:
                if quota["QuotaName"] in names and "Value" in quota:
                    quotas.setdefault(quota["QuotaName"], quota)
            if len(quotas) == len(names):
                return quotas
    return quotas


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
    if (found := read_endpoint(clients, endpoint)) is None:
        return Counter()
    described, config = found
    now = {variant["VariantName"]: variant for variant in described.get("ProductionVariants", [])}
    used: Counter[str] = Counter()
    for variant in [*config["ProductionVariants"], *config.get("ShadowProductionVariants", [])]:
        running: Mapping[str, Any] = now.get(variant["VariantName"], {})
        for pool in running.get("InstancePools", []):
            used[pool["InstanceType"]] += pool["CurrentInstanceCount"]
        if instance_type := variant.get("InstanceType"):
            used[instance_type] += running.get("CurrentInstanceCount", variant.get("InitialInstanceCount", 1))
    return used
