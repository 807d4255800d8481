"""`toolkit completion`: the script that bash reads completes what is typed, without a Python."""

from __future__ import annotations

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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    written = capsys.readouterr().out
    assert all(word in written for word in ("deploy", "baseline", "tiny/p-eagle"))
