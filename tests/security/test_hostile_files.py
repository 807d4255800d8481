"""Files and folders of others, given to the commands that measure, render, tune and explain."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from pairs import recipe_with, write_hub_pair, write_pair
from scripted_http import Reply, scripted

from toolkit.api.trials import Trials
from toolkit.apply.progress import PlainProgress
from toolkit.cli.main import run
from toolkit.endpoint.events import EventReader
from toolkit.endpoint.generation import Stream
from toolkit.errors import InvocationError, UsageError
from toolkit.files import write_whole
from toolkit.loading import load
from toolkit.measure.journal import Journal
from toolkit.measure.page import _PAGE, require_free
from toolkit.measure.result import RequestResult

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A file of the user's that no command has any business with."""
    path = tmp_path / "bashrc"
    path.write_text("mine")
    return path


def test_a_link_in_the_place_of_what_is_written_is_replaced_and_not_followed(tmp_path: Path, owned: Path) -> None:
    (tmp_path / "lock.json").symlink_to(owned)
    write_whole(tmp_path / "lock.json", "new")
    assert owned.read_text() == "mine"
    assert (tmp_path / "lock.json").read_text() == "new"


def test_links_at_names_that_can_be_guessed_are_not_written_through(tmp_path: Path, owned: Path) -> None:
    (tmp_path / f".lock.json.{os.getpid()}").symlink_to(owned)
    write_whole(tmp_path / "lock.json", "new")
    assert owned.read_text() == "mine"


def test_who_may_read_a_file_does_not_change_when_it_is_written_again(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("old")
    recipe.chmod(0o600)
    write_whole(recipe, "new")
    assert stat.S_IMODE(recipe.stat().st_mode) == 0o600


def test_a_page_takes_the_place_of_a_report_only(tmp_path: Path, owned: Path, capsys: Capture) -> None:
    assert run(["bench", "http://127.0.0.1:9/v1", "--html", str(owned)]) == 2
    assert "is not a report of the toolkit" in capsys.readouterr().err
    assert owned.read_text() == "mine"


def test_a_report_s_page_may_be_written_again(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(_PAGE.substitute(title="", body=""))
    require_free(page)
    require_free(tmp_path / "new.html")


def test_render_writes_through_no_link_in_its_folder(tmp_path: Path, owned: Path, capsys: Capture) -> None:
    recipe = write_hub_pair(tmp_path)
    folder = tmp_path / "k8s"
    assert run(["render", str(recipe), "--out", str(folder)]) == 0
    others = tmp_path / "others"
    others.mkdir()
    (folder / "kustomization.yaml").unlink()
    (folder / "kustomization.yaml").symlink_to(owned)
    shutil.rmtree(folder / "benchmark")
    (folder / "benchmark").symlink_to(others)
    assert run(["render", str(recipe), "--out", str(folder)]) == 2
    assert "benchmark leads out of" in capsys.readouterr().err
    assert (owned.read_text(), list(others.iterdir())) == ("mine", [])


def test_a_journal_that_others_could_read_is_closed_before_answers_go_into_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch(mode=0o666)
    path.chmod(0o666)
    journal = Journal(path, {})
    assert list(journal.results()) == []
    journal.add([RequestResult("a", "w", 0, 0, 1.0, 0.0, 1.0, "successful", text="secret")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_journal_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch()
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can give a file away")
    os.chown(path, 65534, 65534)
    with pytest.raises(UsageError, match=r"run\.jsonl belongs to another user"):
        list(Journal(path, {}).results())


def test_a_log_without_an_end_is_refused(capsys: Capture) -> None:
    assert run(["explain", "/dev/zero"]) == 2
    assert "/dev/zero is a device" in capsys.readouterr().err


def test_a_stream_of_small_pieces_without_a_line_is_not_read_again_and_again() -> None:
    """Two hundred thousand pieces: looking through all of them at each would take hours."""
    reader = EventReader()
    for _ in range(200_000):
        assert not list(reader.read(b"x" * 64))


@pytest.mark.parametrize("event", [b'{"error": %s}', b'{"choices": [{"delta": {"tool_calls": %s}}]}', b'{"x": %s}'])
def test_a_stream_with_deeply_nested_events_is_refused(event: bytes) -> None:
    """Also at the depth that can just be read, but not be shown in a message."""
    for depth in [*range(900, 1100), 100_000]:
        with pytest.raises(InvocationError):
            _ = Stream([b"data: " + event % (b"[" * depth + b"]" * depth) + b"\n\n"]).result


def test_a_file_in_the_state_of_tune_has_no_other_endpoint_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    recipe = recipe_with(load(write_pair(tmp_path)), name="tiny")
    said: list[str] = []
    left = tmp_path / "home" / "tuning" / "tiny" / "deployed"
    left.mkdir(parents=True)
    (left / "production").touch()
    with Trials(recipe, lambda *_: pytest.fail("measured"), {}, PlainProgress(said.append)):
        pass
    assert said == []
    assert (left / "production").exists()


def test_a_server_that_is_measured_sends_the_key_nowhere_else(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """A redirect is a failure, not an address to ask: it could be a service of the cloud that trusts this machine."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    with (
        scripted(Reply()) as inner,
        scripted(Reply(302, (), {"Location": f"{inner.url}/latest/meta-data/"})) as server,
    ):
        assert run(["bench", f"{server.url}/v1"]) == 3
        assert server.requests
    assert inner.requests == []
    assert "302" in capsys.readouterr().err
