"""A base image in a repository of our own."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Iterator
from functools import partial

import pytest
from small_images import OCI_ZSTD_LAYER, layers_of, push_base

from toolkit.errors import BuildError
from toolkit.images.copy import Part, copy_image, send
from toolkit.images.manifest import LAYER, OCI, SCHEMA_2, Blob, digest_of
from toolkit.images.publish import verified
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.upload import upload


def test_a_copy_in_another_registry_has_the_same_digest(
    registry: Registry, host: str, other_host: str, name: str, lines: list[str]
) -> None:
    digest = push_base(registry, name, content=os.urandom(3_000_000)).digest
    assert copy_image(f"{host}/{name}:1", f"{other_host}/{name}:1", Registry, lines.append) == digest
    assert "2 of 2 blobs (2 sent), 3.0 of 3.0 MB" in lines[-1]


def test_a_copy_in_the_same_registry_is_mounted(registry: Registry, host: str, name: str, lines: list[str]) -> None:
    push_base(registry, name)
    copy_image(f"{host}/{name}:1", f"{host}/{name}-copy:1", Registry, lines.append)
    assert "2 of 2 blobs (2 mounted)" in lines[-1]


def test_a_second_copy_finds_all_there(
    registry: Registry, host: str, other_host: str, name: str, lines: list[str]
) -> None:
    push_base(registry, name)
    for _ in range(2):
        copy_image(f"{host}/{name}:1", f"{other_host}/{name}:1", Registry, lines.append)
    assert "2 there already" in lines[-1]


def test_an_oci_image_becomes_schema_2_with_the_same_layers(
    registry: Registry, other_registry: Registry, host: str, other_host: str, name: str, lines: list[str]
) -> None:
    push_base(registry, name, media_type=OCI)
    digest = copy_image(f"{host}/{name}:1", f"{other_host}/{name}:1", Registry, lines.append)
    copied = other_registry.find_manifest(name, "1")
    assert copied is not None
    assert (copied.media_type, copied.digest) == (SCHEMA_2, digest)
    assert "usr/bin/start" in layers_of(other_registry, name, digest)[0]


def test_the_tag_appears_only_when_all_is_there(
    registry: Registry, other_registry: Registry, host: str, other_host: str, name: str, lines: list[str]
) -> None:
    push_base(registry, name, media_type=OCI, layer_type=OCI_ZSTD_LAYER)
    with pytest.raises(BuildError, match="zstd"):
        copy_image(f"{host}/{name}:1", f"{other_host}/{name}:1", Registry, lines.append)
    assert other_registry.find_manifest(name, "1") is None


def test_an_oci_image_is_not_taken_for_one_that_sagemaker_takes(registry: Registry, host: str, name: str) -> None:
    push_base(registry, name, media_type=OCI)
    with pytest.raises(BuildError, match="SageMaker takes only Docker's schema 2") as caught:
        verified(registry, parse(f"{host}/{name}:1"))
    assert "--format v2s2" in caught.value.hint


def test_an_image_that_somebody_else_pushed_meanwhile_is_noticed(registry: Registry, host: str, name: str) -> None:
    ours = push_base(registry, name).digest
    push_base(registry, name, content=b"another")
    with pytest.raises(BuildError, match=f"not {ours} as pushed"):
        verified(registry, parse(f"{host}/{name}:1"), ours)


def test_a_blob_is_copied_without_ever_being_whole_in_memory(
    registry: Registry, other_registry: Registry, name: str
) -> None:
    megabyte, count = os.urandom(10**6), 100

    def generated(start: int) -> Iterator[bytes]:
        assert start == 0
        return (megabyte for _ in range(count))

    whole = hashlib.sha256()
    for piece in generated(0):
        whole.update(piece)
    blob = Blob(LAYER, f"sha256:{whole.hexdigest()}", count * len(megabyte))
    tracemalloc.start()
    try:
        upload(registry, name, blob, generated)
        upload(other_registry, name, blob, partial(registry.read_blob, name, blob))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert other_registry.has_blob(name, blob.digest)
    assert peak < blob.size / 10


def test_while_a_blob_is_on_its_way_the_log_says_how_far_it_is(registry: Registry, name: str, lines: list[str]) -> None:
    seen = threading.Event()

    def halting(start: int) -> Iterator[bytes]:
        yield b"01234"
        assert seen.wait(60)
        yield b"56789"

    def log(line: str) -> None:
        lines.append(line)
        seen.set()

    blob = Blob(LAYER, digest_of(b"0123456789"), 10)
    send(registry, name, [Part(blob, halting)], "base", log, every=0.01)
    assert lines[0].startswith("base: 0 of 1 blobs")
    assert lines[-1].startswith("base: 1 of 1 blobs (1 sent)")


def test_the_first_failure_stops_what_else_is_on_its_way(registry: Registry, name: str, lines: list[str]) -> None:
    def broken(start: int) -> Iterator[bytes]:
        raise BuildError("the source is gone")

    def endless(start: int) -> Iterator[bytes]:
        while True:
            yield b"0" * 1000

    parts = [Part(Blob(LAYER, digest_of(b"1"), 10**15), endless), Part(Blob(LAYER, digest_of(b"2"), 1), broken)]
    with pytest.raises(BuildError, match="the source is gone"):
        send(registry, name, parts, "base", lines.append)
