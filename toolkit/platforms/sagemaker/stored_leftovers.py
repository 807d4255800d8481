"""What lies in the toolkit's bucket, by what it is for; unfinished uploads too. One list of all objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.errors import PlatformError
from toolkit.planning.names import ARTIFACTS_PREFIX
from toolkit.planning.retention import Leftover
from toolkit.platforms.sagemaker.aws_errors import has_code, unless
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.in_use import InUse, time_of
from toolkit.platforms.sagemaker.objects import BucketLease
from toolkit.platforms.sagemaker.rules.names import (
    CAPTURE_PREFIX,
    LEASES_PREFIX,
    STAGED_PREFIX,
    STAGING_JOBS_PREFIX,
    TRAINING_PREFIX,
    USES_PREFIX,
    WEIGHTS_PREFIX,
)
from toolkit.platforms.sagemaker.staging import delete_prefix
from toolkit.platforms.sagemaker.stored import object_sizes

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

_PARTS = {  # how many parts of a key name what belongs together
    WEIGHTS_PREFIX: 2,
    USES_PREFIX: 3,
    STAGED_PREFIX: 2,
    LEASES_PREFIX: 2,
    CAPTURE_PREFIX: 2,
    TRAINING_PREFIX: 3,
    ARTIFACTS_PREFIX: 2,
    IMAGE_PROJECT.sources: 2,
    STAGING_JOBS_PREFIX: 2,
}


@dataclass
class _Group:
    """Objects that belong together: their bytes, and when the newest was written."""

    size: int = 0
    newest: datetime = field(default_factory=lambda: datetime.fromtimestamp(0, UTC))


@dataclass(frozen=True)
class Bucket:
    """The toolkit's bucket of one account and region."""

    clients: Clients
    name: str
    in_use: InUse

    def find(self) -> Iterator[Leftover]:
        """All that is in it; nothing if there is no such bucket."""
        listed = unless(self.clients, self._groups, has_code("NoSuchBucket", "404"))
        if listed is None:
            return
        groups, now = listed
        age = {name: max((now - group.newest).total_seconds(), 0.0) for name, group in groups.items()}
        yield from self._weights(groups, age)
        for name, group in groups.items():
            kind, needed = self._kind(name)
            if kind:
                yield Leftover(kind, f"s3://{self.name}/{name}", age[name], group.size, needed, {"Prefix": name})
        yield from self._uploads(now)

    def remove(self, item: Leftover) -> None:
        """Raises PlatformError where somebody uses it meanwhile."""
        if item.kind == "unfinished upload":
            self.clients.s3.abort_multipart_upload(Bucket=self.name, **item.handle)
        elif item.kind == "lease":
            self._remove_lease(item.handle["Prefix"].removeprefix(LEASES_PREFIX))
        elif item.kind == "weights":
            self._remove_weights(item)
        elif item.kind == "mark of use":
            self._must_be_idle([item.handle["Prefix"].rpartition("/")[2]])
            self.clients.s3.delete_object(Bucket=self.name, Key=item.handle["Prefix"])
        else:
            delete_prefix(self.clients, self.name, item.handle["Prefix"])

    def _groups(self) -> tuple[dict[str, _Group], datetime]:
        """The objects by what belongs together, and what time it is by S3's own clock."""
        groups: dict[str, _Group] = defaultdict(_Group)
        now = datetime.now(UTC)
        for page in self.clients.s3.get_paginator("list_objects_v2").paginate(Bucket=self.name):
            now = time_of(page)
            for item in page.get("Contents", []):
                group = groups[_group_of(item["Key"])]
                group.size += item["Size"]
                group.newest = max(group.newest, item["LastModified"])
        return groups, now

    def _kind(self, name: str) -> tuple[str, str]:
        """What a group other than weights is, and what needs it; no kind for what is not known."""
        prefix, _, rest = name.partition("/")
        owner = rest.partition("/")[0]
        if f"{prefix}/" == LEASES_PREFIX:
            return "lease", f"{owner} is being changed" if owner in self.in_use.changing else ""
        if f"{prefix}/" == CAPTURE_PREFIX:
            return "captured requests", self.in_use.who(owner)
        if f"{prefix}/" == TRAINING_PREFIX:
            return "training output", self.in_use.reader(self.name, name) or self._trains(owner)
        if f"{prefix}/" == ARTIFACTS_PREFIX:
            return "compiled code", self.in_use.reader(self.name, name)
        if f"{prefix}/" == STAGING_JOBS_PREFIX:
            return "staging job", ""
        return ("build context", "") if f"{prefix}/" == IMAGE_PROJECT.sources else ("", "")

    def _trains(self, recipe: str) -> str:
        return f"a job of {recipe} runs" if any(job.startswith(recipe) for job in self.in_use.jobs) else ""

    def _weights(self, groups: dict[str, _Group], age: dict[str, float]) -> Iterator[Leftover]:
        """Weights with their marks. A mark of an endpoint that has gone is told of where others still use them."""
        users: dict[str, list[str]] = defaultdict(list)
        for name in groups:
            if name.startswith(USES_PREFIX):
                weights, _, user = name.removeprefix(USES_PREFIX).partition("/")
                users[weights].append(user)
        every = {n.removeprefix(WEIGHTS_PREFIX).rstrip("/") for n in groups if n.startswith(WEIGHTS_PREFIX)}
        for weights in sorted(every | users.keys()):
            alive = [user for user in users[weights] if self.in_use.who(user)]
            parts = [f"{WEIGHTS_PREFIX}{weights}/", f"{STAGED_PREFIX}{weights}"]
            parts += [f"{USES_PREFIX}{weights}/{user}" for user in users[weights]]
            there = [part for part in parts if part in groups]
            needed = f"used by {', '.join(sorted(alive))}" if alive else self.in_use.reader(self.name, parts[0])
            yield Leftover(
                "weights",
                f"s3://{self.name}/{parts[0]}",
                min(age[part] for part in there),
                sum(groups[part].size for part in there),
                needed,
                {"Weights": weights, "Users": users[weights]},
            )
            for user in users[weights] if needed else ():
                if user not in alive:
                    mark = f"{USES_PREFIX}{weights}/{user}"
                    yield Leftover("mark of use", f"s3://{self.name}/{mark}", age[mark], 0, "", {"Prefix": mark})

    def _remove_weights(self, item: Leftover) -> None:
        """As the last `toolkit destroy` would have: the marks last, so that one that is killed is carried on."""
        weights, users = item.handle["Weights"], item.handle["Users"]
        self._must_be_idle(users)
        marks = object_sizes(self.clients, self.name, f"{USES_PREFIX}{weights}/")
        new = {mark.rpartition("/")[2] for mark in marks} - set(users)
        if new:
            raise PlatformError(f"{item.name} is used by {', '.join(sorted(new))} since it was listed")
        delete_prefix(self.clients, self.name, f"{WEIGHTS_PREFIX}{weights}/")
        for key in (f"{STAGED_PREFIX}{weights}", *marks):
            self.clients.s3.delete_object(Bucket=self.name, Key=key)

    def _remove_lease(self, endpoint: str) -> None:
        """Only the very one that is over."""
        store = BucketLease(self.clients, self.name, endpoint)
        entry = store.read()
        if entry and (entry.holder is not None or not store.delete(entry.version)):
            raise PlatformError(f"{endpoint} is being changed by {entry.holder or 'somebody else'}")

    def _must_be_idle(self, endpoints: Iterable[str]) -> None:
        for name in endpoints:
            entry = BucketLease(self.clients, self.name, name).read()
            if entry and entry.holder is not None:
                raise PlatformError(f"{name} is being changed by {entry.holder}")

    def _uploads(self, now: datetime) -> Iterator[Leftover]:
        pages = self.clients.s3.get_paginator("list_multipart_uploads").paginate(Bucket=self.name)
        for upload in [upload for page in pages for upload in page.get("Uploads", []) if _is_ours(upload["Key"])]:
            where: Any = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
            name, age = f"s3://{self.name}/{upload['Key']}", max((now - upload["Initiated"]).total_seconds(), 0.0)
            changing = ", ".join(sorted(self.in_use.changing))
            needed = f"{changing} is being changed" if changing else ""
            yield Leftover("unfinished upload", name, age, self._size(where), needed, where)

    def _size(self, upload: Any) -> int:
        pages = self.clients.s3.get_paginator("list_parts").paginate(Bucket=self.name, **upload)
        found = unless(self.clients, partial(list[Any], pages), has_code("NoSuchUpload")) or ()
        sizes: list[int] = [part["Size"] for page in found for part in page.get("Parts", [])]
        return sum(sizes)


def _is_ours(key: str) -> bool:
    """Whether it lies where the toolkit writes: a bucket of the user's own may have other things in it."""
    return f"{key.partition('/')[0]}/" in _PARTS


def _group_of(key: str) -> str:
    """The first parts of a key; those of a folder end in a slash."""
    prefix = f"{key.partition('/')[0]}/"
    parts = key.split("/")
    count = _PARTS.get(prefix, 1)
    return "/".join(parts[:count]) + ("/" if len(parts) > count else "")
