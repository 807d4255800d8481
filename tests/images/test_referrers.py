"""Bill of materials and provenance beside an image: in a real registry, which has no list of referrers, and in one
that has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from small_images import push_base, spec

from toolkit.errors import BuildError
from toolkit.images.evidence import Referrers, attach, verify
from toolkit.images.inventory import bill_of_materials, provenance, wheels_of_pins
from toolkit.images.manifest import Manifest
from toolkit.images.registry import Registry
from toolkit.images.spec import ContextFile
from toolkit.images.wheels import Wheel

BASE_DIGEST = f"sha256:{'b' * 64}"
SPEC = spec(f"example.com/team/base@{BASE_DIGEST}", wheels=("ray[serve]==2.9",))
WHEEL = Wheel("Ray_Serve", "2.9", "ray_serve-2.9-py3-none-any.whl", "c" * 64)


def documents(image: Manifest) -> tuple[bytes, bytes]:
    sbom = bill_of_materials(SPEC.base, SPEC.files, [WHEEL])
    return sbom, provenance(SPEC, "append", "example.com/image", image.digest, [WHEEL], sbom)


def test_what_is_attached_is_found_again(either: Registry, name: str) -> None:
    image = push_base(either, name)
    sbom, statement = documents(image)
    attach(Referrers(either, name, image), sbom, statement)
    found = verify(Referrers(either, name, image), BASE_DIGEST)
    attach(Referrers(either, name, image), sbom, statement)
    assert verify(Referrers(either, name, image), BASE_DIGEST) == found
    assert found.keys() == {"sbom", "provenance"}


def test_a_registry_that_lists_none_has_a_tag_with_both(registry: Registry, name: str) -> None:
    image = push_base(registry, name)
    attach(Referrers(registry, name, image), *documents(image))
    index = registry.find_manifest(name, image.digest.replace(":", "-"))
    assert index is not None
    listed = json.loads(index.body)["manifests"]
    assert [one["artifactType"] for one in listed] == ["application/vnd.cyclonedx+json", "application/vnd.in-toto+json"]
    for one in listed:
        manifest = registry.find_manifest(name, one["digest"])
        assert manifest is not None
        assert json.loads(manifest.body)["subject"]["digest"] == image.digest


def test_an_image_with_nothing_beside_it_is_refused(either: Registry, name: str) -> None:
    with pytest.raises(BuildError, match="has no bill of materials beside it"):
        verify(Referrers(either, name, push_base(either, name)), BASE_DIGEST)


def test_documents_of_another_image_base_or_content_are_refused(either: Registry, name: str) -> None:
    image, other = push_base(either, name), push_base(either, name, "2", content=b"other")
    sbom, statement = documents(image)
    attach(Referrers(either, name, other), sbom, statement)
    with pytest.raises(BuildError, match="its provenance is about another image"):
        verify(Referrers(either, name, other), BASE_DIGEST)
    attach(Referrers(either, name, image), sbom + b"\n", statement)
    with pytest.raises(BuildError, match="is not about the bill of materials beside it"):
        verify(Referrers(either, name, image), BASE_DIGEST)
    attach(Referrers(either, name, image), sbom, statement)
    with pytest.raises(BuildError, match=f"names another base than the image itself, sha256:{'d' * 64}"):
        verify(Referrers(either, name, image), f"sha256:{'d' * 64}")
    assert verify(Referrers(either, name, image), BASE_DIGEST)


def test_a_list_that_names_what_is_about_another_image_is_refused(registry: Registry, name: str) -> None:
    image, other = push_base(registry, name), push_base(registry, name, "2", content=b"other")
    attach(Referrers(registry, name, image), *documents(image))
    index = registry.find_manifest(name, image.digest.replace(":", "-"))
    assert index is not None
    registry.put_manifest(name, other.digest.replace(":", "-"), index)
    with pytest.raises(BuildError, match=f"is about {image.digest}, and is listed for {other.digest}"):
        verify(Referrers(registry, name, other), BASE_DIGEST)


def test_the_bill_of_materials_is_one_to_other_tools() -> None:
    pins = ["ray[serve]==2.9", f"Other_Thing==1.0+cu1 --hash=sha256:{'e' * 64}"]
    sbom = bill_of_materials(SPEC.base, {"serve": ContextFile(content=b"x")}, wheels_of_pins(pins))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.decode()) is None
    base, file, ray, other = json.loads(sbom)["components"]
    assert PackageURL.from_string(base["purl"]).version == BASE_DIGEST
    assert base["hashes"][0]["content"] == "b" * 64
    assert file["hashes"]
    assert ray["purl"] == "pkg:pypi/ray@2.9"
    assert other["purl"] == "pkg:pypi/other-thing@1.0%2Bcu1"
    assert other["hashes"] == [{"alg": "SHA-256", "content": "e" * 64}]


def test_the_provenance_names_what_went_in_and_is_the_same_each_time(registry: Registry, name: str) -> None:
    image = push_base(registry, name)
    statement = json.loads(documents(image)[1])
    assert documents(image) == documents(replace(image))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    base, wheel = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert base["digest"] == {"sha256": "b" * 64}
    assert wheel["uri"].startswith("pkg:pypi/ray-serve@2.9?file_name=ray_serve-2.9")
    assert wheel["digest"] == {"sha256": "c" * 64}
