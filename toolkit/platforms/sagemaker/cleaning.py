"""What the toolkit keeps in an account and region, held against what is in use, and its removal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from toolkit.errors import PlatformError
from toolkit.images.publish import STAGED
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Account
from toolkit.planning.retention import Found, Leftover
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.in_use import InUse
from toolkit.platforms.sagemaker.kinds.base import by_key
from toolkit.platforms.sagemaker.kinds.image import repository_name
from toolkit.platforms.sagemaker.rules.metrics import log_groups
from toolkit.platforms.sagemaker.rules.names import bucket_name, role_name
from toolkit.platforms.sagemaker.stored_leftovers import Bucket

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

_MILLISECONDS = 1000


@dataclass(frozen=True)
class AwsCleaner:
    """A Cleaner of one account and region. `clock` is in seconds since 1970."""

    clients: Clients
    clock: Callable[[], float] = time.time

    @cached_property
    def _in_use(self) -> InUse:
        return InUse(self.clients, bucket_name(self._account))

    @cached_property
    def _account(self) -> Account:
        return self.clients.account

    @cached_property
    def _bucket(self) -> Bucket:
        return Bucket(self.clients, bucket_name(self._account), self._in_use)

    def find(self) -> Found:
        """Each service by itself: one that refuses hides no other."""
        with aws_errors("looking what is in use"):
            _ = self._in_use.changing, self._in_use.names, self._in_use.model_names
        sections: Mapping[str, Callable[[], Iterable[Leftover]]] = {
            "objects in S3": self._bucket.find,
            "images in ECR": self._images,
            "log groups": self._log_groups,
            "roles": self._roles,
        }
        found = Found()
        for what, look in sections.items():
            try:
                with aws_errors(f"looking at {what}"):
                    found += Found(tuple(look()))
            except PlatformError as error:
                found += Found(unread=(error.message,))
        return found

    def remove(self, item: Leftover) -> None:
        with aws_errors(f"removing {item.kind} {item.name}"):
            if item.kind in ("image", "untagged image"):
                self._remove_image(item)
            elif item.kind == "repository":
                self.clients.ecr.delete_repository(**item.handle)
            elif item.kind == "log group":
                self.clients.logs.delete_log_group(**item.handle)
            elif item.kind == "role":
                self._remove_role(item.handle["RoleName"])
            else:
                self._bucket.remove(item)

    def _age(self, *times: datetime | None) -> float:
        """Since the latest of these."""
        return max(self.clock() - max(each.timestamp() for each in times if each), 0.0)

    def _images(self) -> Iterator[Leftover]:
        """Of the repositories that carry our tag; other repositories of a recipe are their owner's."""
        prefix = repository_name("")
        for page in self.clients.ecr.get_paginator("describe_repositories").paginate():
            for repository in page["repositories"]:
                if not repository["repositoryName"].startswith(prefix):
                    continue
                arn = repository["repositoryArn"]
                tags = by_key(self.clients.ecr.list_tags_for_resource(resourceArn=arn)["tags"])
                if ENDPOINT_TAG in tags:
                    yield from self._images_of(repository, tags[ENDPOINT_TAG])

    def _images_of(self, repository: Any, owner: str) -> Iterator[Leftover]:
        name, is_empty = repository["repositoryName"], True
        for page in self.clients.ecr.get_paginator("describe_images").paginate(repositoryName=name):
            for image in page["imageDetails"]:
                is_empty = False
                tags, digest = image.get("imageTags", []), image["imageDigest"]
                addresses = {
                    f"{repository['repositoryUri']}@{digest}",
                    *(f"{repository['repositoryUri']}:{t}" for t in tags),
                }
                is_used = any(
                    address.partition("@")[0] in addresses or address in addresses for address in self._in_use.images
                )
                yield Leftover(
                    "image" if any(STAGED not in tag for tag in tags) else "untagged image",
                    f"{name}:{tags[0]}" if tags else f"{name}@{digest}",
                    self._age(image["imagePushedAt"], image.get("lastRecordedPullTime")),
                    image.get("imageSizeInBytes"),
                    "a model runs it" if is_used else "",
                    {"repositoryName": name, "imageIds": [{"imageDigest": digest}]},
                )
        if is_empty:
            age, needed = self._age(repository["createdAt"]), self._in_use.who(owner)
            yield Leftover("repository", name, age, 0, needed, {"repositoryName": name})

    def _remove_image(self, item: Leftover) -> None:
        answer = self.clients.ecr.batch_delete_image(**item.handle)
        for failure in answer.get("failures", []):
            if failure.get("failureCode") != "ImageNotFound":
                why = failure.get("failureReason", failure.get("failureCode"))
                raise PlatformError(f"{item.name} stays: {why}", hint="Remove in ECR what refers to it first.")

    def _log_groups(self) -> Iterator[Leftover]:
        """Of endpoints that have gone: those of others cannot be told from ours without a call for each."""
        for prefix in log_groups(""):
            for page in self.clients.logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix):
                for group in page["logGroups"]:
                    name = group["logGroupName"]
                    owner = name.removeprefix(prefix)
                    if owner in self._in_use.names:
                        continue
                    arn = group["arn"].removesuffix(":*")
                    tags = self.clients.logs.list_tags_for_resource(resourceArn=arn)["tags"]
                    if tags.get(ENDPOINT_TAG) == owner:
                        written = self._last_line(name) or group["creationTime"]
                        age = max(self.clock() - written / _MILLISECONDS, 0.0)
                        needed = self._in_use.who(owner)
                        yield Leftover("log group", name, age, group.get("storedBytes"), needed, {"logGroupName": name})

    def _last_line(self, group: str) -> int | None:
        ask = partial(
            self.clients.logs.describe_log_streams,
            logGroupName=group,
            orderBy="LastEventTime",
            descending=True,
            limit=1,
        )
        streams = (unless_missing(self.clients, ask) or {"logStreams": []})["logStreams"]
        return streams[0].get("lastEventTimestamp") if streams else None

    def _roles(self) -> Iterator[Leftover]:
        beginning, end = role_name("", self._account).removesuffix(f"-{self._account.region}"), self._account.region
        for page in self.clients.iam.get_paginator("list_roles").paginate():
            for role in page["Roles"]:
                name = role["RoleName"]
                if not (name.startswith(beginning) and name.endswith(f"-{end}")):
                    continue
                owner = by_key(self.clients.iam.list_role_tags(RoleName=name)["Tags"]).get(ENDPOINT_TAG)
                if owner is not None:
                    needed = self._in_use.who(owner) or self._runs_as(name)
                    last = self.clients.iam.get_role(RoleName=name)["Role"].get("RoleLastUsed", {}).get("LastUsedDate")
                    yield Leftover("role", name, self._age(role["CreateDate"], last), 0, needed, {"RoleName": name})

    def _runs_as(self, role: str) -> str:
        return "a model or a job runs as it" if role in self._in_use.roles else ""

    def _remove_role(self, name: str) -> None:
        """With its own policies, which are all that the toolkit gave it."""
        pages = self.clients.iam.get_paginator("list_role_policies").paginate(RoleName=name)
        for policy in [policy for page in pages for policy in page["PolicyNames"]]:
            self.clients.iam.delete_role_policy(RoleName=name, PolicyName=policy)
        self.clients.iam.delete_role(RoleName=name)
