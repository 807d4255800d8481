"""Registries that refuse one of the ways of a push: a real one, behind a proxy that answers such requests itself."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import httpx
import pytest
from faulty_transport import FaultyTransport
from loopback_registry import USER, running, set_password
from small_images import push_base, spec

from toolkit.errors import BuildError
from toolkit.images.append import AppendBuilder
from toolkit.images.manifest import LAYER, Blob, digest_of
from toolkit.images.publish import verify_pushed
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.upload import Upload


class Refusing(FaultyTransport):
    """Real HTTP, but that a method on matching paths is answered with a status."""

    def __init__(self, method: str, path: str, status: int) -> None:
        super().__init__()
        self._method, self._path, self._status = method, re.compile(path), status
        self.refused = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == self._method and self._path.search(str(request.url)):
            self.refused += 1
            assert isinstance(request.stream, httpx.SyncByteStream)
            for _ in request.stream:
                pass
            challenge = {"WWW-Authenticate": 'Basic realm="x"'} if self._status == 401 else {}
            return httpx.Response(self._status, headers=challenge, request=request)
        return super().handle_request(request)


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_what_may_not_be_mounted_is_sent(
    status: int, registry: Registry, host: str, name: str, folder: Path, lines: list[str]
) -> None:
    """401: as Harbor and Google say it where the login is for one of the two projects only."""
    push_base(registry, f"{name}-base")
    transport = Refusing("POST", r"[?&]mount=", status)
    login = {host: ("me", "pw")}
    builder = AppendBuilder(partial(Registry, credentials=login.get, transport=transport), folder)
    digest = builder.build(spec(f"{host}/{name}-base:1"), f"{host}/{name}:1", lines.append)
    assert verify_pushed(registry, parse(f"{host}/{name}:1"), digest)
    assert transport.refused
    assert "3 sent" in lines[-1]


def test_a_registry_that_does_not_say_whether_it_has_a_blob_is_sent_it(
    registry: Registry, host: str, name: str, folder: Path, lines: list[str]
) -> None:
    push_base(registry, f"{name}-base")
    transport = Refusing("HEAD", "/blobs/", 405)
    builder = AppendBuilder(partial(Registry, transport=transport), folder)
    digest = builder.build(spec(f"{host}/{name}-base:1"), f"{host}/{name}:1", lines.append)
    assert verify_pushed(registry, parse(f"{host}/{name}:1"), digest)
    assert transport.refused == 3


@pytest.mark.parametrize("status", [405, 411, 415, 501])
def test_a_registry_that_takes_no_pieces_gets_the_blob_in_one(status: int, host: str, name: str) -> None:
    content = os.urandom(3_000_000)
    blob = Blob(LAYER, digest_of(content), len(content))
    transport = Refusing("PATCH", "/uploads/", status)
    counted: list[int] = []
    with Registry(host, transport=transport, sleep=lambda _seconds: None) as registry:
        upload = Upload(registry, name, blob, lambda start: iter([content[start:]]), chunk=1_000_000)
        upload.count = counted.append
        upload.run()
        assert registry.has_blob(name, blob.digest)
    assert (transport.refused, sum(counted)) == (1, len(content))


def test_a_login_that_may_push_nowhere_is_still_refused(tmp_path: Path) -> None:
    set_password(tmp_path / "htpasswd", "first")
    with (
        running(tmp_path, tmp_path / "htpasswd") as private,
        Registry(private, {private: (USER, "no")}.get) as registry,
        pytest.raises(BuildError, match="rejects the login for ours"),
    ):
        registry.mount("ours", f"sha256:{'0' * 64}", "theirs")
