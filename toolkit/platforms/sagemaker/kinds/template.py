"""The form of a kind of resource in a CloudFormation template.

Properties have the names of the API's requests, unless a kind says otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from toolkit.planning.resources import Resource


class TemplateRule:
    """The default: not a resource of templates.

    Class attributes:
        resource_type: CloudFormation's type; empty if it has none.
        lacking: request fields that CloudFormation's resource lacks, or `field=value` if it only lacks that value.
        references: fields in which other resources name it, with the attribute to use (None: Ref).
    """

    resource_type: str = ""
    lacking: frozenset[str] = frozenset()
    references: ClassVar[Mapping[str, str | None]] = {}

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        """The resource's properties, from the request without the fields that CloudFormation lacks."""
        return dict(request)

    def attributes(self, item: Resource) -> dict[str, Any]:
        """Attributes beside the properties, such as Condition."""
        return {}

    def sections(self, item: Resource) -> dict[str, Any]:
        """Sections that it adds to the template: parameters, conditions."""
        return {}

    def companions(self, item: Resource, logical_id: str) -> dict[str, Any]:
        """Further resources that belong to it, by logical id."""
        return {}

    def depends_on(self, item: Resource) -> Iterable[tuple[str, str]]:
        """Kind and name of resources that must exist first and that no property refers to."""
        return ()

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        """What must exist before the stack is created, with the command that creates it."""
        return iter(())

    def outputs(self, item: Resource, logical_id: str) -> dict[str, Any]:
        """Outputs of the stack."""
        return {}

    def named(self, reference: str) -> str:
        """The name of the resource that a field refers to."""
        return reference

    def loss(self, field: str, lost: Any) -> str:
        """The effect of a request field that the stack lacks, as a sentence."""
        return "the stack differs from what `toolkit deploy` creates"

    def fails_without(self, field: str) -> bool:
        """Whether the stack cannot work without that field of the request."""
        return False


def key_values(values: Mapping[str, str]) -> list[dict[str, str]]:
    """A mapping as a list of Key and Value."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def capitalized(request: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with a capital first letter, as in CloudFormation; CloudWatch Logs uses lower case."""
    return {key[0].upper() + key[1:]: value for key, value in request.items()}


def put_object(bucket: str, key: str) -> str:
    """The command that creates an empty object."""
    return shlex.join(["aws", "s3api", "put-object", "--bucket", bucket, "--key", key])
