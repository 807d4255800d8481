"""What the toolkit keeps of a user is for that user: conversations, answers, records, heads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_account import Account
from private_files import open_to_others

from toolkit.api.context import record_of
from toolkit.api.traffic import Attempt
from toolkit.apply.progress import Silent
from toolkit.catalog import updates
from toolkit.home import home_folder
from toolkit.planning.resources import Account as Place

pytestmark = pytest.mark.usefixtures("_usual_umask")
NOWHERE = Place("", "")


@pytest.fixture
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "own"))
    return tmp_path / "own"


def test_what_a_command_keeps_is_its_owners_alone(own: Path) -> None:
    Attempt("head", "traffic", "settings").write("chat")
    updates.write(updates.Update())
    record_of("chat", "local", NOWHERE, Silent())._append("{}")
    assert len([path for path in own.rglob("*") if path.is_file()]) == 3
    assert open_to_others(own) == []


def test_what_a_deployment_on_this_machine_keeps_is_its_owners_alone(account: Account, home: Path) -> None:
    assert any(home.rglob("session")), "a container runs"
    assert open_to_others(home) == []


def test_a_home_that_was_left_open_is_closed_with_all_that_is_in_it(own: Path) -> None:
    work = own / "training" / "job" / "work"
    work.mkdir(parents=True)
    (work / "conversations.jsonl").touch()
    (work / "program").touch(mode=0o755)
    assert home_folder("training") == own / "training"
    assert open_to_others(own) == []
    assert stat.S_IMODE((work / "program").stat().st_mode) == 0o700


def test_what_is_not_the_toolkits_in_that_folder_keeps_who_may_read_it(own: Path, tmp_path: Path) -> None:
    (tmp_path / "others").touch()
    (own / "records").mkdir(parents=True)
    (own / "records" / "link").symlink_to(tmp_path / "others")
    (own / "notes.txt").touch()
    home_folder("records")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (own, own / "notes.txt", tmp_path / "others")]
    assert modes == [0o755, 0o644, 0o644]
    assert open_to_others(own / "records") == []
