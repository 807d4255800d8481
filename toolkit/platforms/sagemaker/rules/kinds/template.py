"""What a kind of resource is in a CloudFormation template.

Properties are named as in the API's requests, but where a kind says otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from toolkit.planning.resources import Resource


class TemplateRule:
    """The default: no resource of a template.

    Class attributes:
        resource_type: CloudFormation's name of it, empty where it has none.
        lacking: fields of requests that CloudFormation's resource lacks, or `field=value` where it lacks but a value.
        references: fields in which others name it, with the attribute that gives that name (None: Ref).
    """

    resource_type: str = ""
    lacking: frozenset[str] = frozenset()
    references: ClassVar[Mapping[str, str | None]] = {}

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        """The properties of the resource; `request` is without what CloudFormation lacks."""
        return dict(request)

    def attributes(self, item: Resource) -> dict[str, Any]:
        """What stands beside the properties."""
        return {}

    def sections(self, item: Resource) -> dict[str, Any]:
        """What it adds to the template's head: parameters, conditions."""
        return {}

    def companions(self, item: Resource, logical_id: str) -> dict[str, Any]:
        """Resources that belong to it, by logical id."""
        return {}

    def depends_on(self, item: Resource) -> Iterable[tuple[str, str]]:
        """Kind and name of what has to exist first and stands in no property, or only as part of a text."""
        return ()

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        """What has to be made before the stack, and the command that does it."""
        return iter(())

    def outputs(self, item: Resource, logical_id: str) -> dict[str, Any]:
        """What the stack answers with."""
        return {}

    def named(self, reference: str) -> str:
        """The name of the resource that a field refers to."""
        return reference

    def loss(self, field: str, lost: Any) -> str:
        """What the stack lacks without a field of the request."""
        return "the stack differs from what `toolkit deploy` makes"

    def require_template(self, item: Resource) -> None:
        """Raise UsageError where no stack can do without it."""


def key_values(values: Mapping[str, str]) -> list[dict[str, str]]:
    """A mapping as CloudFormation lists it."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def capitalized(request: Mapping[str, Any]) -> dict[str, Any]:
    """CloudWatch Logs begins its names with a small letter, CloudFormation none."""
    return {key[0].upper() + key[1:]: value for key, value in request.items()}


def put_object(bucket: str, key: str) -> str:
    """The command that puts an empty object."""
    return shlex.join(["aws", "s3api", "put-object", "--bucket", bucket, "--key", key])
