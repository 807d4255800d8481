"""Our files on top of a base image, through a real registry and without Docker."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from faulty_transport import FaultyTransport
from loopback_registry import USER, running, set_password
from small_images import OCI_ZSTD_LAYER, config_of, layers_of, push_base, push_index, spec

from toolkit.errors import BuildError
from toolkit.images.append import AppendBuilder
from toolkit.images.manifest import OCI, SCHEMA_2
from toolkit.images.publish import verify_pushed
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ContextFile


@pytest.fixture
def builder(folder: Path) -> AppendBuilder:
    return AppendBuilder(Registry, folder)


@pytest.fixture
def base(registry: Registry, host: str, name: str) -> str:
    push_base(registry, f"{name}-base")
    return f"{host}/{name}-base:1"


def test_the_image_runs_our_program_in_place_of_the_bases(
    builder: AppendBuilder, base: str, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    wanted = spec(base, env={"LANG": "C.UTF-8", "A": "b"}, labels={"recipe": "x"}, user="1000")
    digest = builder.build(wanted, f"{host}/{name}:1", lines.append)
    settings = config_of(registry, name, digest)["config"]
    assert settings == {
        "Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8", "A=b"],
        "Labels": {"maker": "base", "recipe": "x"},
        "Entrypoint": ["/opt/toolkit/serve"],
        "User": "1000",
    }


def test_without_settings_of_ours_the_bases_stay(
    builder: AppendBuilder, base: str, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    digest = builder.build(spec(base, entrypoint=()), f"{host}/{name}:1", lines.append)
    settings = config_of(registry, name, digest)["config"]
    assert (settings["Entrypoint"], settings["Cmd"]) == (["/usr/bin/start"], ["--port", "80"])


def test_our_layer_lies_on_the_bases_with_modes_as_written(
    builder: AppendBuilder, base: str, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    digest = builder.build(spec(base), f"{host}/{name}:1", lines.append)
    below, ours = layers_of(registry, name, digest)
    assert "usr/bin/start" in below
    assert {path: oct(entry.mode) for path, entry in ours.items()} == {
        "opt": "0o755",
        "opt/toolkit": "0o755",
        "opt/toolkit/serve": "0o755",
    }
    config = config_of(registry, name, digest)
    assert len(config["history"]) == len(config["rootfs"]["diff_ids"]) == 2


def test_the_same_image_again_has_the_same_digest_and_sends_nothing(
    base: str, folder: Path, host: str, name: str, lines: list[str]
) -> None:
    transport = FaultyTransport()
    first = AppendBuilder(Registry, folder).build(spec(base), f"{host}/{name}:1", lines.append)
    again = AppendBuilder(partial(Registry, transport=transport), folder)
    assert again.build(spec(base), f"{host}/{name}:1", lines.append) == first
    assert transport.writes() == []


def test_layers_of_a_base_in_the_same_registry_are_mounted(
    builder: AppendBuilder, base: str, host: str, name: str, lines: list[str]
) -> None:
    builder.build(spec(base), f"{host}/{name}:1", lines.append)
    assert "1 mounted, 2 sent" in lines[-1]


def test_layers_of_a_base_in_another_registry_are_copied(
    builder: AppendBuilder, base: str, other_registry: Registry, other_host: str, name: str, lines: list[str]
) -> None:
    digest = builder.build(spec(base), f"{other_host}/{name}:1", lines.append)
    assert [*layers_of(other_registry, name, digest)[0]] == ["usr", "usr/bin", "usr/bin/start"]


def test_the_digest_is_the_same_wherever_the_image_goes(
    builder: AppendBuilder, base: str, host: str, other_host: str, name: str, lines: list[str]
) -> None:
    one, two = (builder.build(spec(base), f"{place}/{name}:1", lines.append) for place in (host, other_host))
    assert one == two


def test_of_an_oci_list_the_linux_amd64_image_becomes_schema_2(
    builder: AppendBuilder, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    images = {
        arch: push_base(registry, f"{name}-base", arch, media_type=OCI, architecture=arch)
        for arch in ("arm64", "amd64")
    }
    push_index(registry, f"{name}-base", "all", images)
    digest = builder.build(spec(f"{host}/{name}-base:all"), f"{host}/{name}:1", lines.append)
    manifest = registry.find_manifest(name, digest)
    assert manifest is not None
    document = json.loads(manifest.body)
    words = {document["mediaType"], document["config"]["mediaType"], *(one["mediaType"] for one in document["layers"])}
    assert manifest.media_type == SCHEMA_2
    assert not any("oci" in word for word in words)


def test_of_a_list_in_a_list_our_image_is_found(
    builder: AppendBuilder, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    push_index(registry, f"{name}-base", "inner", {"amd64": push_base(registry, f"{name}-base")})
    inner = registry.find_manifest(f"{name}-base", "inner")
    assert inner is not None
    push_index(registry, f"{name}-base", "outer", {"amd64": inner})
    assert builder.build(spec(f"{host}/{name}-base:outer"), f"{host}/{name}:1", lines.append)


def test_a_base_may_be_named_by_digest(
    builder: AppendBuilder, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    digest = push_base(registry, f"{name}-base").digest
    by_digest = builder.build(spec(f"{host}/{name}-base@{digest}"), f"{host}/{name}:1", lines.append)
    assert by_digest == builder.build(spec(f"{host}/{name}-base:1"), f"{host}/{name}:2", lines.append)


def test_a_large_file_has_a_layer_of_its_own_that_the_next_image_finds_there(
    builder: AppendBuilder, base: str, host: str, name: str, tmp_path: Path, lines: list[str]
) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(os.urandom(100_000))
    drafter = {"/opt/toolkit/drafter/model.safetensors": ContextFile(source=weights)}
    for version in (b"1", b"2"):
        files = {**drafter, "/opt/toolkit/serve": ContextFile(0o755, version)}
        builder.build(spec(base, files=files), f"{host}/{name}:{version.decode()}", lines.append)
    assert "2 sent, 2 there already" in lines[-1]


def test_wheels_lie_under_a_folder_of_ours(
    builder: AppendBuilder,
    base: str,
    registry: Registry,
    host: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
) -> None:
    with zipfile.ZipFile(tmp_path / "little-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("little/__init__.py", "")
        wheel.writestr("little-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: little\nVersion: 1.0\n")
        wheel.writestr("little-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("little-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digest = builder.build(spec(base, wheels=("little==1.0",)), f"{host}/{name}:1", lines.append)
    assert "opt/toolkit/site-packages/little/__init__.py" in layers_of(registry, name, digest)[-1]


def test_a_registry_with_a_login_is_logged_in_to(base: str, folder: Path, tmp_path: Path, lines: list[str]) -> None:
    set_password(tmp_path / "htpasswd", "first")
    with running(tmp_path, tmp_path / "htpasswd") as private:
        logins = {private: (USER, "first")}
        builder = AppendBuilder(partial(Registry, credentials=logins.get), folder)
        digest = builder.build(spec(base), f"{private}/ours:1", lines.append)
        with Registry(private, logins.get) as registry:
            assert verify_pushed(registry, parse(f"{private}/ours:1")) == digest


@pytest.mark.parametrize(
    ("login", "words"),
    [((USER, "second"), "rejects the login for ours"), (None, "requires a login, and no credentials were found")],
    ids=["wrong password", "none"],
)
def test_who_may_not_push_is_told_so(
    base: str, folder: Path, tmp_path: Path, lines: list[str], login: tuple[str, str] | None, words: str
) -> None:
    set_password(tmp_path / "htpasswd", "first")
    with running(tmp_path, tmp_path / "htpasswd") as private:
        builder = AppendBuilder(partial(Registry, credentials={private: login}.get), folder)
        with pytest.raises(BuildError, match=words) as caught:
            builder.build(spec(base), f"{private}/ours:1", lines.append)
    assert f"docker login {private}" in caught.value.hint
    assert "second" not in str(caught.value)


def test_a_dockerfile_with_instructions_is_refused_and_told_who_can(
    builder: AppendBuilder, base: str, host: str, name: str, lines: list[str]
) -> None:
    with pytest.raises(BuildError, match="only adds files") as caught:
        builder.build(spec(base, needs_run=True), f"{host}/{name}:1", lines.append)
    assert "docker, buildah or codebuild" in caught.value.hint


def test_a_base_that_is_not_there_is_named(builder: AppendBuilder, host: str, name: str, lines: list[str]) -> None:
    with pytest.raises(BuildError, match=f"image {host}/{name}-base:9 does not exist"):
        builder.build(spec(f"{host}/{name}-base:9"), f"{host}/{name}:1", lines.append)


def test_a_base_for_another_processor_is_refused(
    builder: AppendBuilder, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    push_base(registry, f"{name}-base", architecture="arm64")
    with pytest.raises(BuildError, match="is for linux/arm64, and SageMaker's GPU instances need linux/amd64"):
        builder.build(spec(f"{host}/{name}-base:1"), f"{host}/{name}:1", lines.append)


def test_a_list_without_our_processor_is_refused(
    builder: AppendBuilder, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    image = push_base(registry, f"{name}-base", architecture="arm64")
    push_index(registry, f"{name}-base", "all", {"arm64": image})
    with pytest.raises(BuildError, match="is for linux/arm64"):
        builder.build(spec(f"{host}/{name}-base:all"), f"{host}/{name}:1", lines.append)


def test_zstd_layers_are_refused_before_anything_is_sent(
    builder: AppendBuilder, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    push_base(registry, f"{name}-base", media_type=OCI, layer_type=OCI_ZSTD_LAYER)
    with pytest.raises(BuildError, match=r"tar\+zstd, which Docker's schema 2 does not support"):
        builder.build(spec(f"{host}/{name}-base:1"), f"{host}/{name}:1", lines.append)
    assert lines == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: only root may mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_ends_the_build_and_nothing_is_left(
    base: str, registry: Registry, host: str, name: str, small_disk: Path, lines: list[str]
) -> None:
    files = {"/opt/toolkit/large": ContextFile(content=os.urandom(200_000))}
    with pytest.raises(BuildError, match="the disk is full"):
        AppendBuilder(Registry, small_disk).build(spec(base, files=files), f"{host}/{name}:1", lines.append)
    assert list(small_disk.iterdir()) == []
    assert registry.find_manifest(name, "1") is None
