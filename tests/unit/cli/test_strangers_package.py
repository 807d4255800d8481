"""On the public index `toolkit` is another project's package: installed beside ours, it replaces files of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import toolkit
from toolkit.platforms import doctor


@pytest.fixture
def replaced(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH, in which the package's `__init__.py` is the stranger's."""
    package = tmp_path / "toolkit"
    package.mkdir()
    for item in Path(toolkit.__file__).parent.iterdir():
        (package / item.name).symlink_to(item)
    (package / "__init__.py").unlink()
    (package / "__init__.py").write_text("import logging\n\nlogger = logging.getLogger(__name__)\n")
    return tmp_path


def test_a_replaced_package_is_one_line_and_the_command_that_mends_it(replaced: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(replaced)}
    command = [sys.executable, "-m", "toolkit", "--version"]
    ended = subprocess.run(command, env=environment, cwd=replaced, capture_output=True, text=True)
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 2
    assert "pip install --force-reinstall --no-deps peagle-toolkit" in ended.stderr


def test_doctor_sees_it_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolkit-0.0.3.dist-info").mkdir()
    (tmp_path / "toolkit-0.0.3.dist-info" / "METADATA").write_text("Name: toolkit\nVersion: 0.0.3\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = next(item for item in doctor.examine(tmp_path) if item.name == "package")
    assert not found.ok
    assert "0.0.3 of another project" in found.detail
