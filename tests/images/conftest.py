"""Real registries on the loopback, and what every test of images does with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from build_tools import docker_engine
from faulty_transport import FaultyTransport
from loopback_registry import running

from toolkit.images.manifest import encode
from toolkit.images.registry import Registry


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry without a login. Tests keep to repositories of their own."""
    with running(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="session")
def other_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second one."""
    with running(tmp_path_factory.mktemp("other-registry")) as host:
        yield host


@pytest.fixture
def registry(host: str) -> Iterator[Registry]:
    with Registry(host) as registry:
        yield registry


@pytest.fixture
def other_registry(other_host: str) -> Iterator[Registry]:
    with Registry(other_host) as registry:
        yield registry


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A repository that no other test uses."""
    return "test/" + re.sub(r"\W+", "-", request.node.name.lower()).strip("-")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Closes at the end what a test opens."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def lines() -> list[str]:
    """What a build logs."""
    return []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a builder writes its layers."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Docker engine of our own."""
    with docker_engine(tmp_path_factory.mktemp("docker")):
        yield


class Listing(FaultyTransport):
    """Real HTTP to a registry that itself lists what refers to an image."""

    def __init__(self) -> None:
        super().__init__()
        self._listed: dict[str, list[dict[str, object]]] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if "/referrers/" in request.url.path:
            listed = self._listed.get(request.url.path.rpartition("/")[2], [])
            return httpx.Response(200, stream=httpx.ByteStream(encode({"manifests": listed})), request=request)
        answer = super().handle_request(request)
        if request.method == "PUT" and "/manifests/" in request.url.path:
            body = request.content
            document = json.loads(body)
            if subject := document.get("subject"):
                entry = {
                    "mediaType": document["mediaType"],
                    "artifactType": document["artifactType"],
                    "size": len(body),
                }
                self._listed.setdefault(subject["digest"], []).append(
                    {**entry, "digest": answer.headers["Docker-Content-Digest"]}
                )
                answer.headers["OCI-Subject"] = subject["digest"]
        return answer


@pytest.fixture(params=["lists referrers", "lists them by tag"])
def either(request: pytest.FixtureRequest, host: str) -> Iterator[Registry]:
    with Registry(host, transport=Listing() if request.param == "lists referrers" else FaultyTransport()) as registry:
        yield registry
