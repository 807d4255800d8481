"""Time passes: everything that exists in moto becomes older."""

from __future__ import annotations

from datetime import timedelta

from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends

from toolkit.platforms.local.aws import ACCOUNT


def pass_days(days: float) -> None:
    """As if all objects, images, log groups and roles had been made so many days earlier."""
    back = timedelta(days=days)
    _objects(back)
    _roles(back)
    _logs(back)
    _images(back)


def _objects(back: timedelta) -> None:
    for s3 in s3_backends[ACCOUNT].values():
        for bucket in s3.buckets.values():
            for key in bucket.keys.values():
                key.last_modified -= back


def _roles(back: timedelta) -> None:
    for iam in iam_backends[ACCOUNT].values():
        for role in iam.roles.values():
            role.create_date -= back


def _logs(back: timedelta) -> None:
    for logs in logs_backends[ACCOUNT].values():
        for group in logs.groups.values():
            group.creation_time -= back
            for stream in group.streams.values():
                stream.creation_time -= back
                for event in stream.events:
                    event.timestamp -= int(back.total_seconds() * 1000)


def _images(back: timedelta) -> None:
    for ecr in ecr_backends[ACCOUNT].values():
        for repository in ecr.repositories.values():
            repository.created_at -= back
            for image in repository.images:
                image.image_pushed_at -= int(back.total_seconds())
