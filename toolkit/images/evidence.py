"""What says of an image what it holds and how it was made: put beside it, signed, and checked.

Beside it in its registry lie manifests that name it as their subject (OCI 1.1). A registry that knows referrers lists
them itself. For one that does not, a tag made of the image's digest names the list, as the distribution specification
has it; any client looks at both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import httpx
from pydantic import Field

from toolkit.errors import BuildError
from toolkit.images.inventory import BUNDLE, IN_TOTO, PREDICATE, STATEMENT
from toolkit.images.manifest import OCI, Blob, Manifest, at, digest_of, encode, parsed, parts
from toolkit.images.registry import Registry
from toolkit.images.upload import Upload

if TYPE_CHECKING:
    from toolkit.images.signing import PublicKey, SigningKey


_SBOM = "application/vnd.cyclonedx+json"
_IS_SIGNED = "https://sigstore.dev/cosign/sign/v1"  # what `cosign sign` says of an image, and `cosign verify` asks for
_IS_MADE_OF = "https://cyclonedx.org/bom"
_BUILD_ANEW = "Build it anew (another tag, or remove the image first), or ask who pushed it."
_WORDS = {_IS_SIGNED: "image", _IS_MADE_OF: "bill of materials", PREDICATE: "provenance"}


@dataclass(frozen=True)
class _Named:
    sha256: Annotated[str, at("digest", "sha256")] = ""


@dataclass(frozen=True)
class _Provenance:
    """What a provenance says that went in, and what came with it."""

    of: Annotated[tuple[_Named, ...], at("predicate", "buildDefinition", "resolvedDependencies")]
    beside: Annotated[tuple[_Named, ...], at("predicate", "runDetails", "byproducts")]


@dataclass(frozen=True)
class _Statement:
    """An in-toto statement: what it is about, what kind of thing it says, and that."""

    subject: tuple[_Named, ...]
    kind: Annotated[str, Field(alias="predicateType")]
    predicate: dict[str, Any]

    def is_about(self, digest: str) -> bool:
        return any(f"sha256:{one.sha256}" == digest for one in self.subject)


def attach(beside: Referrers, sbom: bytes, provenance: bytes) -> None:
    """Put both documents beside the image. Again, it changes nothing. Raises BuildError."""
    notes = {"in-toto.io/predicate-type": PREDICATE}
    beside.put([Document(_SBOM, sbom), Document(IN_TOTO, provenance, notes)])


def verify(beside: Referrers, base: str | None, key: PublicKey | None = None) -> dict[str, str]:
    """The digests of the image's documents, by kind, if they are about it and this base. Raises BuildError.

    With a key, the image and both documents must be signed with it.
    """
    sbom, provenance = _documents(beside, base)
    missing = _unsigned(beside, _statements(beside, sbom, provenance), key) if key else {}
    if missing:
        what = ", ".join(_WORDS[kind] for kind in missing)
        hint = "Sign it (toolkit build RECIPE --sign KEY), or ask who pushed it for the key that it is signed with."
        raise BuildError(f"{beside} has no signature by {key and key.name} beside it for: {what}", hint=hint)
    return {"sbom": digest_of(sbom), "provenance": digest_of(provenance)}


def sign(beside: Referrers, base: str | None, key: SigningKey) -> None:
    """Sign the image and both documents, as far as this key has not. Raises BuildError, and UsageError for the key."""
    missing = _unsigned(beside, _statements(beside, *_documents(beside, base)), key.public)
    notes = {"dev.sigstore.bundle.content": "dsse-envelope"}
    beside.put(
        [
            Document(BUNDLE, key.bundle(statement), {**notes, "dev.sigstore.bundle.predicateType": kind})
            for kind, statement in missing.items()
        ]
    )


def _documents(beside: Referrers, base: str | None) -> tuple[bytes, bytes]:
    """The bill of materials and the provenance that belong to each other, this image and this base."""
    found = beside.contents(_SBOM, IN_TOTO)
    sboms = {digest_of(content).removeprefix("sha256:"): content for kind, content in found if kind == _SBOM}
    provenances = [content for kind, content in found if kind == IN_TOTO]
    if not sboms or not provenances:
        missing = "no bill of materials" if not sboms else "no provenance"
        raise BuildError(f"{beside} has {missing} beside it", hint=_BUILD_ANEW)
    for content in provenances:
        statement = parsed(_Statement, content, f"{beside}: its provenance")
        made = parsed(_Provenance, content, f"{beside}: its provenance")
        matching = [sboms[one.sha256] for one in made.beside if one.sha256 in sboms]
        if statement.kind != PREDICATE or not matching:
            continue
        if not statement.is_about(beside.image.digest):
            raise BuildError(f"{beside}: its provenance is about another image", hint=_BUILD_ANEW)
        if base and base.removeprefix("sha256:") not in {one.sha256 for one in made.of}:
            raise BuildError(
                f"{beside}: its provenance names another base than the image itself, {base}", hint=_BUILD_ANEW
            )
        return matching[0], content
    raise BuildError(f"{beside}: its provenance is not about the bill of materials beside it", hint=_BUILD_ANEW)


def _statements(beside: Referrers, sbom: bytes, provenance: bytes) -> dict[str, bytes]:
    """What is signed, by what `cosign verify-attestation --type` calls it; of cosign's own kind, that it is signed."""
    digest = beside.image.digest.removeprefix("sha256:")
    subject = [{"name": f"{beside.registry.host}/{beside.repository}", "digest": {"sha256": digest}}]
    said = {
        kind: json.dumps({"_type": STATEMENT, "subject": subject, "predicateType": kind, "predicate": predicate})
        for kind, predicate in ((_IS_SIGNED, {}), (_IS_MADE_OF, json.loads(sbom)))
    }
    return {**{kind: text.encode() for kind, text in said.items()}, PREDICATE: provenance}


def _unsigned(beside: Referrers, wanted: Mapping[str, bytes], key: PublicKey) -> dict[str, bytes]:
    """Those of the statements that this key has not signed."""
    signed = [statement for _, bundle in beside.contents(BUNDLE) if (statement := key.statement(bundle))]
    said = [one for one in map(_statement, signed) if one.is_about(beside.image.digest)]
    return {
        kind: statement
        for kind, statement in wanted.items()
        if not any(one.kind == kind and one.predicate == _statement(statement).predicate for one in said)
    }


def _statement(content: bytes) -> _Statement:
    return parsed(_Statement, content, "a signed statement")


_INDEX = "application/vnd.oci.image.index.v1+json"
_EMPTY_TYPE, _EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
_MOST = 1000


@dataclass(frozen=True)
class Document:
    """What lies beside an image: its media type, itself, and notes for who reads a list."""

    kind: str
    content: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Listed:
    """A referrer in a list."""

    media_type: Annotated[str, Field(alias="mediaType")]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: int
    artifact_type: Annotated[str, Field(alias="artifactType")] = ""
    annotations: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        blob = Blob(self.media_type, self.digest, self.size).as_json()
        annotations = {"annotations": self.annotations} if self.annotations else {}
        return {**blob, "artifactType": self.artifact_type, **annotations}


@dataclass(frozen=True)
class _List:
    manifests: Annotated[tuple[_Listed, ...], Field(max_length=_MOST)] = ()


@dataclass(frozen=True)
class _Refers:
    """The digest of what a referrer says that it is about."""

    subject: Annotated[str, at("subject", "digest")]


@dataclass(frozen=True)
class Referrers:
    """The documents beside an image of a repository. Each method raises BuildError."""

    registry: Registry
    repository: str
    image: Manifest

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.repository}@{self.image.digest}"

    def put(self, given: Sequence[Document]) -> None:
        """Put documents beside the image. Again, it changes nothing."""
        put = [self._put(document) for document in given]
        if unknown := [listed for listed, is_listed in put if not is_listed]:
            self._list_by_tag(unknown)

    def contents(self, *kinds: str) -> list[tuple[str, bytes]]:
        """The documents of these media types, with their media types."""
        # cosign lists its own by the type of their empty configuration
        candidates = [one for one in self._listed() if one.artifact_type in (*kinds, _EMPTY_TYPE)]
        return [(kind, content) for kind, content in map(self._read, candidates) if kind in kinds]

    def _put(self, document: Document) -> tuple[_Listed, bool]:
        """How it is listed, and whether the registry lists it by itself."""
        config, layer = (self._upload(*one) for one in ((_EMPTY_TYPE, _EMPTY), (document.kind, document.content)))
        annotations = dict(document.annotations)
        body = {
            "schemaVersion": 2,
            "mediaType": OCI,
            "artifactType": document.kind,
            "config": config.as_json(),
            "layers": [layer.as_json()],
            "subject": Blob(self.image.media_type, self.image.digest, len(self.image.body)).as_json(),
            **({"annotations": annotations} if annotations else {}),
        }
        manifest = Manifest(OCI, encode(body))
        answer = self.registry.put_manifest(self.repository, manifest.digest, manifest)
        listed = _Listed(OCI, manifest.digest, len(manifest.body), document.kind, annotations)
        return listed, "OCI-Subject" in answer.headers

    def _upload(self, kind: str, content: bytes) -> Blob:
        blob = Blob(kind, digest_of(content), len(content))
        if not self.registry.has_blob(self.repository, blob.digest):
            Upload(self.registry, self.repository, blob, lambda start: iter([content[start:]])).run()
        return blob

    def _list_by_tag(self, more: Sequence[_Listed]) -> None:
        before = self._listed_by_tag()
        known = {one.digest for one in before}
        new = [one for one in more if one.digest not in known]
        if new:
            listed = [one.as_json() for one in (*before, *new)]
            body = encode({"schemaVersion": 2, "mediaType": _INDEX, "manifests": listed})
            self.registry.put_manifest(self.repository, self._tag, Manifest(_INDEX, body))

    def _listed(self) -> list[_Listed]:
        url = self.registry.url(self.repository, f"referrers/{self.image.digest}")
        answer = self.registry.request("GET", url, self.repository, headers={"Accept": _INDEX})
        return self._parse(answer.content) if answer.status_code == httpx.codes.OK else self._listed_by_tag()

    def _listed_by_tag(self) -> list[_Listed]:
        found = self.registry.find_manifest(self.repository, self._tag)
        return self._parse(found.body) if found else []

    def _parse(self, content: bytes) -> list[_Listed]:
        return list(parsed(_List, content, f"the list of what refers to {self.image.digest}").manifests)

    def _read(self, listed: _Listed) -> tuple[str, bytes]:
        """The document that a referrer holds, if it is about the image, and its media type."""
        what = f"{self.registry.host}/{self.repository}@{listed.digest}"
        manifest = self.registry.find_manifest(self.repository, listed.digest)
        if manifest is None:
            raise BuildError(f"{what} is listed and does not exist", hint=_BUILD_ANEW)
        subject = parsed(_Refers, manifest.body, what).subject
        layers = parts(replace(manifest, media_type=OCI), what).layers
        if subject != self.image.digest or len(layers) != 1:
            raise BuildError(f"{what} is about {subject}, and is listed for {self.image.digest}", hint=_BUILD_ANEW)
        return layers[0].media_type, self.registry.small_blob(self.repository, layers[0])

    @property
    def _tag(self) -> str:
        return self.image.digest.replace(":", "-")
