"""Images that are built for recipes, and the image that a container of a recipe runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolkit.engines.arguments import builds
from toolkit.errors import UsageError
from toolkit.images.reference import parse
from toolkit.images.spec import ImageSpec
from toolkit.planning.kinds import Decision
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.image import ImageStore, address, base_address, render, request_of, store_of
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look, Work
from toolkit.platforms.sagemaker.kinds.repository import repository_of
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.names import on_aws
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

# Speed of copying a base between registries, and time of all other steps: estimates, not measured on AWS.
_COPY_BYTES_PER_SECOND = 60e6
_LAYER_SECONDS = 10
# Assumed size of a base of unknown size.
_SOME_BYTES = 10e9


class ImageKind(AwsKind):
    """Its tag is a digest of its content, and immutable."""

    kind = "Image"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for arm in deployment.arms for item in images(arm, deployment.account)]

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
    if not on_aws(recipe):
        return ()
    uris = (image_uri(recipe.on(instance_type), account) for instance_type in recipe.platform.types)
    return tuple(dict.fromkeys(uris))


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
