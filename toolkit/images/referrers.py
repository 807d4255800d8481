"""Documents about an image, beside it in its registry: manifests that name it as their subject (OCI 1.1).

A registry that knows referrers lists them itself. For one that does not, a tag made of the image's digest names the
list, as the distribution specification has it; any client looks at both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import httpx
from pydantic import Field

from toolkit import documents
from toolkit.errors import BuildError
from toolkit.images import inventory
from toolkit.images.manifest import OCI, Blob, Manifest, digest_of, encode, parts
from toolkit.images.registry import Registry
from toolkit.images.upload import Upload

SBOM = "application/vnd.cyclonedx+json"
STATEMENT = "application/vnd.in-toto+json"

_INDEX = "application/vnd.oci.image.index.v1+json"
_EMPTY_TYPE, _EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
_PREDICATE = "in-toto.io/predicate-type"
_MOST = 1000


@dataclass(frozen=True)
class _Listed:
    """A referrer in a list."""

    media_type: Annotated[str, Field(alias="mediaType")]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: int
    artifact_type: Annotated[str, Field(alias="artifactType")] = ""
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _List:
    manifests: Annotated[tuple[_Listed, ...], Field(max_length=_MOST)] = ()


@dataclass(frozen=True)
class _Refers:
    """What a referrer says that it is about."""

    subject: _Listed


@dataclass(frozen=True)
class _Digest:
    sha256: str


@dataclass(frozen=True)
class _Named:
    digest: _Digest | None = None
    name: str = ""
    uri: str = ""


@dataclass(frozen=True)
class _Definition:
    dependencies: Annotated[tuple[_Named, ...], Field(alias="resolvedDependencies")] = ()


@dataclass(frozen=True)
class _Details:
    byproducts: tuple[_Named, ...] = ()


@dataclass(frozen=True)
class _Predicate:
    definition: Annotated[_Definition, Field(alias="buildDefinition")]
    details: Annotated[_Details, Field(alias="runDetails")]


@dataclass(frozen=True)
class _Provenance:
    subject: tuple[_Named, ...]
    predicate: _Predicate
    predicate_type: Annotated[str, Field(alias="predicateType")] = ""


def attach(registry: Registry, repository: str, image: Manifest, sbom: bytes, provenance: bytes) -> None:
    """Put both documents beside the image. Again, it changes nothing. Raises BuildError."""
    annotations = {_PREDICATE: inventory.PREDICATE}
    put = [
        _put(registry, repository, image, SBOM, sbom, {}),
        _put(registry, repository, image, STATEMENT, provenance, annotations),
    ]
    if unknown := [listed for listed, is_listed in put if not is_listed]:
        _list_by_tag(registry, repository, image, unknown)


def verify(registry: Registry, repository: str, image: Manifest, base: str | None) -> dict[str, str]:
    """The digests of the image's documents, by kind, if they are about it and this base. Raises BuildError."""
    what = f"{registry.host}/{repository}@{image.digest}"
    listed = _find(registry, repository, image)
    sboms = [_read(registry, repository, image, one) for one in listed if one.artifact_type == SBOM]
    statements = [_read(registry, repository, image, one) for one in listed if one.artifact_type == STATEMENT]
    hint = "Build it anew (another tag, or remove the image first), or ask who pushed it."
    if not sboms or not statements:
        missing = "no bill of materials" if not sboms else "no provenance"
        raise BuildError(f"{what} has {missing} beside it", hint=hint)
    known = {digest_of(sbom).removeprefix("sha256:"): sbom for sbom in sboms}
    for statement in statements:
        try:
            said = documents.parse(_Provenance, statement)
        except documents.Unfit as error:
            raise BuildError(f"{what}: its provenance cannot be read: {error}") from error
        of = [one.digest.sha256 for one in said.predicate.details.byproducts if one.digest]
        matching = [digest for digest in of if digest in known]
        if said.predicate_type != inventory.PREDICATE or not matching:
            continue
        if f"sha256:{said.subject[0].digest.sha256 if said.subject and said.subject[0].digest else ''}" != image.digest:
            raise BuildError(f"{what}: its provenance is about another image", hint=hint)
        on = {one.digest.sha256 for one in said.predicate.definition.dependencies if one.digest}
        if base and base.removeprefix("sha256:") not in on:
            raise BuildError(f"{what}: its provenance names another base than the image itself, {base}", hint=hint)
        return {"sbom": f"sha256:{matching[0]}", "provenance": digest_of(statement)}
    raise BuildError(f"{what}: its provenance is not about the bill of materials beside it", hint=hint)


def _put(
    registry: Registry, repository: str, image: Manifest, kind: str, content: bytes, annotations: dict[str, str]
) -> tuple[_Listed, bool]:
    """Push a document as a referrer. How it is listed, and whether the registry lists it by itself."""
    config, layer = (
        _upload(registry, repository, Blob(word, digest_of(body), len(body)), body)
        for word, body in ((_EMPTY_TYPE, _EMPTY), (kind, content))
    )
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": OCI,
        "artifactType": kind,
        "config": config.as_json(),
        "layers": [layer.as_json()],
        "subject": Blob(image.media_type, image.digest, len(image.body)).as_json(),
        **({"annotations": annotations} if annotations else {}),
    }
    manifest = Manifest(OCI, encode(document))
    answer = registry.put_manifest(repository, manifest.digest, manifest)
    listed = _Listed(OCI, manifest.digest, len(manifest.body), kind, annotations)
    return listed, "OCI-Subject" in answer.headers


def _upload(registry: Registry, repository: str, blob: Blob, content: bytes) -> Blob:
    if not registry.has_blob(repository, blob.digest):
        Upload(registry, repository, blob, lambda start: iter([content[start:]])).run()
    return blob


def _list_by_tag(registry: Registry, repository: str, image: Manifest, more: Sequence[_Listed]) -> None:
    before = _listed_by_tag(registry, repository, image)
    known = {one.digest for one in before}
    after = [*before, *(one for one in more if one.digest not in known)]
    if len(after) == len(before):
        return
    manifests = [
        {
            "mediaType": one.media_type,
            "digest": one.digest,
            "size": one.size,
            "artifactType": one.artifact_type,
            **({"annotations": one.annotations} if one.annotations else {}),
        }
        for one in after
    ]
    body = encode({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests})
    registry.put_manifest(repository, _tag(image), Manifest(_INDEX, body))


def _find(registry: Registry, repository: str, image: Manifest) -> list[_Listed]:
    url = registry.url(repository, f"referrers/{image.digest}")
    answer = registry.request("GET", url, repository, headers={"Accept": _INDEX})
    if answer.status_code == httpx.codes.OK:
        return _parse(answer.content, image)
    return _listed_by_tag(registry, repository, image)


def _listed_by_tag(registry: Registry, repository: str, image: Manifest) -> list[_Listed]:
    found = registry.find_manifest(repository, _tag(image))
    return _parse(found.body, image) if found else []


def _parse(content: bytes, image: Manifest) -> list[_Listed]:
    try:
        return list(documents.parse(_List, content).manifests)
    except documents.Unfit as error:
        raise BuildError(f"the list of what refers to {image.digest} cannot be read: {error}") from error


def _read(registry: Registry, repository: str, image: Manifest, listed: _Listed) -> bytes:
    """The document that a referrer holds, if it is about the image. Raises BuildError."""
    what = f"{registry.host}/{repository}@{listed.digest}"
    manifest = registry.find_manifest(repository, listed.digest)
    if manifest is None:
        raise BuildError(f"{what} is listed and does not exist")
    try:
        subject = documents.parse(_Refers, manifest.body).subject
    except documents.Unfit as error:
        raise BuildError(f"{what} cannot be read: {error}") from error
    layers = parts(replace(manifest, media_type=OCI), what).layers
    if subject.digest != image.digest or len(layers) != 1:
        raise BuildError(f"{what} is about {subject.digest}, and is listed for {image.digest}")
    return registry.small_blob(repository, layers[0])


def _tag(image: Manifest) -> str:
    return image.digest.replace(":", "-")
