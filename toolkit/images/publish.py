"""Give an image its tag, and see that the registry holds what SageMaker takes."""

from __future__ import annotations

from toolkit.errors import BuildError
from toolkit.images.manifest import SCHEMA_2, Manifest, parts, read_config
from toolkit.images.reference import Reference
from toolkit.images.registry import Registry


def publish(registry: Registry, image: Reference, manifest: Manifest) -> str:
    """Make the tag name the image, read it back, and give its digest. Raises BuildError.

    A tag that names it already is left alone: where tags are immutable, ECR refuses even the same image again.
    """
    there = registry.find_manifest(image.repository, image.selector)
    if there is None or there.digest != manifest.digest:
        registry.put_manifest(image.repository, image.selector, manifest)
    return verified(registry, image, manifest.digest)


def verified(registry: Registry, image: Reference, digest: str | None = None) -> str:
    """Digest of an image that SageMaker can take: Docker schema 2, linux/amd64, and `digest` if one is expected.

    Raises BuildError.
    """
    manifest = registry.find_manifest(image.repository, image.selector)
    if manifest is None:
        raise BuildError(f"{image} is not there, though it was pushed a moment ago")
    if manifest.media_type != SCHEMA_2:
        message = f"{image} is of type {manifest.media_type}, and SageMaker takes only Docker's schema 2"
        hint = "With docker: DOCKER_BUILDKIT=0. With buildah or podman: push --format v2s2."
        raise BuildError(message, hint=hint)
    if digest and manifest.digest != digest:
        message = f"{image} is {manifest.digest}, not {digest} as pushed"
        raise BuildError(message, hint="Somebody else pushed to that tag: build again.")
    listed = parts(manifest, str(image))
    read_config(registry.small_blob(image.repository, listed.config), str(image), listed.layers)
    return manifest.digest
