"""No room, no right to write, no home at all, no port: what each command says, and that it loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from fault_tools import Toolkit, daemon_in, filled, read_only, small_disk
from processes import until

from toolkit.platforms.local.daemon import running

UNRECORDED = "this command is not recorded in "


@contextmanager
def a_file(folder: Path) -> Iterator[Path]:
    folder.touch()
    yield folder


@contextmanager
def a_full_disk(folder: Path) -> Iterator[Path]:
    with small_disk(folder) as disk, filled(disk):
        yield disk


@contextmanager
def a_small_disk(folder: Path) -> Iterator[Path]:
    with small_disk(folder) as disk:
        yield disk


@contextmanager
def a_read_only_disk(folder: Path) -> Iterator[Path]:
    with small_disk(folder) as disk, read_only(disk) as view:
        yield view


Spoil = Callable[[Path], AbstractContextManager[Path]]

TOOLKIT = (sys.executable, "-m", "toolkit")
HOMES = {
    "a file": (a_file, "Not a directory"),
    "64 kB": (a_small_disk, "No space left on device"),
    "full": (a_full_disk, "No space left on device"),
    "read-only": (a_read_only_disk, "Read-only file system"),
}


@pytest.mark.parametrize("kind", HOMES)
def test_a_home_that_holds_nothing_is_refused_before_anything_is_made_and_stops_no_other_command(
    tmp_path: Path, recipe: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make, why = HOMES[kind]
    with make(tmp_path / "home") as home:
        monkeypatch.setenv("TOOLKIT_HOME", str(home))
        deployed = toolkit("deploy", recipe)
        assert deployed.code == 3
        assert f"The local platform cannot keep its state in {home / 'local'}: {why}." in deployed.err
        assert "name another folder: TOOLKIT_HOME=" in deployed.err
        assert running(home / "local") is None
        listed = toolkit("status", "--platform", "local")
        assert (listed.out, listed.code) == (("", 2) if kind == "a file" else ("no endpoints\n", 0))
        assert toolkit("local", "stop").out == "the local platform was not running\n"
        for command in ("check", "plan", "fit"):
            assert toolkit(command, recipe).code == 0
        assert toolkit("destroy", recipe, "--yes").code == 0
        saved = toolkit("plan", recipe, "--out", home / "plan.json")
        assert saved.code == (0 if kind == "64 kB" else 3)
        assert kind == "64 kB" or f"error: {home / 'plan.json'} could not be written: {why}\n" in saved.err


@pytest.mark.parametrize("spoil", [filled, read_only])
def test_what_was_deployed_before_the_disk_failed_can_be_used_and_destroyed(
    tmp_path: Path,
    recipe: Path,
    toolkit: Toolkit,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], AbstractContextManager[Path]],
) -> None:
    with small_disk(tmp_path / "home", "400m") as home, daemon_in(home):
        monkeypatch.setenv("TOOLKIT_HOME", str(home))
        assert toolkit("deploy", recipe, "--no-prove").code == 0
        until(lambda: toolkit("logs", "tiny").out == "ready\n")  # logs arrive a moment after they were written
        with spoil(home) as spoilt:
            monkeypatch.setenv("TOOLKIT_HOME", str(spoilt))
            assert toolkit("invoke", "tiny", "two and two?").out == "Four\n"
            assert toolkit("logs", "tiny").out == "ready\n"
            assert toolkit("deploy", recipe, "--no-prove").code == 0, "nothing to do"
            removed = toolkit("destroy", "tiny", "--yes", "--platform", "local")
            assert removed.code == 0
            assert removed.err.count(UNRECORDED) == (1 if spoil is read_only else 0), "what is removed makes room"
            assert toolkit("status", "--platform", "local").out == "no endpoints\n"


def test_a_deployment_for_which_the_disk_has_no_room_says_so_and_can_be_destroyed(
    tmp_path: Path, recipe: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "home", "4m") as home, daemon_in(home):
        monkeypatch.setenv("TOOLKIT_HOME", str(home))
        deployed = toolkit("deploy", recipe, "--no-prove")
        assert deployed.code == 3
        assert "The disk is too full for s3://" in deployed.err
        assert toolkit("destroy", recipe, "--yes").code == 0
        assert toolkit("status", "--platform", "local").out == "no endpoints\n"


def test_an_answer_that_cannot_be_written_is_said_once() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([*TOOLKIT, "recipes"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 3
    assert ran.stderr == b"error: the answer could not be written: No space left on device\n"


def test_messages_that_cannot_be_written_do_not_stop_a_command(home: Path) -> None:
    (home / "local" / "daemon.ended").write_text("a message")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([*TOOLKIT, "status"], stderr=full, stdout=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"no endpoints\n")


def test_without_home_and_user_it_is_the_root_as_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        pytest.skip("only root may become a user that nobody knows")
    for name in ("TOOLKIT_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    command = "from toolkit.home import home, cache; import os; os.setuid(54321); print(home(), cache())"
    ran = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert ran.stdout == "/.toolkit /.cache/toolkit\n"
