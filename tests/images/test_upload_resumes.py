"""An upload whose connection or login is lost goes on where the registry says: bytes are counted as they go out."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from faulty_transport import FaultyTransport
from loopback_registry import USER, running, set_password
from telling_registry import telling

from toolkit.errors import BuildError
from toolkit.images.manifest import LAYER, Blob, digest_of
from toolkit.images.registry import Registry
from toolkit.images.upload import Upload

SIZE, CHUNK = 1_000_000, 100_000
CONTENT = os.urandom(SIZE)
BLOB = Blob(LAYER, digest_of(CONTENT), SIZE)


def connect(host: str, transport: FaultyTransport, closing: ExitStack, **options: object) -> Registry:
    return closing.enter_context(Registry(host, transport=transport, sleep=lambda _seconds: None, **options))  # type: ignore[arg-type]


def send(registry: Registry, repository: str = "large") -> list[int]:
    """Upload in ten requests; what was counted."""
    counted: list[int] = []
    Upload(registry, repository, BLOB, lambda start: iter([CONTENT[start:]]), count=counted.append, chunk=CHUNK).run()
    return counted


def test_a_blob_goes_up_in_several_requests(host: str, name: str, closing: ExitStack) -> None:
    transport = FaultyTransport()
    registry = connect(host, transport, closing)
    send(registry, name)
    assert b"".join(registry.read_blob(name, BLOB)) == CONTENT
    assert transport.writes() == ["POST", *["PATCH"] * 9, "PUT"]


@pytest.mark.parametrize("manner", ["oci", "ecr"])
@pytest.mark.parametrize("cut", [345_678, 950_000], ids=["in the middle", "in the last request"])
def test_after_a_cut_nothing_that_arrived_is_sent_again(manner: str, cut: int, closing: ExitStack) -> None:
    transport = FaultyTransport([cut])
    with telling(manner) as (host, store):
        send(connect(host, transport, closing))
    assert store.blobs == {BLOB.digest: CONTENT}
    # this one is told only by refusing a request, whose bytes went out for nothing
    refused = 0 if manner == "oci" else min(CHUNK, SIZE - cut // CHUNK * CHUNK)
    assert transport.sent == SIZE + refused


def test_what_is_counted_is_what_arrived_once(closing: ExitStack) -> None:
    with telling("oci") as (host, _):
        counted = send(connect(host, FaultyTransport([345_678, 700_001]), closing))
    assert sum(counted) == SIZE


def test_a_connection_lost_between_two_requests_costs_nothing(host: str, name: str, closing: ExitStack) -> None:
    transport = FaultyTransport([3 * CHUNK])
    registry = connect(host, transport, closing)
    send(registry, name)
    assert registry.has_blob(name, BLOB.digest)
    assert transport.sent == SIZE


def test_a_registry_that_forgot_the_upload_gets_it_from_the_start(host: str, name: str, closing: ExitStack) -> None:
    transport = FaultyTransport([345_678])
    registry = connect(host, transport, closing)
    send(registry, name)
    assert registry.has_blob(name, BLOB.digest)
    assert transport.writes().count("POST") == 2


def test_a_login_that_expires_on_the_way_is_asked_for_again(tmp_path: Path, closing: ExitStack) -> None:
    passwords, password = tmp_path / "htpasswd", ["first"]
    set_password(passwords, "first")

    def expire_in_the_middle() -> None:
        if transport.sent >= SIZE / 2 and password == ["first"]:
            password[0] = "second"
            set_password(passwords, "second")

    transport = FaultyTransport(before_upload=expire_in_the_middle)
    with running(tmp_path, passwords) as host:
        registry = connect(host, transport, closing, credentials=lambda _host: (USER, password[0]))
        send(registry)
        assert registry.has_blob("large", BLOB.digest)
    assert password == ["second"]
    assert transport.sent == SIZE + CHUNK, "only the refused request went out twice"
    assert transport.writes().count("POST") == 2, "one of them refused, to say that it wants a login"


def test_a_connection_that_always_breaks_is_given_up_with_the_place(closing: ExitStack) -> None:
    with telling("oci") as (host, _), pytest.raises(BuildError, match=r"broke off at byte 50000.*tried 6 times"):
        send(connect(host, FaultyTransport([50_000] * 20), closing))


def test_bytes_that_are_not_what_the_digest_says_are_refused(registry: Registry, name: str) -> None:
    wrong = Blob(LAYER, digest_of(b"something else"), SIZE)
    with pytest.raises(BuildError, match=r"failed twice.*DIGEST_INVALID"):
        Upload(registry, name, wrong, lambda start: iter([CONTENT[start:]])).run()
