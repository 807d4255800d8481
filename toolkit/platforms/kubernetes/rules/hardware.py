"""Instance types of a cluster's nodes. They have EC2's names and prices; the catalogue's names begin with `ml.`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolkit.catalog import lookup

SAGEMAKER_PREFIX = "ml."


def ec2_name(name: str) -> str:
    """EC2's name of an instance type, which a cluster's nodes have."""
    return name.removeprefix(SAGEMAKER_PREFIX)


def instance(name: str) -> lookup.Instance | None:
    """The hardware of an instance type, None where it is not known."""
    found = lookup.instance(f"{SAGEMAKER_PREFIX}{name}")
    return _as_node(found) if found else None


def instances() -> Sequence[lookup.Instance]:
    """All instance types of the catalogue: a node may be any of them."""
    return tuple(map(_as_node, lookup.instances()))


def _as_node(instance: lookup.Instance) -> lookup.Instance:
    return replace(instance, name=ec2_name(instance.name), prices=instance.ec2_prices)
