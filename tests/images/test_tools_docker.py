"""Images built by a real Docker engine, with its legacy builder and in Studio's network."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from build_tools import build_and_look_for_the_login, our_image, own_storage, wait_until_gone
from loopback_registry import running, set_password
from small_images import layers_of
from standin_base import push_shell

from toolkit.errors import BuildError
from toolkit.images.docker import DockerBuilder, unavailable
from toolkit.images.manifest import OCI, SCHEMA_2
from toolkit.images.registry import Registry

# Docker from 29 on keeps images in containerd's store, and pushes OCI. Debian has none, so this stands for its command.
OCI_ENGINE = """#!/bin/sh
case "$1" in
  version) echo 29.0 ;;
  info) echo 'x86_64 [["driver-type","io.containerd.snapshotter.v1"]]' ;;
  build) shift; exec buildah build --quiet --tls-verify=false "$@" ;;
  push)
    echo "$2" > PUSHED
    buildah push --quiet --tls-verify=false --format oci --digestfile DIGEST "$2" "docker://$2"
    echo "1: digest: $(cat DIGEST) size: 1000" ;;
esac
"""


pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(scope="module")
def base(host: str) -> str:
    with Registry(host) as registry:
        return push_shell(registry, "standin/docker")


@pytest.fixture
def studio(tmp_path: Path) -> Path:
    """The file that says that this is a space of Studio."""
    path = tmp_path / "resource-metadata.json"
    path.write_text(json.dumps({"AppType": "JupyterLab", "DomainId": "d-0123456789ab"}))
    return path


def test_in_studio_steps_are_run_in_the_only_network_that_it_allows(
    base: str, host: str, name: str, registry: Registry, studio: Path, lines: list[str]
) -> None:
    step = "RUN while read -r line; do echo $line; done < /proc/net/dev\n"
    digest = DockerBuilder(studio=studio).build(our_image(base, step), f"{host}/{name}:1", lines.append)
    assert any(line.startswith("eth0:") for line in lines)
    manifest = registry.find_manifest(name, "1")
    assert manifest is not None
    assert (manifest.digest, manifest.media_type) == (digest, SCHEMA_2)


def test_files_have_their_modes_and_belong_to_root(
    base: str, host: str, name: str, registry: Registry, lines: list[str]
) -> None:
    digest = DockerBuilder().build(our_image(base), f"{host}/{name}:1", lines.append)
    ours = {path: entry for layer in layers_of(registry, name, digest)[1:] for path, entry in layer.items()}
    modes = {path.removeprefix("opt/toolkit/"): stat.S_IMODE(entry.mode) for path, entry in ours.items()}
    assert (modes["serve"], modes["deep/er/note"], modes["deep"]) == (0o755, 0o640, 0o755)
    assert {(entry.uid, entry.gid) for entry in ours.values()} == {(0, 0)}


def test_a_failing_step_is_named(base: str, host: str, name: str, lines: list[str]) -> None:
    with pytest.raises(BuildError, match=r"step `RUN exit 3` failed: .*returned a non-zero code: 3") as refused:
        DockerBuilder().build(our_image(base, "RUN exit 3\n"), f"{host}/{name}:1", lines.append)
    assert "container.dockerfile" in refused.value.hint


def test_a_base_that_is_not_there_is_named(host: str, name: str, lines: list[str]) -> None:
    with pytest.raises(BuildError, match=f"cannot pull the base image {host}/nobody/has-this:1: .*not found"):
        DockerBuilder().build(our_image(f"{host}/nobody/has-this:1"), f"{host}/{name}:1", lines.append)


def test_a_registry_that_refuses_the_push_is_named(base: str, name: str, tmp_path: Path, lines: list[str]) -> None:
    set_password(tmp_path / "passwords", "first")
    with (
        running(tmp_path, tmp_path / "passwords") as private,
        pytest.raises(BuildError, match=f"docker: cannot push {private}/{name}:1: no basic auth") as refused,
    ):
        DockerBuilder().build(our_image(base), f"{private}/{name}:1", lines.append)
    assert "login" in refused.value.hint


def test_the_login_is_used_beside_the_users_own_settings_and_in_no_part_of_the_image(
    base: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    set_password(tmp_path / "passwords", "first")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text('{"credsStore": "there-is-no-such-helper"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "own"))
    build_and_look_for_the_login(DockerBuilder, base, name, tmp_path)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["config.json"]


def test_what_ends_us_ends_the_build(base: str, host: str, name: str) -> None:
    def interrupt(line: str) -> None:
        if line == "sleeping":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DockerBuilder().build(our_image(base, "RUN echo sleeping; exec sleep 986\n"), f"{host}/{name}:1", interrupt)
    wait_until_gone("sleep 986", seconds=30)  # the engine sees in its own time that its client has left


def test_what_an_engine_pushes_as_oci_by_another_tag_gets_its_own_as_schema_2(
    base: str,
    host: str,
    name: str,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
) -> None:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    written = OCI_ENGINE.replace("DIGEST", str(tmp_path / "digest")).replace("PUSHED", str(tmp_path / "pushed"))
    program.write_text(written)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    with own_storage(tmp_path):
        digest = DockerBuilder().build(our_image(base), f"{host}/{name}:1", lines.append)
    manifest, pushed = (
        registry.find_manifest(name, "1"),
        registry.find_manifest(name, (tmp_path / "digest").read_text()),
    )
    assert pushed is not None
    assert manifest is not None
    assert (pushed.media_type, manifest.media_type, manifest.digest) == (OCI, SCHEMA_2, digest)
    assert (tmp_path / "pushed").read_text().startswith(f"{host}/{name}:1-staged-")


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "cannot build here", "usermod"),
        ("write /var/lib/docker/tmp/x: no space left on device", "the disk is full", "docker image prune"),
    ],
)
def test_dockers_words_get_a_hint(
    words: str, said: str, hint: str, base: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    command = "version" if "permission" in words else "build"
    program.write_text(f'#!/bin/sh\n[ "$1" = {command} ] && echo "{words}" && exit 1\nexit 0\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(BuildError, match=said) as refused:
        DockerBuilder().build(our_image(base), f"{host}/test/words:1", print)
    assert hint in refused.value.hint


def test_without_an_engine_it_says_so_and_what_to_do(
    base: str, host: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    assert "Cannot connect to the Docker daemon" in (unavailable() or "")
    with pytest.raises(BuildError, match="docker cannot build here") as refused:
        DockerBuilder().build(our_image(base), f"{host}/{name}:1", lines.append)
    assert "EnableDockerAccess" in refused.value.hint


def test_without_the_command_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unavailable() == "docker is not installed"
