"""Images that are built for recipes, their repositories in ECR, and the image that a container of a recipe runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.engines.arguments import builds
from toolkit.errors import UsageError
from toolkit.images.reference import parse
from toolkit.images.spec import ImageSpec
from toolkit.planning.kinds import Decision
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.planning.retention import price_in_words, rules
from toolkit.platforms.image import ImageStore, address, base_address, render, request_of, store_of
from toolkit.platforms.sagemaker.aws_errors import code_of, is_denied, is_missing, unless
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.kinds.base import ApiCall, AwsKind, Look, Work, by_key, tagged
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.arms import arms
from toolkit.platforms.sagemaker.rules.names import on_aws, tags
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

if TYPE_CHECKING:
    from types_boto3_ecr.type_defs import RepositoryTypeDef

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

_KEPT_UNTAGGED = 3  # of 10 GB each that share no layers, for 0.10 $ per GB and month: 3 $
# Speed of copying a base between registries, and time of all other steps: estimates, not measured on AWS.
_COPY_BYTES_PER_SECOND = 60e6
_LAYER_SECONDS = 10
# Assumed size of a base of unknown size.
_SOME_BYTES = 10e9


class RepositoryKind(AwsKind):
    """A repository with immutable tags, whose images are scanned when pushed.

    Images with a tag never expire: ECR does not know which of them an endpoint needs to scale out.
    """

    kind = "Repository"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for arm in arms(deployment.recipe) for item in repositories(arm)]

    def kept_note(self, existing: Existing) -> str:
        if not self.on_aws:
            return ""
        return (
            f"images in {existing.name}: none with a tag expires, {price_in_words(self.kept_as)}. `toolkit clean` "
            f"removes those that no model runs and that were not pulled for {rules()[self.kept_as].days} days, and all "
            f"at once: aws ecr delete-repository --force --repository-name {existing.name}"
        )

    @property
    def kept_as(self) -> str:
        return "image" if self.on_aws else ""

    def observe(self, look: Look) -> Iterator[Existing]:
        """The desired ones, or those of the endpoints if nothing is desired."""
        names = {item.name for item in look.wanted(self.kind)}
        if not look.desired:
            names = {repository_name(name) for name in look.endpoints}
        for name in sorted(names):
            if described := _describe(look.clients, name):
                yield tagged(self.kind, name, _owner(look.clients, described["repositoryArn"]), {})

    def creating(self, request: Any) -> tuple[ApiCall, ...]:
        rule = {"repositoryName": request["repositoryName"], "lifecyclePolicyText": request["lifecyclePolicyText"]}
        own = {key: value for key, value in request.items() if key != "lifecyclePolicyText"}
        return ApiCall("ecr", "CreateRepository", own), ApiCall("ecr", "PutLifecyclePolicy", rule)

    def create(self, work: Work, request: Any) -> None:
        """Create it with its lifecycle rule; repeated, only set the rule."""
        made, kept = self.creating(request)
        try:
            made.send(work.clients)
        except work.clients.refusal as error:
            if code_of(error) != "RepositoryAlreadyExistsException" or not _is_ours(work.clients, request):
                raise
        kept.send(work.clients)


def repositories(recipe: Recipe) -> list[Resource]:
    """The repository of the image that serves the recipe, if one is built and the toolkit creates it."""
    return repository(recipe) if builds(recipe) else []


def repository(recipe: Recipe) -> list[Resource]:
    """The repository of images that are built for the recipe; none if it names another one."""
    section = recipe.container or ContainerSection()
    if section.repository or store_of(recipe).registry:
        return []
    rule = {
        "rulePriority": 1,
        "description": f"keep the newest {_KEPT_UNTAGGED} without a tag",
        "selection": {"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": _KEPT_UNTAGGED},
        "action": {"type": "expire"},
    }
    name, key = repository_of(recipe), aws(recipe).kms_key
    request = {
        "repositoryName": name,
        **({"encryptionConfiguration": {"encryptionType": "KMS", "kmsKey": key}} if key else {}),
        "imageTagMutability": "IMMUTABLE",
        "imageScanningConfiguration": {"scanOnPush": True},
        "tags": tags(recipe),
        "lifecyclePolicyText": json.dumps({"rules": [rule]}),
    }
    return [Resource("Repository", name, request)]


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


class ImageKind(AwsKind):
    """Its tag is a digest of its content, and immutable."""

    kind = "Image"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for arm in arms(deployment.recipe) for item in images(arm, deployment.account)]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        return super().decide(resource, existing, observed) if existing else _build(resource.request, observed)

    def observe(self, look: Look) -> Iterator[Existing]:
        """For an image that does not exist, its base image with the size (`Bytes`), if the registry tells it."""
        for item in look.wanted(self.kind):
            if look.image_exists(item.request):
                yield Existing(self.kind, item.name, True, tuple(look.endpoints[:1]), {})
            elif "BaseBytes" not in item.request and (size := look.base_bytes(item.request["Base"])):
                yield Existing(self.kind, item.request["Base"], False, (), {"Bytes": size})

    def create(self, work: Work, request: Any) -> None:
        work.build(request, work.progress)

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        """The build also creates the repository: the image must exist before the stack creates a Model."""
        yield {"what": f"the image {item.name}", "command": "toolkit build RECIPE"}


def images(recipe: Recipe, account: Account) -> list[Resource]:
    """The image to build for the recipe; empty if it uses an existing image."""
    if not builds(recipe):
        return []
    store = store_of(recipe)
    return [built_image(recipe, account, render(recipe, account, store), store)]


def built_image(recipe: Recipe, account: Account, spec: ImageSpec, store: ImageStore) -> Resource:
    """An image to build, in the recipe's repository."""
    section, name = recipe.container or ContainerSection(), repository_of(recipe)
    built = {
        "Repository": name,
        "Image": f"{store.registry or account.registry}/{name}:{spec.tag}",
        "Builder": store.builder or section.builder,
    }
    size = _base_bytes(recipe)
    known = {"BaseBytes": size} if size else {}
    return Resource("Image", f"{name}:{spec.tag}", {**built, **known, **request_of(spec)})


def image_uri(recipe: Recipe, account: Account) -> str:
    """The container's image by tag: JumpStart's, the one that is built, or the catalogue's for that engine version.

    Raises UsageError if no image is known in that region.
    """
    if theirs := jumpstart.target_model(recipe, account.jumpstart):
        return theirs.image
    if built := images(recipe, account):
        return str(built[0].request["Image"])
    listed = recipe.image
    if listed is None:
        message = (
            f"no image with {recipe.engine.name} {recipe.engine.version} is known for platform `{recipe.platform.name}`"
        )
        raise UsageError(message, hint=f"See: toolkit check {recipe.path}")
    return address(listed, account)


def base_images(recipe: Recipe, account: Account) -> tuple[str, ...]:
    """Addresses of the images from elsewhere that run, or that one is built on, as they are written.

    Raises UsageError where there is none.
    """
    if builds(recipe):
        return (base_address(recipe, account, store_of(recipe)),)
    return image_uris(recipe, account) if on_aws(recipe) else ()


def image_uris(recipe: Recipe, account: Account) -> tuple[str, ...]:
    """The images of the recipe's instance types. Raises UsageError if one is not known in that region."""
    return tuple(dict.fromkeys(image_uri(recipe.on(name), account) for name in recipe.platform.types))


def _base_bytes(recipe: Recipe) -> int | None:
    """Size of the base image in its registry, if the catalogue has it."""
    base = recipe.image
    if (recipe.container and recipe.container.base) or base is None or base.size_gb is None:
        return None
    return round(base.size_gb * 1e9)


def _build(request: Mapping[str, Any], observed: Observed) -> Decision:
    """Decide to build: the reason names the builder, the base and how much to copy, with the expected seconds."""
    # As build.py chooses, without looking at what is installed here.
    builder = request["Builder"] or ("docker, buildah or codebuild" if request["NeedsRun"] else "append")
    base, known = request["Base"], observed.get("Image", request["Base"])
    size = request.get("BaseBytes") or (known.state["Bytes"] if known else None)
    gigabytes = f"{size / 1e9:.1f} GB" if size else "size unknown"
    seconds = _LAYER_SECONDS + round((size or _SOME_BYTES) / _COPY_BYTES_PER_SECOND)
    # All other builders download the base.
    if builder == "append" and parse(base).registry == parse(request["Image"]).registry:
        seconds, work = _LAYER_SECONDS, "which is in the same registry: seconds, if its layers can be mounted"
    else:
        example = "" if size else f" if it has {_SOME_BYTES / 1e9:.0f} GB"
        rate = f"{_COPY_BYTES_PER_SECOND / 1e6:.0f} MB/s"
        work = f"to copy except for existing layers: about {max(1, round(seconds / 60))} min{example}, at {rate}"
    return Decision("create", f"is not built yet; {builder} builds it from {base} ({gigabytes}), {work}", seconds)
