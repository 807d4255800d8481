"""Manifests that are not what they should be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.errors import BuildError
from toolkit.images.manifest import (
    CONFIG,
    INDEXES,
    LAYER,
    OCI,
    SCHEMA_2,
    ZSTD_LAYER,
    Blob,
    Manifest,
    Parts,
    as_it_is_packed,
    for_our_platform,
    media_type_of,
    read_config,
    schema_2,
)
from toolkit.images.manifest import parts as parts_of

DIGEST = "sha256:" + "0a" * 32
ENTRY = {"mediaType": LAYER, "digest": DIGEST, "size": 1}


def manifest(document: Any, media_type: str = SCHEMA_2) -> Manifest:
    return Manifest(media_type, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Manifest(SCHEMA_2, b"<html>"), "is not JSON"),
        (manifest([]), "should be an object"),
        (manifest({"schemaVersion": 1}, "application/vnd.docker.distribution.manifest.v1+prettyjws"), "v1.prettyjws"),
        (manifest({"config": ENTRY}), "`layers`: field required"),
        (
            manifest({"config": {**ENTRY, "digest": "sha256:../../x"}, "layers": []}),
            "`config.digest`: string",
        ),
    ],
)
def test_a_broken_manifest_is_refused_by_the_images_name(found: Manifest, words: str) -> None:
    with pytest.raises(BuildError, match=f"^a:1.*{words}"):
        parts_of(found, "a:1")


def test_oci_words_become_dockers() -> None:
    found = Parts(
        Blob("application/vnd.oci.image.config.v1+json", DIGEST, 1),
        (Blob("application/vnd.oci.image.layer.v1.tar+gzip", DIGEST, 2),),
    )
    assert json.loads(schema_2(found, "a").body) == {
        "schemaVersion": 2,
        "mediaType": SCHEMA_2,
        "config": {"mediaType": CONFIG, "digest": DIGEST, "size": 1},
        "layers": [{"mediaType": LAYER, "digest": DIGEST, "size": 2}],
    }


def test_a_list_of_attestations_only_has_no_image_for_us() -> None:
    entry = {"digest": DIGEST, "platform": {"os": "unknown", "architecture": "unknown"}}
    with pytest.raises(BuildError, match="a:1 is for none, and SageMaker's GPU instances need linux/amd64"):
        for_our_platform(manifest({"manifests": [entry]}, INDEXES[1]), "a:1")


@pytest.mark.parametrize("others", [[{"digest": "sha256:" + "0b" * 32}], []], ids=["beside it", "nothing else"])
def test_an_entry_without_a_platform_is_taken_where_none_is_ours(others: list[dict[str, Any]]) -> None:
    ours = {"digest": DIGEST, "platform": {"os": "linux", "architecture": "amd64"}} if others else {"digest": DIGEST}
    assert for_our_platform(manifest({"manifests": [*others, ours]}, INDEXES[1]), "a:1") == DIGEST


@pytest.mark.parametrize(
    ("header", "document", "is_taken_for"),
    [
        (f"{SCHEMA_2}; charset=utf-8", {"mediaType": OCI}, SCHEMA_2),
        (SCHEMA_2.upper(), {"mediaType": OCI}, SCHEMA_2),
        ("Application/JSON", {"mediaType": OCI}, OCI),
        ("", {"mediaType": OCI}, OCI),
        ("application/json", {"mediaType": OCI}, OCI),
        ("application/json", {}, "application/json"),
        ("text/html", {"mediaType": OCI}, "text/html"),
    ],
)
def test_what_a_manifest_is_says_its_header_or_else_the_manifest(
    header: str, document: dict[str, Any], is_taken_for: str
) -> None:
    assert media_type_of(header, json.dumps(document).encode()) == is_taken_for
    assert media_type_of(header, b"<html>") == header.partition(";")[0].lower()


def test_a_configuration_that_tells_of_other_layers_is_refused() -> None:
    body = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [DIGEST]}}).encode()
    with pytest.raises(BuildError, match="has 1 layers, its manifest 0"):
        read_config(body, "a:1", [])


def test_oci_and_schema_2_are_the_types_of_images() -> None:
    document = {"config": ENTRY, "layers": [ENTRY]}
    assert parts_of(manifest(document, OCI), "a") == parts_of(manifest(document), "a")


@pytest.mark.parametrize(("layer", "media_type"), [(LAYER, SCHEMA_2), (ZSTD_LAYER, OCI)])
def test_only_layers_of_zstd_take_ocis_words(layer: str, media_type: str) -> None:
    """In which there is none of Docker's."""
    image = Parts(Blob(CONFIG, DIGEST, 1), (Blob(layer, DIGEST, 1), Blob(LAYER, DIGEST, 2)))
    made = as_it_is_packed(image, "an-image")
    words = [entry["mediaType"] for entry in (json.loads(made.body)["config"], *json.loads(made.body)["layers"])]
    assert made.media_type == media_type
    assert {"docker" in word for word in words} == {media_type == SCHEMA_2}
    assert len(words) == 3
