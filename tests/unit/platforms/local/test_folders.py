"""Folders of containers on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from toolkit.platforms.local import folders

LONGEST_SOCKET = 107
LIKE_VLLMS = "/01234567-89ab-cdef-0123-456789abcdef"


def test_a_long_tmpdir_leaves_room_for_the_path_of_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tmp_path / ("x" * 60)
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    made = folders.temporary_folder(tmp_path)
    assert len(f"{made}{LIKE_VLLMS}") <= LONGEST_SOCKET
    assert made.stat().st_mode & 0o777 == 0o700
    folders.remove(tmp_path)
    assert not made.exists()


def test_a_short_tmpdir_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as usual:
        monkeypatch.setattr(tempfile, "tempdir", usual)
        assert folders.temporary_folder(tmp_path).parent == Path(usual)
