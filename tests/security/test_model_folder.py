"""A model folder from somebody else: what it holds that is not a file of the model never leaves this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pairs import write_pair

from toolkit.api.checking import check
from toolkit.errors import UnreadableModel
from toolkit.recipe.content import manifest


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's that no model has any business with."""
    path = tmp_path / "credentials"
    path.write_text("aws_secret_access_key = …")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "original").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def names(folder: Path) -> list[str]:
    return [file.path for file in manifest(folder)]


Lay = Callable[[Path, Path], object]

LINKS_OUT: dict[str, Lay] = {
    "absolute": lambda folder, secret: (folder / "notes.txt").symlink_to(secret),
    "relative": lambda folder, secret: (folder / "notes.txt").symlink_to("../credentials"),
    "in a sub-folder": lambda folder, secret: (folder / "original/notes.txt").symlink_to("../../credentials"),
    "out and in again": lambda folder, secret: (folder / "a").symlink_to(folder / "original/../../credentials"),
    "over a second link": lambda folder, secret: (
        (folder / "original/b").symlink_to(secret),
        (folder / "notes.txt").symlink_to("original/b"),
    ),
}


@pytest.mark.parametrize("lay", LINKS_OUT.values(), ids=LINKS_OUT)
def test_a_link_that_leads_out_is_refused(folder: Path, secret: Path, lay: Lay) -> None:
    lay(folder, secret)
    with pytest.raises(UnreadableModel, match="outside the model's folder"):
        manifest(folder)


NO_FILES: dict[str, tuple[Lay, str]] = {
    "loop": (lambda folder, _: (folder / "a").symlink_to("a"), "link to nothing"),
    "loop of two": (
        lambda folder, _: ((folder / "a").symlink_to("original/b"), (folder / "original/b").symlink_to("../a")),
        "link to nothing",
    ),
    "dangling link": (lambda folder, _: (folder / "a").symlink_to("missing"), "link to nothing"),
    "link to the folder itself": (lambda folder, _: (folder / "a").symlink_to("."), "link to a folder"),
    "link to a sub-folder": (lambda folder, _: (folder / "a").symlink_to("original"), "link to a folder"),
    "link to the folder above": (lambda folder, _: (folder / "a").symlink_to(".."), "outside the model's folder"),
    "pipe": (lambda folder, _: os.mkfifo(folder / "model.safetensors"), "a pipe or a device"),
    "device": (lambda folder, _: (folder / "model.safetensors").symlink_to("/dev/zero"), "outside the model's folder"),
}


@pytest.mark.parametrize(("lay", "why"), NO_FILES.values(), ids=NO_FILES)
def test_what_is_not_a_file_is_refused(folder: Path, secret: Path, lay: Lay, why: str) -> None:
    lay(folder, secret)
    with pytest.raises(UnreadableModel, match=why):
        manifest(folder)


def test_a_socket_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket may have 107 characters
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("model.safetensors")
        with pytest.raises(UnreadableModel, match="a socket"):
            manifest(folder)


def test_a_link_within_the_folder_is_the_file_it_points_to(folder: Path) -> None:
    (folder / "original/params.json").write_text("{}")
    (folder / "params.json").symlink_to("original/params.json")
    assert names(folder) == ["config.json", "original/params.json", "params.json"]


def test_a_folder_that_is_itself_reached_over_a_link_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(folder)
    assert names(tmp_path / "current") == ["config.json"]


def cached(root: Path, blobs: Path) -> Path:
    """A snapshot as the hub's client lays it out: links to blobs, here one in a sub-folder."""
    snapshot = root / "models--org--target/snapshots" / ("0" * 40)
    (snapshot / "original").mkdir(parents=True)
    blobs.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "original/params.json"):
        blob = blobs / name.replace("/", "-")
        blob.write_text("{}")
        (snapshot / name).symlink_to(os.path.relpath(blob, (snapshot / name).parent))
    return snapshot


@pytest.mark.parametrize("blobs", ["models--org--target/blobs", "blobs/ab"], ids=["its own", "shared by the cache"])
def test_a_snapshot_of_the_hubs_cache_is_read_over_its_links(tmp_path: Path, blobs: str) -> None:
    snapshot = cached(tmp_path, tmp_path / blobs)
    assert names(snapshot) == ["config.json", "original/params.json"]
    assert names(snapshot / "original") == ["params.json"]


def test_a_snapshot_may_not_reach_another_repository_of_the_cache(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match="outside the model's folder"):
        manifest(cached(tmp_path, tmp_path / "models--org--private/blobs"))


def test_blobs_that_are_themselves_a_link_lead_out(tmp_path: Path) -> None:
    snapshot = cached(tmp_path, tmp_path / "models--org--target/blobs")
    blobs = tmp_path / "models--org--target/blobs"
    blobs.rename(tmp_path / "home")
    blobs.symlink_to(tmp_path / "home")
    with pytest.raises(UnreadableModel, match="outside the model's folder"):
        manifest(snapshot)


def test_a_folder_that_only_looks_like_the_cache_gives_no_rights(folder: Path, tmp_path: Path, secret: Path) -> None:
    disguised = tmp_path / "snapshots/model"
    shutil.copytree(folder, disguised)
    (disguised / "notes.txt").symlink_to(secret)
    with pytest.raises(UnreadableModel, match="outside the model's folder"):
        manifest(disguised)


@pytest.fixture
def deep() -> Iterator[Path]:
    """A folder of folders in each other. pytest's own cleaning up recurses, so that it is not in its temporary one."""
    folder = deepest = Path(tempfile.mkdtemp())
    try:
        for _ in range(1050):
            deepest = deepest / "d"
            deepest.mkdir()
        (deepest / "f").write_text("x")
        yield folder
    finally:
        subprocess.run(["rm", "-r", folder], check=True)


def test_a_thousand_folders_in_each_other_are_no_error_of_ours(deep: Path) -> None:
    (name,) = names(deep)
    assert name.endswith("d/f")


def test_a_file_that_changes_while_it_is_read_is_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "config.json"

    class Changing(type(path)):  # type: ignore[misc]
        """A path whose file somebody writes to between any two looks."""

        def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
            os.utime(path, ns=(0, path.lstat().st_mtime_ns + 1))
            return super().stat(follow_symlinks=follow_symlinks)

    with pytest.raises(UnreadableModel, match="changed while it was read"):
        manifest(Changing(folder))


def test_the_check_says_it_with_the_recipes_line(tmp_path: Path, secret: Path) -> None:
    recipe = write_pair(tmp_path)
    (tmp_path / "drafter/notes.txt").symlink_to(secret)
    (finding,) = check(recipe).findings
    assert (finding.code, finding.line) == ("model.unreadable", 6)
    assert "notes.txt is a link to" in finding.message
