"""Images that are built for recipes, and the image that a container of a recipe runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolkit.engines.arguments import builds
from toolkit.errors import UsageError
from toolkit.images.reference import parse
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.planning.rules import Decision
from toolkit.platforms.image import address, render, request_of
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.capabilities import capabilities
from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind, Look, Work
from toolkit.platforms.sagemaker.rules.kinds.repository import repository_of
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.schema import ContainerSection

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.rules.deployment import Deployment

# How fast a base is copied from one registry to another, and what is done besides: estimates, not measured on AWS.
_COPY_BYTES_PER_SECOND = 60e6
_LAYER_SECONDS = 10
# Stands for a base of unknown size.
_SOME_BYTES = 10e9


class ImageKind(AwsKind):
    """Its tag says its content and cannot be moved."""

    kind = "Image"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for arm in deployment.arms for item in images(arm, deployment.account)]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        return super().decide(resource, existing, observed) if existing else _build(resource.request, observed)

    def observe(self, look: Look) -> Iterator[Existing]:
        """Of an image that does not exist, what it is to be built on, with its `Bytes` if its registry tells them."""
        for item in look.wanted(self.kind):
            if look.image_exists(item.request):
                yield Existing(self.kind, item.name, True, tuple(look.endpoints[:1]), {})
            elif "BaseBytes" not in item.request and (size := look.base_bytes(item.request["Base"])):
                yield Existing(self.kind, item.request["Base"], False, (), {"Bytes": size})

    def create(self, work: Work, request: Any) -> None:
        work.build(request, work.progress)

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        """Its repository too: the image has to be in it before the stack makes a Model of it."""
        yield {"what": f"the image {item.name}", "command": "toolkit build RECIPE"}


def images(recipe: Recipe, account: Account) -> list[Resource]:
    """The image that is built for the recipe; none for one that takes an image as it is."""
    if not builds(recipe):
        return []
    store, section, name = capabilities(recipe).images, recipe.container or ContainerSection(), repository_of(recipe)
    spec = render(recipe, account, store)
    built = {
        "Repository": name,
        "Image": f"{store.registry or account.registry}/{name}:{spec.tag}",
        "Builder": store.builder or section.builder,
    }
    size = _base_bytes(recipe)
    known = {"BaseBytes": size} if size else {}
    return [Resource("Image", f"{name}:{spec.tag}", {**built, **known, **request_of(spec)})]


def image_uri(recipe: Recipe, account: Account) -> str:
    """The container's image, by tag: JumpStart's, the one that is built, or the platform's own for that engine version.

    Raises UsageError when there is none in that region.
    """
    if theirs := jumpstart.target_model(recipe, account.jumpstart):
        return theirs.image
    if built := images(recipe, account):
        return str(built[0].request["Image"])
    found = recipe.image
    if found is None:
        message = f"platform `{recipe.platform.name}` has no image with {recipe.engine.name} {recipe.engine.version}"
        raise UsageError(message, hint=f"See: toolkit check {recipe.path}")
    return address(found, account)


def _base_bytes(recipe: Recipe) -> int | None:
    """What the base takes in a registry, if the catalogue knows it."""
    found = recipe.image
    if (recipe.container and recipe.container.base) or found is None or found.size_gb is None:
        return None
    return round(found.size_gb * 1e9)


def _build(request: Mapping[str, Any], observed: Observed) -> Decision:
    """What builds an image, on which base, and how much of that has to be copied; the seconds that this takes."""
    # As build.py chooses, but for what this machine has.
    builder = request["Builder"] or ("docker, buildah or codebuild" if request["NeedsRun"] else "append")
    base, known = request["Base"], observed.get("Image", request["Base"])
    size = request.get("BaseBytes") or (known.state["Bytes"] if known else None)
    gigabytes = f"{size / 1e9:.1f} GB" if size else "size unknown"
    seconds = _LAYER_SECONDS + round((size or _SOME_BYTES) / _COPY_BYTES_PER_SECOND)
    # All others fetch the base to where they are.
    if builder == "append" and parse(base).registry == parse(request["Image"]).registry:
        seconds, work = _LAYER_SECONDS, "which is in this registry already: seconds, if its layers may be mounted"
    else:
        example = "" if size else f" if it has {_SOME_BYTES / 1e9:.0f} GB"
        rate = f"{_COPY_BYTES_PER_SECOND / 1e6:.0f} MB/s"
        work = f"to copy but for layers that are there: about {max(1, round(seconds / 60))} min{example}, at {rate}"
    return Decision("create", f"is not built yet: {builder} does it on {base} ({gigabytes}), {work}", seconds)
