"""The folder that Docker and buildah build from."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest
from small_images import spec

from toolkit.errors import BuildError
from toolkit.images.command import build_arguments, build_context
from toolkit.images.spec import ContextFile

BASE = "host.example/repository:1@sha256:" + "a" * 64


def test_files_lie_below_rootfs_with_modes_and_no_time(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"large")
    files = {
        "/opt/toolkit/serve": ContextFile(0o755, b"#!"),
        "/opt/toolkit/drafter/model.safetensors": ContextFile(0o600, source=tmp_path / "weights"),
    }
    with build_context(spec(BASE, files=files, dockerfile="FROM x\n")) as folder:
        found = {
            str(path.relative_to(folder)): (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime)
            for path in (folder / "rootfs").rglob("*")
        }
        assert (folder / "Dockerfile").read_text() == "FROM x\n"
        assert (folder / "rootfs/opt/toolkit/drafter/model.safetensors").read_bytes() == b"large"
    assert found == {
        "rootfs/opt": (0o755, 0),
        "rootfs/opt/toolkit": (0o755, 0),
        "rootfs/opt/toolkit/serve": (0o755, 0),
        "rootfs/opt/toolkit/drafter": (0o755, 0),
        "rootfs/opt/toolkit/drafter/model.safetensors": (0o600, 0),
    }


def test_nothing_is_left_of_it() -> None:
    with build_context(spec(BASE)) as folder:
        pass
    assert not folder.parent.exists()


def test_a_folder_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(BuildError, match="cannot write the build context: ") as refused, build_context(spec(BASE)):
        pass
    assert "TMPDIR" in refused.value.hint


def test_a_base_with_tag_and_digest_is_named_by_its_digest_alone() -> None:
    assert build_arguments(spec(BASE)) == ["--build-arg", "BASE_IMAGE=host.example/repository@sha256:" + "a" * 64]


def test_a_dockerfile_that_asks_for_the_time_gets_it() -> None:
    arguments = build_arguments(spec("host.example/a:1", dockerfile="FROM x\nARG SOURCE_DATE_EPOCH\n"))
    assert arguments == ["--build-arg", "BASE_IMAGE=host.example/a:1", "--build-arg", "SOURCE_DATE_EPOCH=0"]
