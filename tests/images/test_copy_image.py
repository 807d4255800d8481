"""The parts of an image in a repository of our own."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from small_images import OCI_ZSTD_LAYER, layers_of, push_base

from toolkit.errors import BuildError
from toolkit.images.copy import Part, find_image, parts_of, send
from toolkit.images.manifest import LAYER, OCI, SCHEMA_2, Blob, digest_of
from toolkit.images.publish import publish, verify_pushed
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.upload import Upload

Copy = Callable[[Registry, str], None]


@pytest.fixture
def copy(registry: Registry, host: str, name: str, lines: list[str]) -> Copy:
    """Send the parts of the test's own image to a repository."""

    def to(target: Registry, repository: str) -> None:
        source = parse(f"{host}/{name}:1")
        found = find_image(registry, source)
        send(
            target,
            repository,
            parts_of([*found.parts.layers, found.parts.config], registry, source, target),
            name,
            lines.append,
        )

    return to


def test_another_registry_is_sent_all_parts(
    copy: Copy, registry: Registry, other_registry: Registry, name: str, lines: list[str]
) -> None:
    push_base(registry, name, content=os.urandom(3_000_000))
    copy(other_registry, name)
    assert "2 of 2 blobs (2 sent), 3.0 of 3.0 MB" in lines[-1]


def test_in_the_same_registry_parts_are_mounted(copy: Copy, registry: Registry, name: str, lines: list[str]) -> None:
    push_base(registry, name)
    copy(registry, f"{name}-copy")
    assert "2 of 2 blobs (2 mounted)" in lines[-1]


def test_what_is_there_is_not_sent_again(
    copy: Copy, registry: Registry, other_registry: Registry, name: str, lines: list[str]
) -> None:
    push_base(registry, name)
    for _ in range(2):
        copy(other_registry, name)
    assert "2 there already" in lines[-1]


def test_an_oci_image_in_dockers_words_has_the_same_layers(registry: Registry, host: str, name: str) -> None:
    push_base(registry, name, media_type=OCI)
    found = find_image(registry, parse(f"{host}/{name}:1"))
    digest = publish(registry, parse(f"{host}/{name}:2"), found.as_schema_2())
    assert find_image(registry, parse(f"{host}/{name}:2")).manifest.media_type == SCHEMA_2
    assert "usr/bin/start" in layers_of(registry, name, digest)[0]


def test_layers_that_docker_has_no_word_for_are_refused(registry: Registry, host: str, name: str) -> None:
    push_base(registry, name, media_type=OCI, layer_type=OCI_ZSTD_LAYER)
    with pytest.raises(BuildError, match="zstd"):
        find_image(registry, parse(f"{host}/{name}:1")).as_schema_2()


def test_an_oci_image_is_not_taken_for_one_that_sagemaker_takes(registry: Registry, host: str, name: str) -> None:
    push_base(registry, name, media_type=OCI)
    with pytest.raises(BuildError, match="SageMaker only supports Docker's schema 2") as caught:
        verify_pushed(registry, parse(f"{host}/{name}:1"))
    assert "--format v2s2" in caught.value.hint


def test_what_was_pushed_for_another_machine_is_noticed(registry: Registry, host: str, name: str) -> None:
    push_base(registry, name, architecture="arm64")
    with pytest.raises(BuildError, match="linux/arm64"):
        verify_pushed(registry, parse(f"{host}/{name}:1"))


def test_an_image_that_somebody_else_pushed_meanwhile_is_noticed(registry: Registry, host: str, name: str) -> None:
    ours = push_base(registry, name).digest
    push_base(registry, name, content=b"another")
    with pytest.raises(BuildError, match=f"but {ours} was pushed"):
        verify_pushed(registry, parse(f"{host}/{name}:1"), ours)


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
        Upload(registry, name, blob, generated).run()
        Upload(other_registry, name, blob, partial(registry.read_blob, name, blob)).run()
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
