"""A layer: files as tar.gz, the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from toolkit.errors import BuildError
from toolkit.images.append import write_layer
from toolkit.images.spec import ContextFile

TEXT = ContextFile(content=b"text")


def test_the_same_files_in_another_order_make_the_same_bytes(tmp_path: Path) -> None:
    one = write_layer({"/a/b": TEXT, "/c": TEXT}, tmp_path / "1")
    two = write_layer({"/c": TEXT, "/a/b": TEXT}, tmp_path / "another name")
    assert one.path.read_bytes() == two.path.read_bytes()
    assert (one.blob, one.diff_id) == (two.blob, two.diff_id)


def test_neither_time_nor_owner_of_a_file_gets_in(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"text")
    os.utime(source, (1, 1))
    source.chmod(0o600)
    from_file = write_layer({"/a": ContextFile(source=source)}, tmp_path / "1")
    assert from_file.blob.digest == write_layer({"/a": TEXT}, tmp_path / "2").blob.digest


def test_both_digests_are_those_of_the_file(tmp_path: Path) -> None:
    layer = write_layer({"/a": ContextFile(content=os.urandom(3_000_000))}, tmp_path / "layer")
    packed = layer.path.read_bytes()
    assert (layer.blob.digest, layer.blob.size) == (f"sha256:{hashlib.sha256(packed).hexdigest()}", len(packed))
    assert layer.diff_id == f"sha256:{hashlib.sha256(gzip.decompress(packed)).hexdigest()}"


def test_folders_come_before_their_files_and_keep_the_modes_that_systems_need(tmp_path: Path) -> None:
    layer = write_layer({"/tmp/a": TEXT, "/opt/x/y": ContextFile(0o755, b"")}, tmp_path / "layer")
    with tarfile.open(layer.path) as archive:
        entries = [(entry.name, entry.isdir(), oct(entry.mode)) for entry in archive]
    assert entries == [
        ("opt", True, "0o755"),
        ("opt/x", True, "0o755"),
        ("opt/x/y", False, "0o755"),
        ("tmp", True, "0o1777"),
        ("tmp/a", False, "0o644"),
    ]


def test_a_name_of_any_length_is_kept(tmp_path: Path) -> None:
    name = "/opt/" + "/".join(["folder" * 10] * 4) + "/größe.txt"
    with tarfile.open(write_layer({name: TEXT}, tmp_path / "layer").path) as archive:
        assert archive.getnames()[-1] == name[1:]


@pytest.mark.parametrize("path", ["a", "/", "/a/", "/a/../b", "//a", "/a//b", "/a/.wh.b", "/.wh..wh..opq"])
def test_what_is_no_path_in_an_image_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is not a path for a file in an image"):
        write_layer({path: TEXT}, tmp_path / "layer")


def test_a_file_is_not_put_where_most_images_have_a_link(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot put /bin/serve into a layer") as caught:
        write_layer({"/bin/serve": TEXT}, tmp_path / "layer")
    assert "Write /usr/bin/" in caught.value.hint


def test_a_file_and_a_folder_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="/a is both a file and a folder"):
        write_layer({"/a": TEXT, "/a/b": TEXT}, tmp_path / "layer")


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="No such file or directory"):
        write_layer({"/a": ContextFile(source=tmp_path / "gone")}, tmp_path / "layer")


def test_a_full_disk_is_called_that(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="the disk is full where the layer is written") as caught:
        write_layer({"/a": TEXT}, Path("/dev/full"))
    assert "TMPDIR" in caught.value.hint
