"""Runs a container's program, and sees to it that none of its processes outlives the daemon.

    python keeper.py GRACE_S PROGRAM [ARGUMENT ...]

Standard input is a pipe that the daemon holds open and never writes to. When it closes (the daemon closed it, or is
gone, even by kill -9), or on SIGTERM, the program's process group gets SIGTERM and, after the grace time, everything
that is left SIGKILL. When the program ends by itself, what it leaves behind is killed too, and its exit code passed on.

A program that only asks an engine for a container (podman, docker) leaves it in no session of ours. The command that
removes it stands in the file `removal` of the working directory, and is run last.

The keeper leads a session of its own, so that "everything" is: every process of that session. Standard library only,
and no import of the toolkit: this runs in front of each container.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_REMOVAL = "removal"
_REMOVAL_S = 60.0


def main(arguments: Sequence[str]) -> int:
    """Exit code of the program; 128 + N when signal N ended it, as a shell says it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started us may block SIGTERM, and masks are inherited
    grace_s = float(arguments[0])
    asked_to_end, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)

    program = subprocess.Popen(arguments[1:], stdin=subprocess.DEVNULL, process_group=0)
    ended = os.pidfd_open(program.pid)
    select.select([sys.stdin, asked_to_end, ended], [], [])
    if not select.select([ended], [], [], 0)[0]:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
        select.select([ended], [], [], grace_s)
    kill_session(os.getpid())
    run_removal(Path.cwd())
    code = program.wait()
    return code if code >= 0 else 128 - code


def kill_session(session: int) -> None:
    """End every process of that session except the caller, at once; returns when they are gone."""
    while others := [pid for pid in session_members(session) if pid != os.getpid()]:
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def write_removal(folder: Path, command: Sequence[str]) -> None:
    """Note which command removes the container of that folder."""
    (folder / _REMOVAL).write_text(json.dumps(list(command)))


def run_removal(folder: Path) -> None:
    """Run the command that was noted, if one was; that the container is gone already is no error."""
    with suppress(FileNotFoundError, ValueError, subprocess.TimeoutExpired):
        command = json.loads((folder / _REMOVAL).read_text())
        null = subprocess.DEVNULL
        subprocess.run(
            command, stdin=null, stdout=null, stderr=null, timeout=_REMOVAL_S, start_new_session=True, check=False
        )


def session_members(session: int) -> list[int]:
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # pid (any name) state ppid pgrp session ...
            state, _, _, its_session = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                members.append(int(stat.parent.name))
    return members


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
