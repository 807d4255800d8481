"""What an image holds and what it was made of, as other tools read it: CycloneDX, and provenance as SLSA says it.

The same image has the same documents, to the letter: no time, no machine's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packageurl import PackageURL
from packaging.utils import canonicalize_name

from toolkit.images.reference import parse
from toolkit.images.spec import ContextFile, ImageSpec, sha256
from toolkit.images.wheels import Wheel, describe_wheels, kept_wheels
from toolkit.version import __version__

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
IN_TOTO = "application/vnd.in-toto+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
"""Media types: of a statement, and of one that is signed."""
_BUILD_TYPE = "https://peagle-toolkit/image@v1"  # names what the parameters mean; no page is there
_SBOM = "sbom.json"


def bill_of_materials(base: str, files: Mapping[str, ContextFile], wheels: Iterable[Wheel]) -> bytes:
    """What our layer adds, as CycloneDX 1.6. What the base holds its maker has to say."""
    components: list[dict[str, Any]] = [
        _of_base(base),
        *({"type": "file", "name": name, "hashes": [_hash(sha256(file))]} for name, file in files.items()),
        *map(_of_wheel, wheels),
    ]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    return json.dumps(document, indent=1).encode()


def wheels_of_pins(pins: Iterable[str]) -> list[Wheel]:
    """Pins as far as they say what they mean: the hash where the lock has it."""
    wheels = []
    for pin in pins:
        named, _, digest = pin.partition(" --hash=sha256:")
        name, _, version = named.partition("==")
        wheels.append(Wheel(name.partition("[")[0], version, "", digest))
    return wheels


def described_wheels(pins: Sequence[str], python: str) -> list[Wheel]:
    """The wheels that pins mean, with what the index says of each; the lock's own hash goes before it."""
    known = kept_wheels(pins, python)
    described = {canonicalize_name(wheel.name): wheel for wheel in known or describe_wheels(pins, python)}
    found = []
    for pinned in wheels_of_pins(pins):
        wheel = described.get(canonicalize_name(pinned.name), pinned)
        found.append(wheel if pinned.sha256 in ("", wheel.sha256) else pinned)
    return found


def provenance(spec: ImageSpec, builder: str, image: str, digest: str, wheels: Sequence[Wheel], sbom: bytes) -> bytes:
    """Of what, by what and how the image of that digest was built: an in-toto statement, unsigned."""
    materials = [_material(_base_url(spec.base), parse(spec.base).digest)]
    materials += [_material(_wheel_url(wheel), f"sha256:{wheel.sha256}" if wheel.sha256 else None) for wheel in wheels]
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": image, "digest": _digests(digest)}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {
                    "base": spec.base,
                    "dockerfile": spec.dockerfile,
                    "wheels": list(spec.wheels),
                    "python": spec.python,
                    "tag": spec.tag,
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": f"{_BUILD_TYPE}/{builder}", "version": {"toolkit": __version__}},
                "byproducts": [{"name": _SBOM, "digest": {"sha256": hashlib.sha256(sbom).hexdigest()}}],
            },
        },
    }
    return json.dumps(statement, indent=1).encode()


def _of_base(base: str) -> dict[str, Any]:
    digest = parse(base).digest
    known = {"purl": _base_url(base), "hashes": [_hash(digest.partition(":")[2])]} if digest else {}
    return {"type": "container", "name": base, **known}


def _of_wheel(wheel: Wheel) -> dict[str, Any]:
    known = {"hashes": [_hash(wheel.sha256)]} if wheel.sha256 else {}
    return {"type": "library", "name": wheel.name, "version": wheel.version, "purl": _wheel_url(wheel), **known}


def _base_url(base: str) -> str:
    image = parse(base)
    name, at = image.repository.rpartition("/")[2], f"{image.registry}/{image.repository}"
    qualifiers = {"repository_url": at, **({"tag": image.tag} if image.tag else {})}
    return PackageURL("oci", name=name, version=image.digest, qualifiers=qualifiers).to_string()


def _wheel_url(wheel: Wheel) -> str:
    file = {"file_name": wheel.file} if wheel.file else None
    return PackageURL("pypi", name=wheel.name, version=wheel.version, qualifiers=file).to_string()


def _material(url: str, digest: str | None) -> dict[str, Any]:
    return {"uri": url, **({"digest": _digests(digest)} if digest else {})}


def _digests(digest: str) -> dict[str, str]:
    algorithm, _, value = digest.partition(":")
    return {algorithm: value}


def _hash(value: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": value}
