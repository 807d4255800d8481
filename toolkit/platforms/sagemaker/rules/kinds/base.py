"""What a kind of AWS resource answers for: what is wanted, what exists, and how it is made, changed and removed.

None of it imports an SDK: boto3's clients are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Account, Existing, Resource
from toolkit.planning.rules import KindRule
from toolkit.platforms.sagemaker.rules.aws_errors import unless_missing
from toolkit.platforms.sagemaker.rules.kinds.template import TemplateRule

if TYPE_CHECKING:
    from toolkit.apply.progress import Progress
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.capabilities import Capabilities
    from toolkit.platforms.sagemaker.rules.deployment import Deployment
    from toolkit.recipe.lock import OpenFiles

_T = TypeVar("_T")


@dataclass(frozen=True)
class Look:
    """A look at what exists, of `desired` and for the recipes of `endpoints`. What is read once is not read again.

    Without `endpoints` they are new: then only what making would do again, or over another's, is looked for.
    `image_exists` tells whether the image of a request was built, `base_bytes` what an image takes in its registry.
    """

    clients: Clients
    account: Account
    desired: Sequence[Resource]
    endpoints: Sequence[str]
    image_exists: Callable[[Mapping[str, Any]], bool]
    base_bytes: Callable[[str], int | None]
    _known: dict[tuple[Any, str], Any] = field(default_factory=dict, repr=False)

    def once(self, read: Callable[[Look, str], _T], name: str) -> _T:
        """What `read` returns for that name."""
        key = (read, name)
        if key not in self._known:
            self._known[key] = read(self, name)
        found: _T = self._known[key]
        return found

    def wanted(self, *kinds: str) -> list[Resource]:
        """What is desired of those kinds."""
        return [item for item in self.desired if item.kind in kinds]

    @cached_property
    def names(self) -> Sequence[str]:
        """Of everything that may have resources: recipes, and endpoints that serve them as inference components."""
        hosts = {item.name for item in self.wanted("Endpoint")}
        if not self.endpoints:
            return sorted(hosts)
        components = [self.once(describe_component, name) for name in self.endpoints]
        hosts |= {component["EndpointName"] for component in components if component}
        return tuple(dict.fromkeys((*self.endpoints, *sorted(hosts))))

    def components(self, endpoint: str) -> tuple[str, ...]:
        """The inference components that live on the endpoint."""
        return self.once(_components, endpoint) if self.endpoints else ()


@dataclass(frozen=True)
class Work:
    """What it takes to make something. `build` builds what the request of an Image describes, and pushes it."""

    clients: Clients
    progress: Progress
    open_files: OpenFiles
    build: Callable[[Mapping[str, Any], Progress], None]


class AwsKind(TemplateRule, KindRule):
    """A kind of resource on AWS. What a kind does not say itself is what most kinds do.

    `seen_when_new`: it is looked for although its endpoint is new, as making it would do work again, or go over
    another's.
    """

    seen_when_new: bool = False

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities

    def desired(self, deployment: Deployment) -> Iterable[Resource]:
        """Those that serve the recipe."""
        return ()

    def observe(self, look: Look) -> Iterator[Existing]:
        """Those that exist. Reads only."""
        if not (look.endpoints or look.wanted(self.kind)):
            return
        for name in look.names:
            users = look.components(name)
            for item in self.observe_endpoint(look, name):
                yield replace(item, endpoints=users) if users and item.ours else item

    def observe_endpoint(self, look: Look, name: str) -> Iterable[Existing]:
        """Those of one endpoint or inference component."""
        return ()

    def create(self, work: Work, request: Any) -> None:
        """Make it."""
        raise NotImplementedError(self.kind)

    def update(self, work: Work, request: Any) -> None:
        """Bring one that exists to what the request says; for most kinds making it again does that."""
        self.create(work, request)

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        """Remove it."""
        raise NotImplementedError(self.kind)

    def tags(self, clients: Clients, name: str) -> Mapping[str, str]:
        """The tags of one that exists; empty for a kind that has none."""
        return {}

    def runs(self, clients: Clients, request: Mapping[str, Any]) -> str:
        """What one that exists runs in place of what the request says; empty where its name tells its content."""
        return ""

    def is_going(self, clients: Clients, name: str) -> bool:
        """Whether an earlier try, whose answer was lost, has begun to remove it: SageMaker refuses a second one."""
        return False


def tagged(kind: str, name: str, owner: str | None, state: Mapping[str, Any]) -> Existing:
    """One that belongs to the endpoint `owner`, None for somebody else's."""
    return Existing(kind, name, owner is not None, (owner or "",), state)


def describe_component(look: Look, name: str) -> Mapping[str, Any] | None:
    """The inference component of that name, None without one."""
    sagemaker = look.clients.sagemaker
    return unless_missing(look.clients, lambda: sagemaker.describe_inference_component(InferenceComponentName=name))


def sagemaker_tags(clients: Clients, arn: str) -> dict[str, str]:
    """All tags of a resource of SageMaker, every page of them."""
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    return by_key([tag for page in pages for tag in page["Tags"]])


def owner_of(clients: Clients, arn: str) -> str | None:
    """The endpoint that a resource of SageMaker is tagged for."""
    return sagemaker_tags(clients, arn).get(ENDPOINT_TAG)


def by_key(tags: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Tags as one mapping: most of AWS's services list keys and values."""
    return {tag["Key"]: tag["Value"] for tag in tags}


def _components(look: Look, endpoint: str) -> tuple[str, ...]:
    pages = look.clients.sagemaker.get_paginator("list_inference_components").paginate(EndpointNameEquals=endpoint)
    return tuple(item["InferenceComponentName"] for page in pages for item in page["InferenceComponents"])
