"""Where the subnets of a recipe lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.platforms.sagemaker.reading import Reading
from toolkit.platforms.sagemaker.rules.checks.account import Subnet

_EVERYWHERE = "0.0.0.0/0"


def read_subnets(reading: Reading, names: Sequence[str], region: str) -> tuple[tuple[Subnet, ...], tuple[str, ...]]:
    """The subnets that exist with what they reach, and the names of those that do not."""
    if not names:
        return (), ()
    ec2 = reading.clients.ec2
    described = reading.ask("the subnets", "ec2:DescribeSubnets", lambda: _described(ec2, names))
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
    found = []
    for name, subnet in described.items():
        reaches = None
        if tables is not None and endpoints is not None:
            reaches = frozenset(_reaches(subnet, tables, endpoints, f"com.amazonaws.{region}."))
        found.append(Subnet(name, subnet["VpcId"], subnet["AvailabilityZone"], reaches))
    return tuple(found), missing


def _described(ec2: Any, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
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
