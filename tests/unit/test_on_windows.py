"""What needs no `local` extra runs on Windows too, as far as that can be imitated here: see windows.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WINDOWS = Path(__file__).with_name("windows.py")


def on_windows(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The end of `toolkit COMMAND…`, in an empty folder and without a network or an account."""
    environment = {
        "HOME": str(folder),
        "USER": "me",
        "TOOLKIT_HOME": str(folder / "home"),
        "KUBECONFIG": str(folder / "none"),
        "HF_HUB_OFFLINE": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return subprocess.run(
        [sys.executable, WINDOWS, *command], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_every_module_but_those_of_the_local_platform_is_imported(tmp_path: Path) -> None:
    done = on_windows(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        ("check", "tiny/p-eagle"),
        ("plan", "gpt-oss-20b/p-eagle"),
        ("new", "Qwen/Qwen3-8B", "--json"),
        ("status",),
    ],
    ids=" ".join,
)
def test_what_needs_no_local_platform_works(command: tuple[str, ...], tmp_path: Path) -> None:
    done = on_windows(tmp_path, *command)
    assert done.returncode == 0, done.stderr


def test_the_local_platform_says_that_it_does_not_run_there(tmp_path: Path) -> None:
    done = on_windows(tmp_path, "deploy", "tiny/p-eagle")
    assert done.returncode == 2
    assert "error: the local platform does not run on this system\n  Use Linux" in done.stderr
