"""The image of `run: container` is the one that a push sends: by real podman, docker and registries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from build_tools import our_image, own_storage, tool
from loopback_registry import USER, running, set_password
from small_images import config_of, push_base
from standin_base import push_standin

from toolkit.errors import BuildError
from toolkit.images.append import AppendBuilder
from toolkit.images.buildah import BuildahBuilder
from toolkit.images.copy import Part
from toolkit.images.manifest import LAYER, SCHEMA_2, Blob, Manifest, digest_of, encode, parts
from toolkit.images.registry import Registry
from toolkit.platforms.local.taking import lend, take

IMAGE = "localhost/toolkit/test:1"


@pytest.fixture(scope="module")
def base(host: str) -> Iterator[str]:
    with TemporaryDirectory() as folder, own_storage(Path(folder)), Registry(host) as registry:
        yield push_standin(registry, "standin/taken")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    tool("podman", "rmi", "--all", "--force")


def configuration(registry: Registry, repository: str, digest: str) -> str:
    """The name that engines give to an image: the digest of its configuration."""
    manifest = registry.find_manifest(repository, digest)
    assert manifest is not None
    return parts(manifest, repository).config.digest.removeprefix("sha256:")


@pytest.mark.parametrize("fragment", ["", "RUN echo a > /opt/made\nENV A=b\n"], ids=["no step", "a step"])
def test_podman_runs_the_very_image_that_is_pushed(
    base: str, registry: Registry, host: str, name: str, lines: list[str], fragment: str
) -> None:
    spec = our_image(base, fragment)
    builder = BuildahBuilder() if fragment else AppendBuilder(Registry)
    digest = builder.build(spec, f"{host}/{name}:1", lines.append)
    tool("podman", "rmi", "--all", "--force")
    take(spec, IMAGE, lines.append, lines.append)
    pushed, taken = config_of(registry, name, digest), json.loads(tool("podman", "image", "inspect", IMAGE))[0]
    assert taken["RootFS"]["Layers"] == pushed["rootfs"]["diff_ids"]
    assert taken["Config"]["Entrypoint"] == pushed["config"]["Entrypoint"]
    if not fragment:
        assert (taken["Id"], taken["Digest"]) == (configuration(registry, name, digest), digest)
        assert taken["RepoTags"] == [IMAGE]
    assert tool("podman", "images", "--quiet", "--filter", "dangling=true") == ""


def test_docker_runs_the_very_image_that_is_pushed(
    base: str,
    engine: None,
    registry: Registry,
    host: str,
    name: str,
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = our_image(base)
    digest = AppendBuilder(Registry).build(spec, f"{host}/{name}:1", lines.append)
    only = tmp_path / "bin"
    only.mkdir()
    (only / "docker").symlink_to(str(shutil.which("docker")))
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(only))
        take(spec, IMAGE, lines.append, lines.append)
    assert tool("docker", "image", "inspect", "--format", "{{.Id}}", IMAGE) == (
        f"sha256:{configuration(registry, name, digest)}"
    )


def test_a_base_whose_login_podman_has_is_taken(
    registry: Registry, tmp_path: Path, base: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_password(tmp_path / "htpasswd", "first")
    with running(tmp_path, tmp_path / "htpasswd") as private:
        with Registry(private, {private: (USER, "first")}.get) as theirs:
            there = push_standin(theirs, "standin/private")
        with pytest.raises(BuildError, match="requires a login, and no credentials were found"):
            take(our_image(there), IMAGE, lines.append, lines.append)
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        tool("podman", "login", "--tls-verify=false", "--username", USER, "--password", "first", private)
        take(our_image(there), IMAGE, lines.append, lines.append)


def test_what_is_lent_is_for_nobody_else() -> None:
    layer = Blob(LAYER, digest_of(b"secret weights"), 14)
    with lend(Manifest(SCHEMA_2, encode({})), [Part(layer, lambda start: iter([b"secret weights"[start:]]))]) as lent:
        address = f"http://{lent.reference.partition('/')[0]}/v2/image/blobs/{layer.digest}"
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, auth=("toolkit", "guessed")).status_code == 401
        assert httpx.get(address, auth=lent.credentials("")).content == b"secret weights"
        assert httpx.get(f"{address}0", auth=lent.credentials("")).status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_an_image_that_would_not_run_is_not_taken(
    registry: Registry, host: str, name: str, base: str, lines: list[str]
) -> None:
    push_base(registry, name)
    with pytest.raises(BuildError, match="has no python3 on its PATH"):
        take(our_image(f"{host}/{name}:1"), IMAGE, lines.append, lines.append)
