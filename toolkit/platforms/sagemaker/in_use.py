"""What an account's endpoints, models and jobs need of what is stored: nothing of it may be cleaned away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from toolkit.planning.names import without_digest
from toolkit.platforms.sagemaker.aws_errors import is_unknown_operation, unless, unless_missing
from toolkit.platforms.sagemaker.kinds.model_package import group_versions
from toolkit.platforms.sagemaker.listing import DETAILED_SECONDS, Pace
from toolkit.platforms.sagemaker.objects import BucketLease
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX, USES_PREFIX, registered_group

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import PaginatorConfigTypeDef

    from toolkit.platforms.sagemaker.clients import Clients

_THREADS = 8
_PAGES: PaginatorConfigTypeDef = {"PageSize": 100}


@dataclass(frozen=True)
class InUse:
    """Read when it is first asked for, and then kept. Everybody's, not the toolkit's alone. Raises ClientError."""

    clients: Clients
    bucket: str

    @cached_property
    def changing(self) -> frozenset[str]:
        """The endpoints that a command changes just now: their leases are alive, by S3's own clock."""
        pages = self.clients.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=LEASES_PREFIX)
        listed = unless_missing(self.clients, lambda: [*pages]) or []
        return frozenset(
            item["Key"].removeprefix(LEASES_PREFIX)
            for page in listed
            for item in page.get("Contents", [])
            if (time_of(page) - item["LastModified"]).total_seconds() <= BucketLease.rules.seconds
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """Of endpoints and inference components, in whatever status."""
        sagemaker = self.clients.sagemaker
        pages = sagemaker.get_paginator("list_endpoints").paginate(PaginationConfig=_PAGES)
        found = {item["EndpointName"] for page in pages for item in page["Endpoints"]}
        components = sagemaker.get_paginator("list_inference_components").paginate(PaginationConfig=_PAGES)
        listed = unless(self.clients, lambda: [*components], is_unknown_operation) or []
        return frozenset(
            found | {item["InferenceComponentName"] for page in listed for item in page["InferenceComponents"]}
        )

    @cached_property
    def model_names(self) -> tuple[str, ...]:
        """Of all models, also of those that a rollback would bring back."""
        pages = self.clients.sagemaker.get_paginator("list_models").paginate(PaginationConfig=_PAGES)
        return tuple(item["ModelName"] for page in pages for item in page["Models"])

    @cached_property
    def owners_of_models(self) -> frozenset[str]:
        """The endpoints that models are named after."""
        return frozenset(map(without_digest, self.model_names))

    @cached_property
    def models(self) -> tuple[Mapping[str, Any], ...]:
        """Descriptions of all models."""
        describe = self.clients.sagemaker.describe_model
        return self._described(lambda name: describe(ModelName=name), self.model_names)

    @cached_property
    def versions(self) -> tuple[Mapping[str, Any], ...]:
        """Descriptions of the versions in the model registry, of the groups that the toolkit has registered any in."""
        pages = self.clients.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=USES_PREFIX)
        listed = unless_missing(self.clients, lambda: [*pages]) or []
        users = {item["Key"].rpartition("/")[2] for page in listed for item in page.get("Contents", [])}
        groups = sorted(filter(None, map(registered_group, users)))
        arns = [item["ModelPackageArn"] for group in groups for item in group_versions(self.clients, group)]
        describe = self.clients.sagemaker.describe_model_package
        return self._described(lambda arn: describe(ModelPackageName=arn), arns)

    @cached_property
    def images(self) -> frozenset[str]:
        return frozenset(container["Image"] for container in self._containers() if "Image" in container)

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """In S3: what models read."""
        return tuple(address for container in self._containers() for address in _addresses(container))

    @cached_property
    def roles(self) -> frozenset[str]:
        """Names of the roles that models have, and the training jobs that run."""
        arns = [model.get("ExecutionRoleArn", "") for model in self.models]
        arns += [self.clients.sagemaker.describe_training_job(TrainingJobName=name)["RoleArn"] for name in self.jobs]
        return frozenset(arn.rpartition("/")[2] for arn in arns)

    @cached_property
    def jobs(self) -> tuple[str, ...]:
        """Training jobs that run."""
        pages = self.clients.sagemaker.get_paginator("list_training_jobs").paginate(StatusEquals="InProgress")
        return tuple(item["TrainingJobName"] for page in pages for item in page["TrainingJobSummaries"])

    def who(self, owner: str) -> str:
        """What there is of the endpoint `owner`, in words; empty if it has gone with all that `destroy` removes."""
        if owner in self.changing:
            return f"{owner} is being changed"
        if owner in self.names:
            return f"endpoint {owner} exists"
        if (group := registered_group(owner)) and any(item["ModelPackageGroupName"] == group for item in self.versions):
            return f"model package group {group} has versions"
        if owner in self.owners_of_models:
            return f"models of {owner} remain; remove all of it: toolkit destroy {owner}"
        return ""

    def reader(self, bucket: str, prefix: str) -> str:
        """Who reads what lies below a prefix, in words."""
        here = f"s3://{bucket}/{prefix}"
        read = any(address.startswith(here) or here.startswith(address) for address in self.addresses)
        return "a model reads it" if read else ""

    def _containers(self) -> Iterator[Mapping[str, Any]]:
        for model in self.models:
            yield from filter(None, (model.get("PrimaryContainer"), *model.get("Containers", ())))
        for version in self.versions:
            yield from version.get("InferenceSpecification", {}).get("Containers", ())

    def _described(self, describe: Callable[[str], Any], names: Iterable[str]) -> tuple[Mapping[str, Any], ...]:
        """What `describe` says of each name that is still there."""
        pace = Pace(DETAILED_SECONDS)

        def ask(name: str) -> Mapping[str, Any] | None:
            return unless_missing(self.clients, lambda: pace.call(partial(describe, name)))

        with ThreadPoolExecutor(_THREADS) as threads:
            return tuple(found for found in threads.map(ask, names) if found)


def time_of(answer: Mapping[str, Any]) -> datetime:
    """What time it was by AWS's clock when it answered; by ours where the answer has no date."""
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(said) if said else datetime.now(UTC)


def _addresses(container: Mapping[str, Any]) -> Iterator[str]:
    if address := container.get("ModelDataUrl"):
        yield address
    for source in (container.get("ModelDataSource"), *container.get("AdditionalModelDataSources", ())):
        if source:
            yield source["S3DataSource"]["S3Uri"]
    for value in container.get("Environment", {}).values():
        if value.startswith("s3://"):
            yield value
