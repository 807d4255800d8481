"""What a new user meets: a home that is a file, an answer that nobody reads on, an address without a server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.cli.main import run
from toolkit.recipe.known import catalogue_dir


def test_a_home_that_is_a_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "home"
    file.touch()
    monkeypatch.setenv("TOOLKIT_HOME", str(file))
    assert run(["status"]) == 2
    assert f"error: TOOLKIT_HOME is {file}, which is no folder\n" in capsys.readouterr().err


def test_a_folder_that_was_deleted_under_the_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKIT_HOME", "kept")
    tmp_path.rmdir()
    assert run(["status", "--json"]) == 2
    said = capsys.readouterr()
    assert said.err == "error: the folder that this runs in was deleted\n  Go to one that is there, such as: cd ~\n"
    assert json.loads(said.out)["error"] == "UsageError"


def test_no_folder_for_temporary_files_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a full /tmp, or a container whose root file system can only be read."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/dev/null/tmp"])
    assert run(["check", "--ask", "tiny/p-eagle"]) == 3
    assert "error: there is no folder for temporary files" in capsys.readouterr().err


def test_who_reads_only_the_beginning_gets_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "toolkit", "recipes", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("what", ["recipes", "recipes show nothing"])
def test_a_command_runs_with_closed_streams(closed: str, what: str) -> None:
    command = f'"$0" -m toolkit {what}'
    ended = [
        subprocess.run(["sh", "-c", f"{command} {streams}", sys.executable], capture_output=True, check=False)
        for streams in ("", closed)
    ]
    assert ended[1].returncode == ended[0].returncode
    assert ended[1].stdout == (b"" if " >&-" in f" {closed}" else ended[0].stdout)
    assert ended[1].stderr == (b"" if "2>&-" in closed else ended[0].stderr)


def test_an_address_at_which_nothing_answers_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        assert run(["prove", f"http://127.0.0.1:{bound.getsockname()[1]}"]) == 3
    said = capsys.readouterr().err
    assert "refused" in said
    assert "Nothing answers there: start it, or correct its address." in said


def test_links_of_a_page_are_commands_that_show_what_they_lead_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "own-model"]) == 0
    page = capsys.readouterr().out
    assert "All keys (`toolkit schema`)" in page
    assert "trained for it (`toolkit docs training`)" in page
    assert ".md)" not in page


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["plan", "tiny/p-eagle", "--out", "{folder}"], "That is a folder: name a file in it."),
        (["plan", "tiny/p-eagle", "--out", "{folder}/none/plan.json"], "There is no folder {folder}/none: make it"),
        (["convert", "{head}", "--out", "{file}/head"], ""),
    ],
    ids=["a folder", "in no folder", "below a file"],
)
def test_what_cannot_be_written_is_one_document_too(
    command: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    named = {"folder": str(tmp_path), "file": str(file), "head": str(catalogue_dir() / "tiny/models/p-eagle")}
    assert run([*(word.format(**named) for word in command), "--json"]) == 3
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["error"], document["message"] in printed.err) == ("PlatformError", True)
    assert hint.format(**named) in document["hint"]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "command",
    [
        ["deploy", "--plan", "{}"],
        ["bench", "--compare", "{}", "{}"],
        ["bench", "--parquet", "{}", "{}.parquet"],
        ["import", "{}"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_folder_in_place_of_a_file_is_told_once(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word.format(tmp_path) for word in command]) == 2
    first, _ = capsys.readouterr().err.splitlines()
    assert (first.endswith(": Is a directory"), first.count(str(tmp_path))) == (True, 1)
