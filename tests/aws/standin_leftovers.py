"""All that exists in moto of the services that the product uses."""

from __future__ import annotations

from collections.abc import Iterator

from moto.cloudwatch.models import cloudwatch_backends
from moto.codebuild.models import codebuild_backends
from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends
from moto.secretsmanager.models import secretsmanager_backends

from toolkit.platforms.local.aws import ACCOUNT


def leftovers() -> Iterator[str]:
    """Each thing as "service kind name"."""
    for s3 in s3_backends[ACCOUNT].values():
        for bucket in s3.buckets.values():
            yield f"s3 bucket {bucket.name}"
            yield from (f"s3 object {bucket.name}/{key}" for key in dict(bucket.keys))
            yield from (f"s3 upload {bucket.name}/{upload.key_name}" for upload in bucket.multiparts.values())
    for iam in iam_backends[ACCOUNT].values():
        yield from (f"iam role {role.name}" for role in iam.roles.values())
        yield from (f"iam policy {policy.name}" for policy in iam.managed_policies.values() if _is_own(policy.arn))
    for logs in logs_backends[ACCOUNT].values():
        yield from (f"logs group {group}" for group in logs.groups)
        yield from (f"logs metric filter {item['filterName']}" for item in logs.filters.metric_filters)
    for cloudwatch in cloudwatch_backends[ACCOUNT].values():
        yield from (f"cloudwatch alarm {alarm}" for alarm in cloudwatch.alarms)
        yield from (f"cloudwatch dashboard {dashboard}" for dashboard in cloudwatch.dashboards)
    for ecr in ecr_backends[ACCOUNT].values():
        yield from (f"ecr repository {repository}" for repository in ecr.repositories)
    for codebuild in codebuild_backends[ACCOUNT].values():
        yield from (f"codebuild project {project}" for project in codebuild.codebuild_projects)
    for secrets in secretsmanager_backends[ACCOUNT].values():
        yield from (f"secretsmanager secret {secret}" for secret in secrets.secrets)


def _is_own(arn: str) -> bool:
    return f":{ACCOUNT}:" in arn
