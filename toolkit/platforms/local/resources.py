"""What SageMaker only stores and gives back: models, endpoint configurations, tags, and lists of them, by pages."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolkit import documents
from toolkit.platforms.local.aws import Region, ServiceError, now
from toolkit.platforms.local.host import Answer, Request

_PAGE = 10  # SageMaker's, where MaxResults is not given
_MOST_TAGS = 50
_TAGS_PAGE = 20  # fewer than ListTags may give, so that a client which reads one page only is found out


class Resources:
    """All resources of one kind. `prefix` stands in its request keys, `kind` in its ARNs, `words` in messages."""

    def __init__(self, region: Region, tags: Tags, prefix: str, kind: str, words: str) -> None:
        self._region, self._tags = region, tags
        self._prefix, self._kind, self._words = prefix, kind, words
        self._described: dict[str, Answer] = {}

    def must_be_new(self, request: Request) -> None:
        name = self._name(request)
        if name in self._described:
            raise ServiceError(f'Cannot create already existing {self._words} "{self._arn(name)}".')

    def add(self, request: Request) -> Answer:
        """Keep what was asked for, and its tags; gives its ARN."""
        name = self._name(request)
        kept = {key: value for key, value in request.items() if key != "Tags"}
        its_arn = self._arn(name)
        self._described[name] = {**kept, f"{self._prefix}Arn": its_arn, "CreationTime": now()}
        self._tags.new(its_arn, request)
        return {f"{self._prefix}Arn": its_arn}

    def describe(self, request: Request) -> Answer:
        name = self._name(request)
        if name not in self._described:
            raise ServiceError(f'Could not find {self._words} "{self._arn(name)}".')
        return self._described[name]

    def delete(self, request: Request) -> Answer:
        name = self._name(self.describe(request))
        del self._described[name]
        self._tags.forget(self._arn(name))
        return {}

    def list(self, request: Request) -> Answer:
        keys = (f"{self._prefix}Name", f"{self._prefix}Arn", "CreationTime")
        summaries = [{key: described[key] for key in keys} for described in list(self._described.values())]
        return page(self._prefix, summaries, request)

    def _arn(self, name: str) -> str:
        return self._region.arn(self._kind, name)

    def _name(self, request: Request) -> str:
        name: str = request[f"{self._prefix}Name"]
        return name


class Tags:
    def __init__(self) -> None:
        self._by_arn: dict[str, dict[str, str]] = {}

    def new(self, resource: str, request: Request) -> None:
        """Begin to keep tags for a resource, with those that it is created with."""
        self._by_arn[resource] = _by_key(request.get("Tags", []))

    def forget(self, resource: str) -> None:
        self._by_arn.pop(resource, None)

    def add(self, request: Request) -> Answer:
        """Set tags; those of the same key are replaced."""
        tags = self._find(request)
        merged = tags | _by_key(request["Tags"])
        if len(merged) > _MOST_TAGS:
            raise ServiceError(f"A resource can have {_MOST_TAGS} tags, this one would have {len(merged)}.")
        tags.update(merged)
        return {"Tags": _pairs(tags)}

    def list(self, request: Request) -> Answer:
        """A page of a resource's tags. The token is the key of the last one."""
        tags = dict(sorted(self._find(request).items()))
        if "NextToken" in request:
            (last,) = read_token(request["NextToken"], 1)
            tags = {key: value for key, value in tags.items() if key > last}
        answer: Answer = {"Tags": _pairs(tags)[:_TAGS_PAGE]}
        if len(tags) > _TAGS_PAGE:
            answer["NextToken"] = token_of(answer["Tags"][-1]["Key"])
        return answer

    def delete(self, request: Request) -> Answer:
        tags = self._find(request)
        for key in request["TagKeys"]:
            tags.pop(key, None)
        return {}

    def all(self) -> dict[str, dict[str, str]]:
        return {arn: dict(tags) for arn, tags in list(self._by_arn.items())}

    def _find(self, request: Request) -> dict[str, str]:
        resource = request["ResourceArn"]
        if resource not in self._by_arn:
            raise ServiceError(f'Could not find resource "{resource}".')
        return self._by_arn[resource]


def must_be_allowed(tags: Iterable[Mapping[str, str]]) -> None:
    """Raise ServiceError for tags that only AWS may set, and for keys that stand there twice."""
    keys = [tag["Key"] for tag in tags]
    if reserved := [key for key in keys if key.lower().startswith("aws:")]:
        raise ServiceError(f"The prefix aws: of tag keys is reserved for AWS: {', '.join(reserved)}.")
    if len(set(keys)) < len(keys):
        raise ServiceError("Tag keys must be unique per resource.")


def page(prefix: str, summaries: Iterable[Answer], request: Request) -> Answer:
    """The items that the request's filters let through, in its order, from its NextToken on.

    The token names the last item of the page before, so that deleting while listing skips nothing.
    """
    name = f"{prefix}Name"
    sort_field = {"Name": name, "Status": f"{prefix}Status"}.get(request.get("SortBy", ""), "CreationTime")

    def position(item: Answer) -> tuple[Any, str]:
        return item[sort_field], item[name]

    descending = request.get("SortOrder", "Descending") == "Descending"
    items = sorted((item for item in summaries if _matches(item, prefix, request)), key=position, reverse=descending)
    if "NextToken" in request:
        last = read_token(request["NextToken"], 2)
        items = [item for item in items if (position(item) < last if descending else position(item) > last)]
    size = request.get("MaxResults", _PAGE)
    answer: Answer = {f"{prefix}s": items[:size]}
    if len(items) > size:
        answer["NextToken"] = token_of(*position(items[size - 1]))
    return answer


def _matches(item: Answer, prefix: str, request: Request) -> bool:
    def between(moment: str) -> bool:
        after, before = request.get(f"{moment}After", float("-inf")), request.get(f"{moment}Before", float("inf"))
        return bool(after <= item.get(moment, 0) <= before)

    return (
        request.get("NameContains", "") in item[f"{prefix}Name"]
        and request.get("StatusEquals") in (None, item.get(f"{prefix}Status"))
        and between("CreationTime")
        and between("LastModifiedTime")
    )


def _by_key(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}


def _pairs(tags: Mapping[str, str]) -> list[Answer]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def token_of(*position: Any) -> str:
    """A NextToken that names the last item of a page."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def read_token(token: str, length: int) -> tuple[Any, ...]:
    """What `token_of` was given. Raises ServiceError for a token from elsewhere."""
    try:
        position = documents.decode(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError) as exc:
        raise ServiceError("Invalid pagination token.") from exc
    if not isinstance(position, list) or len(position) != length:
        raise ServiceError("Invalid pagination token.")
    return tuple(position)
