"""The keeper, as a real process with real children."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from toolkit.platforms.local import keeper

CHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('up', flush=True); {}"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


@contextmanager
def kept(then: str, grace_s: float = 5.0, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A keeper with a program that has a child of its own and is up."""
    program = [sys.executable, "-c", before + CHILD.format(then)]
    command = [sys.executable, "-I", keeper.__file__, str(grace_s), *program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process


def close_the_pipe(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()


@pytest.mark.parametrize("end", [close_the_pipe, terminate])
def test_it_ends_all_processes(end: Callable[[subprocess.Popen[bytes]], None]) -> None:
    with kept("time.sleep(60)") as process:
        assert len(keeper.session_members(process.pid)) == 3
        end(process)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert keeper.session_members(process.pid) == []


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace_time() -> None:
    with kept("time.sleep(60)", grace_s=0.2, before=STUBBORN) as process:
        started = time.monotonic()
        close_the_pipe(process)
        assert process.wait(30) == 128 + signal.SIGKILL
        assert time.monotonic() - started >= 0.2
        assert keeper.session_members(process.pid) == []


def test_a_program_may_use_its_grace_time() -> None:
    handler = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), sys.exit(4))); "
    with kept("time.sleep(60)", before=handler) as process:
        close_the_pipe(process)
        assert process.wait(30) == 4


def test_the_exit_code_is_passed_on_and_what_is_left_is_killed() -> None:
    with kept("sys.exit(9)") as process:
        assert process.wait(30) == 9
        assert keeper.session_members(process.pid) == []


def test_a_program_killed_by_a_signal_ends_as_a_shell_would_say() -> None:
    with kept("import os; os.kill(os.getpid(), 9)") as process:
        assert process.wait(30) == 137


def test_a_program_sees_sigterm_even_when_whoever_started_it_blocks_it() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with kept("time.sleep(60)") as process:
            close_the_pipe(process)
            assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def test_kill_session_spares_the_caller() -> None:
    script = (
        "import os, subprocess; os.setsid(); subprocess.Popen(['sleep', '60']);"
        "from toolkit.platforms.local import keeper; keeper.kill_session(os.getpid());"
        "print(keeper.session_members(os.getpid()) == [os.getpid()])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=10).stdout == b"True\n"


def test_it_starts_at_once() -> None:
    took = []
    for _ in range(5):
        before = time.monotonic()
        subprocess.run(
            [sys.executable, "-I", keeper.__file__, "1", "true"], stdin=subprocess.DEVNULL, timeout=60, check=False
        )
        took.append(time.monotonic() - before)
    assert min(took) < 1
