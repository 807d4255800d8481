"""The toolkit's repositories in ECR."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.engines.arguments import builds
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Existing, Resource
from toolkit.platforms.image import store_of
from toolkit.platforms.sagemaker.aws_errors import code_of, is_denied, is_missing, unless
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look, Work, by_key, tagged
from toolkit.platforms.sagemaker.rules.names import tags
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

if TYPE_CHECKING:
    from types_boto3_ecr.type_defs import RepositoryTypeDef

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

_KEPT_UNTAGGED = 20


class RepositoryKind(AwsKind):
    """A repository with immutable tags, whose images are scanned when pushed.

    Images with a tag never expire: ECR does not know which of them an endpoint needs to scale out.
    """

    kind = "Repository"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for arm in deployment.arms for item in repositories(arm)]

    def kept_note(self, existing: Existing) -> str:
        if not self.on_aws:
            return ""
        return (
            f"images in {existing.name}: none with a tag expires, about $0.10 per GB and month (us-east-1, "
            f"unverified). Remove them: aws ecr delete-repository --force --repository-name {existing.name}"
        )

    def observe(self, look: Look) -> Iterator[Existing]:
        """The desired ones, or those of the endpoints if nothing is desired."""
        names = {item.name for item in look.wanted(self.kind)}
        if not look.desired:
            names = {repository_name(name) for name in look.endpoints}
        for name in sorted(names):
            if described := _describe(look.clients, name):
                yield tagged(self.kind, name, _owner(look.clients, described["repositoryArn"]), {})

    def create(self, work: Work, request: Any) -> None:
        """Create it with its lifecycle rule; repeated, only set the rule."""
        ecr, name = work.clients.ecr, request["repositoryName"]
        try:
            ecr.create_repository(**{key: value for key, value in request.items() if key != "lifecyclePolicyText"})
        except work.clients.refusal as error:
            if code_of(error) != "RepositoryAlreadyExistsException" or not _is_ours(work.clients, request):
                raise
        ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=request["lifecyclePolicyText"])


def repositories(recipe: Recipe) -> list[Resource]:
    """The repository of the image that serves the recipe, if one is built and the toolkit creates it."""
    wanted = repository(recipe) if builds(recipe) else None
    return [wanted] if wanted else []


def repository(recipe: Recipe) -> Resource | None:
    """The repository of images that are built for the recipe; None if it names another one."""
    section = recipe.container or ContainerSection()
    if section.repository or store_of(recipe).registry:
        return None
    rule = {
        "rulePriority": 1,
        "description": f"keep the newest {_KEPT_UNTAGGED} without a tag",
        "selection": {"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": _KEPT_UNTAGGED},
        "action": {"type": "expire"},
    }
    name = repository_of(recipe)
    request = {
        "repositoryName": name,
        "imageTagMutability": "IMMUTABLE",
        "imageScanningConfiguration": {"scanOnPush": True},
        "tags": tags(recipe),
        "lifecyclePolicyText": json.dumps({"rules": [rule]}),
    }
    return Resource("Repository", name, request)


def repository_name(endpoint: str) -> str:
    """Name of the ECR repository created for an endpoint and its baseline, in lower case as ECR requires."""
    return f"toolkit/{endpoint.removesuffix('-baseline').lower()}"


def repository_of(recipe: Recipe) -> str:
    """Name of the ECR repository of the recipe's image."""
    return (recipe.container and recipe.container.repository) or repository_name(recipe.name)


def _describe(clients: Clients, name: str) -> RepositoryTypeDef | None:
    """The repository; None if it does not exist, or if we may not read it, as most users need no repository."""
    ask = partial(clients.ecr.describe_repositories, repositoryNames=[name])
    answer = unless(clients, ask, is_missing, is_denied)
    return answer["repositories"][0] if answer else None


def _is_ours(clients: Clients, request: Mapping[str, Any]) -> bool:
    described = _describe(clients, request["repositoryName"])
    return (
        described is not None and _owner(clients, described["repositoryArn"]) == by_key(request["tags"])[ENDPOINT_TAG]
    )


def _owner(clients: Clients, arn: str) -> str | None:
    return by_key(clients.ecr.list_tags_for_resource(resourceArn=arn)["tags"]).get(ENDPOINT_TAG)
