"""kill -9 of the command, the daemon, the keeper, the entrypoint and the engine, at moments left to chance.

Afterwards the same command does what it was to do, and `destroy` leaves nothing running and nothing lying about.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_tools import CONTAINERS, EVERY_FAULT, Toolkit
from processes import processes_in, until

from toolkit.home import containers_dir
from toolkit.platforms.local.daemon import running, start, stop
from toolkit.platforms.local.keeper import session_members

TINY = Path(__file__).parents[2] / "recipes" / "tiny" / "ngram.yaml"
# The command in a process of its own. A daemon that it starts runs the containers of the test.
PROGRAM = """
import sys
from pathlib import Path
from toolkit.platforms.local import session
containers = Path(sys.argv.pop(1))
session.containers_dir = lambda: containers
from toolkit.cli.main import main
main()
"""
Capture = pytest.CaptureFixture[str]
VICTIMS = ("command", "daemon", "keeper", "entrypoint", "engine")
COMMANDS = ("deploy", "update", "destroy", "invoke", "bench")
ROUNDS = 100 if EVERY_FAULT else 5
ROUNDS_WITH_VLLM = 5 if EVERY_FAULT else 0
LENGTHS = ("max_model_len: 1024", "max_model_len: 512")


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the local platform keeps its state; and a folder of its own for temporary files, whose path is short."""
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setenv("TMPDIR", temporary)
        yield tmp_path / "home" / "local"
        stop(tmp_path / "home" / "local")


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_whatever_is_killed_nothing_is_lost_and_nothing_is_left(
    seed: int, local: Path, recipe: Path, toolkit: Toolkit, capsys: Capture
) -> None:
    own = local.parent.parent / "recipe.yaml"
    own.write_text(recipe.read_text().replace("./", f"{recipe.parent}/"))
    play(seed, local, own, "tiny", CONTAINERS, toolkit, capsys, 3)


@pytest.mark.serving
@pytest.mark.parametrize("seed", range(ROUNDS_WITH_VLLM))
def test_whatever_is_killed_of_a_real_vllm_nothing_is_lost_and_nothing_is_left(
    seed: int, local: Path, toolkit: Toolkit, capsys: Capture
) -> None:
    own = local.parent.parent / "recipe.yaml"
    own.write_text(TINY.read_text().replace("./", f"{TINY.parent}/"))
    play(seed, local, own, "tiny-ngram", containers_dir(), toolkit, capsys, 40)


def play(
    seed: int,
    local: Path,
    recipe: Path,
    name: str,
    containers: Path,
    toolkit: Toolkit,
    capsys: Capture,
    longest_s: float,
) -> None:
    """One round: a command, a victim and a moment that the seed chooses."""
    chance = random.Random(seed)
    victim, command = VICTIMS[seed % len(VICTIMS)], chance.choice(COMMANDS)
    start(local, containers)
    if command != "deploy":
        assert toolkit("deploy", recipe, "--no-prove").code == 0
    if command == "update":
        old, new = LENGTHS
        recipe.write_text(recipe.read_text().replace(old, new))
    measured = local.parent.parent / "measured.jsonl"
    arguments = {
        "bench": [
            "bench",
            name,
            "--platform",
            "local",
            "--time",
            "2s",
            "--concurrency",
            "1",
            "--resume",
            str(measured),
        ],
        "destroy": ["destroy", str(recipe), "--yes"],
        "invoke": ["invoke", name, "One, two,", "--platform", "local", "--max-tokens", "64"],
    }.get(command, ["deploy", str(recipe), "--no-prove"])

    program = [sys.executable, "-c", PROGRAM, str(containers), *arguments]
    began = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(chance.uniform(0, longest_s))
        killed = kill(victim, began, local)
        began.wait(300)
    finally:
        began.kill()
    with capsys.disabled():
        print(f" {command}: {'killed' if killed else 'too late for'} the {victim}")

    start(local, containers)  # its endpoints are gone with it
    if command in ("invoke", "bench"):
        assert toolkit("deploy", recipe, "--no-prove").code == 0
    before = measured.read_bytes() if measured.is_file() else b""
    succeeds(toolkit, *arguments, codes=(0, 1) if command == "bench" else (0,))  # 1: this container does not speculate
    if command == "bench":
        assert measured.read_bytes().startswith(before[: before.rfind(b"\n") + 1]), "what was measured stays"
    assert toolkit("deploy", recipe, "--no-prove").code == 0
    succeeds(toolkit, "invoke", name, "One, two,", "--platform", "local")

    assert toolkit("destroy", recipe, "--yes").code == 0
    assert toolkit("status", "--platform", "local").out == "no endpoints\n"
    until(lambda: processes_in(local / "endpoints") == [])
    assert list(local.glob("endpoints/*")) == []
    stop(local)
    assert processes_in(local) == []
    assert list(Path(os.environ["TMPDIR"]).iterdir()) == []


def kill(victim: str, command: subprocess.Popen[bytes], local: Path) -> bool:
    """Whether there was one of it at that moment."""
    daemon = running(local)
    sessions = [int(file.read_text() or 0) for file in local.glob("endpoints/*/*/*/session")]
    of_container = [pid for session in sessions for pid in sorted(session_members(session))]
    ids = {
        "command": [command.pid] if command.poll() is None else [],
        "daemon": [daemon.pid] if daemon else [],
        "keeper": sessions,
        "entrypoint": of_container[1:2],
        "engine": of_container[2:],
    }[victim]
    for pid in ids[:1]:
        os.kill(pid, signal.SIGKILL)
    if victim == "daemon" and daemon:  # while it dies it still has its lock
        until(lambda: not Path(f"/proc/{daemon.pid}").exists())
    return bool(ids)


def succeeds(toolkit: Toolkit, *arguments: str, codes: tuple[int, ...] = (0,), timeout_s: float = 240) -> None:
    """Run it until it does: a container may be on its way back."""
    deadline = time.monotonic() + timeout_s
    while (ran := toolkit(*arguments)).code not in codes:
        assert time.monotonic() < deadline, ran
        time.sleep(0.1)
