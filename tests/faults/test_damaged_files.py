"""Every file below the home is emptied, truncated or garbled, one at a time, before every command: nothing is lost.

With $TOOLKIT_EVERY_CRASH all three happen to every file, otherwise the worst.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fault_tools import EVERY_FAULT, Toolkit

Damage = Callable[[bytes], bytes]

DAMAGES: dict[str, Damage] = {
    "emptied": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "garbled": lambda content: bytes(byte ^ 0x55 for byte in content) + b"\xff\x00{",
}
FILES = {
    "the record": "records/tiny.jsonl",
    "daemon.json": "local/daemon.json",
    "the daemon's key": "local/credentials",
    "daemon.lock": "local/daemon.lock",
    "start.lock": "local/start.lock",
    "the daemon's log": "local/daemon.log",
    "the session of the container": "local/endpoints/*/*/*/session",
    "the model's configuration": "local/endpoints/*/*/*/opt/ml/model/config.json",
}
TRIED = list(DAMAGES) if EVERY_FAULT else ["garbled"]
READING = {
    "status": ("status", "--platform", "local"),
    "local status": ("local", "status"),
    "deploy": ("deploy", "RECIPE", "--no-prove"),
    "invoke": ("invoke", "tiny", "What is two and two?", "--platform", "local"),
    "logs": ("logs", "tiny", "--platform", "local"),
}


@pytest.fixture
def deployed(home: Path, recipe: Path, toolkit: Toolkit) -> Path:
    """The home of a daemon that serves the recipe's endpoint."""
    if not list(home.glob("local/endpoints/*")):
        assert toolkit("deploy", recipe, "--no-prove").code == 0
    return home


def file_in(home: Path, pattern: str) -> Path:
    (found,) = home.glob(pattern)
    return found


@contextmanager
def damaged(file: Path, damage: Damage) -> Iterator[None]:
    """In place, as a full disk or a crash of the machine leaves it. What the daemon does not mend, the test does."""
    content = file.read_bytes()
    write(file, damage(content))
    yield
    write(file, content)


def write(file: Path, content: bytes) -> None:
    with file.open("r+b") as stream:
        stream.write(content)
        stream.truncate()


def test_these_are_all_the_files(deployed: Path) -> None:
    covered = {file for pattern in FILES.values() for file in deployed.glob(pattern)}
    rest = {file for file in deployed.rglob("*") if file.is_file()} - covered
    assert {file.parent.name for file in rest} <= {"model", "drafter"}, "more model data"


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("damage", TRIED)
def test_a_command_does_what_it_does_whichever_file_is_damaged(
    deployed: Path, recipe: Path, toolkit: Toolkit, damage: str, command: str
) -> None:
    arguments = [str(recipe) if argument == "RECIPE" else argument for argument in READING[command]]
    undisturbed = toolkit(*arguments)
    assert undisturbed.code == 0
    for name, pattern in FILES.items():
        with damaged(file_in(deployed, pattern), DAMAGES[damage]):
            ran = toolkit(*arguments)
        assert (ran.code, _words(ran.out)) == (0, _words(undisturbed.out)), f"{name} {damage}"


def _words(text: str) -> list[str]:
    """Without the times that pass, and lines below a table's head, which are as long as they are."""
    return [word for word in text.split() if not word[0].isdigit() and word.strip("-") not in ("", "s", "min")]


@pytest.mark.parametrize("damage", TRIED)
@pytest.mark.parametrize("name", FILES)
def test_destroy_leaves_nothing_whichever_file_is_damaged(
    deployed: Path, toolkit: Toolkit, name: str, damage: str
) -> None:
    file = file_in(deployed, FILES[name])
    write(file, DAMAGES[damage](file.read_bytes()))
    ran = toolkit("destroy", "tiny", "--yes", "--platform", "local", "--json")
    assert (ran.code, len(json.loads(ran.out)["actions"])) == (0, 10)
    assert toolkit("status", "--platform", "local").out == "no endpoints\n"
    assert list(deployed.glob("local/endpoints/*")) == []
