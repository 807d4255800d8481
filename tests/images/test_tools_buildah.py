"""Images built by buildah, for real, from a base in a loopback registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from build_tools import build_and_look_for_the_login, our_image, own_storage, tool, wait_until_gone
from loopback_registry import set_password
from small_images import layers_of
from standin_base import push_shell

from toolkit.errors import BuildError
from toolkit.images.buildah import BuildahBuilder, unavailable
from toolkit.images.registry import Registry


@pytest.fixture(scope="module", autouse=True)
def _storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_storage(tmp_path_factory.mktemp("buildah")):
        yield


@pytest.fixture(scope="module")
def base(host: str) -> str:
    with Registry(host) as registry:
        return push_shell(registry, "standin/buildah")


def test_clean_builds_of_the_same_image_have_the_same_digest(
    base: str, host: str, name: str, tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    spec = our_image(base, fragment="RUN echo made > /opt/made\n")
    first = BuildahBuilder().build(spec, f"{host}/{name}:1", lines.append)
    with own_storage(tmp_path_factory.mktemp("clean")):
        assert BuildahBuilder().build(spec, f"{host}/{name}:2", lines.append) == first


def test_a_step_of_the_recipes_own_is_run(
    base: str, host: str, name: str, registry: Registry, lines: list[str]
) -> None:
    spec = our_image(base, fragment="RUN echo made > /opt/made\n")
    digest = BuildahBuilder().build(spec, f"{host}/{name}:1", lines.append)
    assert any(line.endswith(": RUN echo made > /opt/made") for line in lines)
    assert "opt/made" in layers_of(registry, name, digest)[-1]


def test_podman_builds_where_there_is_no_buildah(
    base: str, host: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    expected = BuildahBuilder().build(our_image(base), f"{host}/{name}:1", lines.append)
    for program in ("podman", "runc", "netavark"):
        path = tool("which", program) if program != "netavark" else "/usr/lib/podman/netavark"
        (tmp_path / program).symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert BuildahBuilder().build(our_image(base), f"{host}/{name}:2", lines.append) == expected


def test_a_failing_step_is_named(base: str, host: str, name: str, lines: list[str]) -> None:
    with pytest.raises(BuildError, match=r"step `RUN exit 3` failed: .*exit status 3") as refused:
        BuildahBuilder().build(our_image(base, "RUN exit 3\n"), f"{host}/{name}:1", lines.append)
    assert "container.dockerfile" in refused.value.hint


def test_a_base_that_is_not_there_is_named(host: str, name: str, lines: list[str]) -> None:
    with pytest.raises(BuildError, match=f"cannot pull the base image {host}/nobody/has-this:1: .*manifest unknown"):
        BuildahBuilder().build(our_image(f"{host}/nobody/has-this:1"), f"{host}/{name}:1", lines.append)


def test_a_full_disk_is_called_so(base: str, host: str, name: str, tmp_path: Path, lines: list[str]) -> None:
    tool("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path))
    try:
        with own_storage(tmp_path), pytest.raises(BuildError, match="the disk is full") as refused:
            BuildahBuilder().build(our_image(base), f"{host}/{name}:1", lines.append)
    finally:
        tool("umount", "--recursive", str(tmp_path))
    assert "Make room" in refused.value.hint


def test_the_login_is_used_and_in_no_part_of_the_image(base: str, name: str, tmp_path: Path, lines: list[str]) -> None:
    set_password(tmp_path / "passwords", "first")
    build_and_look_for_the_login(BuildahBuilder, base, name, tmp_path)


def test_what_ends_us_ends_the_build(base: str, host: str, name: str) -> None:
    def interrupt(line: str) -> None:
        if line == "sleeping":
            raise KeyboardInterrupt

    step = "RUN echo sleeping; exec sleep 987\n"
    with pytest.raises(KeyboardInterrupt):
        BuildahBuilder().build(our_image(base, step), f"{host}/{name}:1", interrupt)
    wait_until_gone("sleep 987", seconds=30)
    assert tool("buildah", "containers", "--quiet") == ""


def test_without_either_command_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unavailable() == "neither buildah nor podman is installed"
