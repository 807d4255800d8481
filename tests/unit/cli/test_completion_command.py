"""`toolkit completion`: the script that bash reads completes what is typed, without a Python."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.cli.main import run

_TRY = """\
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _toolkit
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    assert run(["completion", "bash"]) == 0
    path = tmp_path / "toolkit.bash"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("toolkit depl", {"deploy"}),
        ("toolkit deploy --base", {"--baseline"}),
        ("toolkit deploy tiny/p", {"tiny/p-eagle"}),
        ("toolkit --region us-east-1 de", {"deploy", "destroy"}),
        ("toolkit local st", {"status", "stop"}),
        ("toolkit schema tiny/p", {""}),
    ],
)
def test_bash_completes_commands_options_and_recipes(script: Path, typed: str, completed: set[str]) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", _TRY.format(script=script, words=typed)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},  # without a Python of ours
    )
    assert set(done.stdout.splitlines()) == completed
    assert sys.executable not in script.read_text()


def test_zsh_gets_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "zsh"]) == 0
    written = capsys.readouterr().out
    assert all(word in written for word in ("deploy", "baseline", "tiny/p-eagle"))


def test_fish_gets_options_apart_from_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    """fish(1) `complete`: -l is a long option, -a are the other words, -n says when."""
    assert run(["completion", "fish"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    first, *others = ([*line[3:]] for line in lines)
    assert all(line[:3] == ["complete", "-c", "toolkit"] for line in lines)
    assert first[:3] == ["-n", "__fish_use_subcommand", "-f"]
    assert {"deploy", "check"} < set(first[4].split())
    in_deploy = [line[2:] for line in others if line[1] == "__fish_seen_subcommand_from deploy"]
    assert ["-l", "baseline"] in in_deploy
    (words,) = (line[1].split() for line in in_deploy if line[0] == "-a")
    assert "tiny/p-eagle" in words
    assert not [word for line in lines if line[-2] == "-a" for word in line[-1].split() if word.startswith("-")]
