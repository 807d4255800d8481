"""Instance types of a cluster's nodes. They have EC2's names; the catalogue has SageMaker's, which begin with `ml.`."""

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
    return replace(found, name=name) if found else None


def instances() -> Sequence[lookup.Instance]:
    """All instance types of the catalogue: a node may be any of them."""
    return tuple(replace(item, name=ec2_name(item.name)) for item in lookup.instances())
