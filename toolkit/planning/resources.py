"""Desired and existing resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe

UNDER_WAY = ("Creating", "Updating", "SystemUpdating", "RollingBack")
"""Statuses of an endpoint that will be in service or failed without further action."""

NO_ACCOUNT = "000000000000"
"""Placeholder for the account number in plans without credentials."""

PARTITIONS: Mapping[str, tuple[str, str]] = {
    "cn-": ("aws-cn", "amazonaws.com.cn"),
    "eu-isoe-": ("aws-iso-e", "cloud.adc-e.uk"),
    "eusc-": ("aws-eusc", "amazonaws.eu"),
    "us-gov-": ("aws-us-gov", "amazonaws.com"),
    "us-iso-": ("aws-iso", "c2s.ic.gov"),
    "us-isob-": ("aws-iso-b", "sc2s.sgov.gov"),
    "us-isof-": ("aws-iso-f", "csp.hci.ic.gov"),
    "": ("aws", "amazonaws.com"),
}
"""AWS's partitions, by how the names of their regions begin, and what the addresses of their services end in."""


def partition_of(region: str) -> tuple[str, str]:
    """The partition that a region is in, and what the addresses of its services end in."""
    return next(found for start, found in PARTITIONS.items() if region.startswith(start))


@dataclass(frozen=True)
class Account:
    """Where resources are made: an AWS account number and a region, and what was found there.

    `role` is the ARN of an existing execution role, None if one has to be made, and `role_source` says where it was
    found; `digests` gives `repository@sha256:…` for each image URI that a registry knew; `jumpstart` has the hub's
    entries of the JumpStart models in question, by id; `bucket` is a bucket of the user's that replaces the toolkit's;
    `is_far` is whether data from this machine goes there over the internet. A platform without accounts has a `scope`
    instead, such as a cluster's `context/namespace`, and no region.
    """

    id: str
    region: str
    role: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    jumpstart: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    scope: str = ""
    role_source: str = ""
    bucket: str = ""
    is_far: bool = False

    @property
    def location(self) -> str:
        """Where the platform is opened again to apply a saved plan: the region, or the scope."""
        return self.scope or self.region

    @property
    def partition(self) -> str:
        """The AWS partition, the part after `arn:`."""
        return partition_of(self.region)[0]

    @property
    def domain(self) -> str:
        """What the addresses of AWS's services end in."""
        return partition_of(self.region)[1]

    @property
    def registry(self) -> str:
        """The account's own ECR registry."""
        return f"{self.id}.dkr.ecr.{self.region}.{self.domain}"


@dataclass(frozen=True)
class Resource:
    """A resource that shall exist. `request` is what its kind makes it from, JSON all through.

    `Weights` has no single API call: its request lists bucket, prefix and where its files come from. They are shared by
    content; a `WeightsReference` is the object in S3 that says that one endpoint uses them. `Artifacts` are made by a
    `TrainingJob` alone: their request says where they are and what they depend on. `update` is the request that brings
    an existing resource to this state, where that is another call than making it. `expected_seconds` is how long
    making it is thought to take, where the plan cannot know that by itself.
    """

    kind: str
    name: str
    request: Mapping[str, Any]
    update: Mapping[str, Any] = field(default_factory=dict)
    expected_seconds: int = 0


@dataclass(frozen=True)
class Existing:
    """A resource that exists. `endpoints` use it, as our tags and marks say; `ours` is False for what others made."""

    kind: str
    name: str
    ours: bool
    endpoints: tuple[str, ...]
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Observed:
    """What the platform holds now of the resources in question; `unseen` tells what we may not look at."""

    existing: tuple[Existing, ...] = ()
    unseen: tuple[str, ...] = ()

    def get(self, kind: str, name: str) -> Existing | None:
        """The resource of that kind and name, if it exists."""
        return next((item for item in self.existing if (item.kind, item.name) == (kind, name)), None)

    def fingerprint(self) -> str:
        """A digest that changes when any of the observed resources does."""
        return digest(sorted((item.kind, item.name, item.ours, item.endpoints, item.state) for item in self.existing))


class Observer(Protocol):
    """The reading side of a platform."""

    def account(self, recipe: Recipe | None = None) -> Account:
        """Account and region that resources are made in; for a recipe also its role, images and JumpStart models.

        Raises UsageError when there is no execution role and the recipe does not ask for one to be made.
        """

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        """Which of `desired` exist, and everything else that carries our tag for one of `endpoints`."""
