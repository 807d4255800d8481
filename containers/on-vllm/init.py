"""What a container's first process owes the others, as tini does it: signals, and those that ended. Needs no package.

For process 1 Linux ignores every signal that it has no handler for: a stop while a program loads would take the whole
grace time. And nobody but process 1 can reap what others left behind.
"""

from __future__ import annotations

import os
import signal

# Those of a fault of the process itself, and those that nobody can take.
KEPT_SIGNALS = {
    *(signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
    *(signal.SIGTTIN, signal.SIGTTOU, signal.SIGKILL, signal.SIGSTOP),
}


def stay_as_init() -> None:
    """Where this is process 1, returns in a child of it, for which it stays: it passes signals on, reaps, ends alike.

    The child has a process group of its own, so that Ctrl-C in a terminal reaches it once.
    """
    if os.getpid() != 1:
        return
    passed_on = signal.valid_signals() - KEPT_SIGNALS
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on | {signal.SIGTTOU})
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        if os.isatty(0):
            os.tcsetpgrp(0, os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        received = signal.sigwait(passed_on)
        if received != signal.SIGCHLD:
            os.kill(child, received)
            continue
        for ended, status in iter(reap, None):
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                os._exit(128 - code if code < 0 else code)


def reap() -> tuple[int, int] | None:
    """A process that has ended, and how; None where none has, or none is left."""
    try:
        ended, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (ended, status) if ended else None
