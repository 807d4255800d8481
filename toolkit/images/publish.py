"""Tag a pushed image, and verify that SageMaker can use it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.errors import BuildError
from toolkit.images.manifest import SCHEMA_2, Manifest, parts, read_config
from toolkit.images.reference import Reference

if TYPE_CHECKING:
    from toolkit.images.registry import Registry  # imports httpx

STAGED = "-staged-"
"""In tags under which an engine pushes what is not yet known to be schema 2: after the image's own tag."""


def staging_reference(image: Reference, mark: str) -> Reference:
    """A temporary tag to push to: an engine with containerd's store pushes OCI, and the real tag may be immutable.

    `mark` differs for every build, because the image's digest does.
    """
    return replace(image, tag=f"{image.tag or 'latest'}{STAGED}{mark}")


def publish(registry: Registry, image: Reference, manifest: Manifest) -> str:
    """Make the tag name the image, read it back, and give its digest. Raises BuildError.

    A tag that names it already is left alone: where tags are immutable, ECR refuses even the same image again.
    """
    existing = registry.find_manifest(image.repository, image.selector)
    if existing is None or existing.digest != manifest.digest:
        registry.put_manifest(image.repository, image.selector, manifest)
    return verify_pushed(registry, image, manifest.digest)


def verify_pushed(registry: Registry, image: Reference, digest: str | None = None) -> str:
    """Digest of an image that SageMaker can take: Docker schema 2, linux/amd64, and `digest` if one is expected.

    Raises BuildError.
    """
    manifest = registry.find_manifest(image.repository, image.selector)
    if manifest is None:
        hint = "A rule of the repository may remove such tags, or somebody else did: build again."
        raise BuildError(f"{image} does not exist, although it was just pushed", hint=hint)
    if manifest.media_type != SCHEMA_2:
        message = f"{image} is of type {manifest.media_type}, and SageMaker only supports Docker's schema 2"
        hint = "With docker: DOCKER_BUILDKIT=0. With buildah or podman: push --format v2s2."
        raise BuildError(message, hint=hint)
    if digest and manifest.digest != digest:
        message = f"{image} has digest {manifest.digest}, but {digest} was pushed"
        raise BuildError(message, hint="Somebody else pushed to that tag: build again.")
    listed = parts(manifest, str(image))
    read_config(registry.small_blob(image.repository, listed.config), str(image), listed.layers)
    return manifest.digest
