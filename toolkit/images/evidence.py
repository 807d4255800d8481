"""What says of an image what it holds and how it was made: put beside it, signed, and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolkit.errors import BuildError
from toolkit.images.inventory import BUNDLE, IN_TOTO, PREDICATE, STATEMENT
from toolkit.images.manifest import at, digest_of, parsed
from toolkit.images.referrers import Document, Referrers

if TYPE_CHECKING:
    from toolkit.images.signing import PublicKey, SigningKey  # imports what only the extra `sign` has

_SBOM = "application/vnd.cyclonedx+json"
_IS_SIGNED = "https://sigstore.dev/cosign/sign/v1"  # what `cosign sign` says of an image, and `cosign verify` asks for
_IS_MADE_OF = "https://cyclonedx.org/bom"
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
    hint = "Build it anew (another tag, or remove the image first), or ask who pushed it."
    if not sboms or not provenances:
        missing = "no bill of materials" if not sboms else "no provenance"
        raise BuildError(f"{beside} has {missing} beside it", hint=hint)
    for content in provenances:
        statement = parsed(_Statement, content, f"{beside}: its provenance")
        made = parsed(_Provenance, content, f"{beside}: its provenance")
        matching = [sboms[one.sha256] for one in made.beside if one.sha256 in sboms]
        if statement.kind != PREDICATE or not matching:
            continue
        if not statement.is_about(beside.image.digest):
            raise BuildError(f"{beside}: its provenance is about another image", hint=hint)
        if base and base.removeprefix("sha256:") not in {one.sha256 for one in made.of}:
            raise BuildError(f"{beside}: its provenance names another base than the image itself, {base}", hint=hint)
        return matching[0], content
    raise BuildError(f"{beside}: its provenance is not about the bill of materials beside it", hint=hint)


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
