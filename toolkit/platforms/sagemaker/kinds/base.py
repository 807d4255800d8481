"""The base class of kinds of AWS resources, with their operations.

None of it imports an SDK: boto3's clients are passed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from toolkit.planning.kinds import Decision, Kind
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.plan import Action, Changes
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import is_missing, is_unknown_operation, unless
from toolkit.platforms.sagemaker.rules.changes import described, selected

if TYPE_CHECKING:
    from toolkit.apply.progress import Progress
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment
    from toolkit.recipe.lock import OpenFiles

_T = TypeVar("_T")


def key_values(values: Mapping[str, str]) -> list[dict[str, str]]:
    """A mapping as a list of Key and Value."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def capitalized(request: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with a capital first letter, as in CloudFormation; CloudWatch Logs uses lower case."""
    return {key[0].upper() + key[1:]: value for key, value in request.items()}


@dataclass(frozen=True)
class Look:
    """Reads existing resources: those in `desired`, and those of `endpoints`. Everything is read only once.

    Empty `endpoints` means that they are new. Then only resources with `seen_when_new` are read. `image_exists` tells
    whether the image of a request was built, `base_bytes` the size of an image in its registry.
    """

    clients: Clients
    account: Account
    desired: Sequence[Resource]
    endpoints: Sequence[str]
    image_exists: Callable[[Mapping[str, Any]], bool]
    base_bytes: Callable[[str], int | None]
    _known: dict[tuple[Any, str], Any] = field(default_factory=dict, repr=False)

    def once(self, read: Callable[[Look, str], _T], name: str) -> _T:
        """The result of `read` for that name, read only once."""
        key = (read, name)
        if key not in self._known:
            self._known[key] = read(self, name)
        result: _T = self._known[key]
        return result

    def wanted(self, *kinds: str) -> list[Resource]:
        """The desired resources of those kinds."""
        return [item for item in self.desired if item.kind in kinds]

    @cached_property
    def names(self) -> Sequence[str]:
        """Names that may have resources: recipes, and endpoints that serve them as inference components."""
        hosts = {item.name for item in self.wanted("Endpoint")}
        if not self.endpoints:
            return sorted(hosts)
        components = [self.once(describe_component, name) for name in self.endpoints]
        hosts |= {component["EndpointName"] for component in components if component}
        return tuple(dict.fromkeys((*self.endpoints, *sorted(hosts))))

    def components(self, endpoint: str) -> tuple[str, ...]:
        """The inference components of the endpoint."""
        return self.once(_components, endpoint) if self.endpoints else ()


@dataclass(frozen=True)
class Work:
    """What creating resources needs.

    `build` builds and pushes the image of an Image request. `sending` lets one at a time send to a bucket's prefix.
    `stage_in_account` has a job send what a Weights request says.
    """

    clients: Clients
    progress: Progress
    open_files: OpenFiles
    build: Callable[[Mapping[str, Any], Progress], None]
    sending: Callable[[str, str], AbstractContextManager[None]]
    stage_in_account: Callable[[Mapping[str, Any], Progress], None]


@dataclass(frozen=True)
class ApiCall:
    """A call of AWS's API; `service` is boto3's name."""

    service: str
    operation: str
    request: Mapping[str, Any]

    def send(self, clients: Clients) -> Any:
        """Make the call."""
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", self.operation).lower()
        return getattr(getattr(clients, self.service.replace("-", "_")), method)(**self.request)


class AwsKind(Kind):
    """A kind of AWS resource. The methods here are the defaults; by default it has no form in CloudFormation.

    `on_aws`: it is AWS's, and not a stand-in's on this machine. In a template, properties are named as in requests.

    Class attributes:
        goes_on_pause: `toolkit pause` removes it: it costs while it is there, or belongs to an endpoint's variant.
        seen_when_new: existing ones are read even if the endpoint is new, because creating one would repeat work or
            overwrite somebody else's.
        resource_type: CloudFormation's type; empty if it has none.
        lacking: request fields that CloudFormation's resource lacks, or `field=value` if it only lacks that value.
        references: fields in which other resources name it, with the attribute to use (None: Ref).
        creates: boto3's service and the operation that creates it with the request; what takes more overrides
            `creating`.
        updates: the same of what changes an existing one; None: creating it again does that.
    """

    goes_on_pause: bool = False
    seen_when_new: bool = False
    resource_type: str = ""
    lacking: frozenset[str] = frozenset()
    references: ClassVar[Mapping[str, str | None]] = {}
    creates: tuple[str, str] | None = None
    updates: tuple[str, str] | None = None

    def __init__(self, *, on_aws: bool) -> None:
        self.on_aws = on_aws

    def desired(self, deployment: Deployment) -> Iterable[Resource]:
        """The resources of this kind that the recipe needs."""
        return ()

    def observe(self, look: Look) -> Iterator[Existing]:
        """The existing resources of this kind. Read-only."""
        if not (look.endpoints or look.wanted(self.kind)):
            return
        for name in look.names:
            users = look.components(name)
            for item in self.observe_endpoint(look, name):
                yield replace(item, endpoints=users) if users and item.ours else item

    def observe_endpoint(self, look: Look, name: str) -> Iterable[Existing]:
        """The existing resources of one endpoint or inference component."""
        return ()

    def creating(self, request: Any) -> tuple[ApiCall, ...]:
        """The calls that create it."""
        return (ApiCall(*self.creates, request),) if self.creates else ()

    def updating(self, request: Any, existing: Existing | None) -> tuple[ApiCall, ...]:
        """The calls that change an existing one to the request."""
        return (ApiCall(*self.updates, request),) if self.updates else self.creating(request)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        """The calls that delete it."""
        return ()

    def calls(self, action: Action, existing: Existing | None) -> tuple[Mapping[str, Any], ...]:
        verb, request = action.verb, action.request
        removed = self.deleting(action.name, request) if verb in ("delete", "replace") else ()
        made = self.creating(request) if verb in ("create", "replace") else ()
        changed = self.updating(request, existing) if verb == "update" else ()
        return tuple(asdict(each) for each in (*removed, *made, *changed))

    def create(self, work: Work, request: Any) -> None:
        for each in self.creating(request):
            each.send(work.clients)

    def update(self, work: Work, request: Any) -> None:
        """Change an existing one to the request."""
        if self.updates:
            ApiCall(*self.updates, request).send(work.clients)
        else:
            self.create(work, request)

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        for each in self.deleting(name, request):
            each.send(clients)

    def tags(self, clients: Clients, name: str) -> Mapping[str, str]:
        """The tags of an existing one; empty for a kind without tags."""
        return {}

    def runs(self, clients: Clients, request: Mapping[str, Any]) -> str:
        """What an existing one runs, if that differs from the request; else empty."""
        return ""

    def is_going(self, clients: Clients, name: str) -> bool:
        """Whether it is being deleted, by an earlier call whose answer was lost: SageMaker refuses a second call."""
        return False

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


class SageMakerKind(AwsKind):
    """A kind of SageMaker's own: CreateModel, DescribeModel and DeleteModel take its `ModelName`.

    `call` is its name in boto3's methods, such as `model`.
    """

    call: str = ""

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {f"{self.kind}Name": existing.name}

    def creating(self, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("sagemaker", f"Create{self.kind}", request),)

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("sagemaker", f"Delete{self.kind}", {f"{self.kind}Name": name}),)

    def tags(self, clients: Clients, name: str) -> Mapping[str, str]:
        return sagemaker_tags(clients, self.describe(clients, name)[f"{self.kind}Arn"])

    def describe(self, clients: Clients, name: str) -> Any:
        """SageMaker's description of an existing one."""
        return getattr(clients.sagemaker, f"describe_{self.call}")(**{f"{self.kind}Name": name})


def tagged(kind: str, name: str, owner: str | None, state: Mapping[str, Any]) -> Existing:
    """An existing resource of the endpoint `owner`, or of somebody else if None."""
    return Existing(kind, name, owner is not None, (owner or "",), state)


def describe_component(look: Look, name: str) -> Mapping[str, Any] | None:
    """The inference component of that name, if it exists."""
    ask = partial(look.clients.sagemaker.describe_inference_component, InferenceComponentName=name)
    return unless(look.clients, ask, is_missing, is_unknown_operation)


def sagemaker_tags(clients: Clients, arn: str) -> dict[str, str]:
    """All tags of a SageMaker resource."""
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    return by_key([tag for page in pages for tag in page["Tags"]])


def owner_of(clients: Clients, arn: str) -> str | None:
    """The endpoint in a SageMaker resource's tag."""
    return sagemaker_tags(clients, arn).get(ENDPOINT_TAG)


def by_key(tags: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Tags as a mapping, from the lists of keys and values of most AWS services."""
    return {tag["Key"]: tag["Value"] for tag in tags}


def _components(look: Look, endpoint: str) -> tuple[str, ...]:
    pages = look.clients.sagemaker.get_paginator("list_inference_components").paginate(EndpointNameEquals=endpoint)
    names = (item["InferenceComponentName"] for page in pages for item in page["InferenceComponents"])
    return unless(look.clients, lambda: tuple(names), is_unknown_operation) or ()


class ContentKind(AwsKind):
    """A kind with a fixed name. `content_keys` are the keys of requests and descriptions to compare.

    Creating one overwrites an existing one of the same name, which is also how it is updated.
    """

    seen_when_new = True
    content_keys: tuple[str, ...] = ()

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return super().decide(resource, existing, observed)
        return Decision("update", "has changed") if self.differs(resource, existing) else Decision("reuse", "exists")

    def differs(self, resource: Resource, existing: Existing) -> bool:
        """Whether the existing resource differs from the request.

        Tags are ignored, and keys that the request does not have.
        """
        return not _holds(existing.state["Content"], self.content(resource.request))

    def changes(
        self, resource: Resource, existing: Existing, desired: Sequence[Resource], observed: Observed
    ) -> Changes:
        held = existing.state.get("Content")
        if held is None:
            return Changes()
        content = self.content(resource.request)
        wanted = {key: value for key, value in content.items() if value or key in held}  # AWS leaves empty ones out
        return described(selected(held, tuple(wanted)), wanted)

    def content(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a request or a description to compare."""
        return {key: value for key, value in request.items() if key in self.content_keys}

    def described(self, name: str, owner: str | None, description: Mapping[str, Any]) -> Existing:
        """An existing resource from AWS's description; `owner` is None for somebody else's."""
        return tagged(self.kind, name, owner, {"Content": self.content(description)})


def _holds(held: Any, wanted: Any) -> bool:
    """Whether `held` has everything in `wanted`; it may have more keys. The order of lists does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(held, Mapping) and all(_holds(held.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        items = held or []
        return len(items) == len(wanted) and all(any(_holds(item, value) for item in items) for value in wanted)
    return bool(held == wanted)
