"""`toolkit completion`: the script that bash reads completes what is typed, without a Python."""

from __future__ import annotations

import re
import shutil
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


_PLACES = [
    ("toolkit depl", {"deploy"}),
    ("toolkit --region us-east-1 depl", {"deploy"}),
    ("toolkit --profile deploy dest", {"destroy"}),
    ("toolkit deploy --platform l", {"local"}),
    ("toolkit new --platform local --me", {"--method"}),
    ("toolkit local st", {"status", "stop"}),
    ("toolkit local stop --j", {"--json"}),
    ("toolkit catalog update --e", {"--ec2"}),
    ("toolkit completion ", {"--help", "bash", "fish", "zsh"}),
    ("toolkit destroy tiny/p", {"tiny/p-eagle"}),
    ("toolkit bench --arm tiny/p", {"tiny/p-eagle"}),
    ("toolkit schema tiny/p", set()),
]
"""What comes after commands, after commands below them, and after options with their values."""


@pytest.mark.parametrize(("typed", "completed"), _PLACES)
def test_bash_knows_where_a_word_stands(script: Path, typed: str, completed: set[str]) -> None:
    words = f"{typed}''" if typed.endswith(" ") else typed
    assert set(_ask("bash", "--norc", "-c", _TRY.format(script=script, words=words)).split()) == completed


def test_bash_completes_values_and_files_that_hold_what_it_would_take_apart(script: Path, tmp_path: Path) -> None:
    """Of `--option=value` it makes three words."""
    (tmp_path / "tiny mine.yaml").touch()
    assert _ask("bash", "--norc", "-c", _TRY.format(script=script, words="toolkit plan --platform '=' l")) == "local\n"
    there = _ask("bash", "--norc", "-c", f"cd {tmp_path}\n{_TRY}".format(script=script, words="toolkit check tiny"))
    assert {"tiny\\ mine.yaml", "tiny/p-eagle"} < set(there.splitlines())


_ZSH = """\
compadd() {{ shift; print -l -- ${{(M)@:#${{words[CURRENT]}}*}} }}
compset() {{ return 1 }}
compdef() {{ }}
_files() {{ }}
source {script}
words=({words}); CURRENT=$#words; _toolkit
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="without zsh")
@pytest.mark.parametrize(("typed", "completed"), _PLACES)
def test_zsh_knows_where_a_word_stands(
    typed: str, completed: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = _written("zsh", capsys, tmp_path)
    words = f"{typed}''" if typed.endswith(" ") else typed
    assert set(_ask("zsh", "-f", "-c", _ZSH.format(script=script, words=words)).split()) == completed


@pytest.mark.skipif(shutil.which("fish") is None, reason="without fish")
@pytest.mark.parametrize(("typed", "completed"), [*_PLACES, ("toolkit plan --platform=l", {"--platform=local"})])
def test_fish_knows_where_a_word_stands(
    typed: str, completed: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = _written("fish", capsys, tmp_path)
    (tmp_path / "empty").mkdir()
    ask = f"source {script}; cd {tmp_path}/empty; complete -C '{typed}'"
    assert set(_ask("fish", "--no-config", "-c", ask).split()) == completed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_shell_gets_the_words_of_each_place(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where neither shell is."""
    written = _written(shell, capsys, tmp_path).read_text()
    lines = {line.split("'")[1]: line for line in written.splitlines() if "found" in line and line.count("'") == 2}
    assert {"local", "sagemaker"} <= set(_words(lines[" deploy --platform"]))
    assert {"--json", "--help"} <= set(_words(lines[" local stop"]))
    assert "$recipes" in _words(lines[" destroy"])
    assert "$recipes" not in lines[" import"]


def _words(line: str) -> list[str]:
    return re.findall(r"[$\w-]+", line)


def _written(shell: str, capsys: pytest.CaptureFixture[str], folder: Path) -> Path:
    assert run(["completion", shell]) == 0
    path = folder / f"toolkit.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def _ask(*command: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}  # without a Python of ours
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
