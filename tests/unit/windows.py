"""Runs `toolkit` as if on Windows: without the modules and functions that Python has on Unix alone.

    python windows.py COMMAND…    as `toolkit COMMAND…`
    python windows.py             imports every module of the core, and says which cannot be imported

Only what is missing is imitated: sys.platform, paths, consoles and files are this machine's.
"""

from __future__ import annotations

import os
import pkgutil
import signal
import sys
from importlib import import_module

MODULES = ("curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
OF_OS = (
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW chown fchmod fchown fork getegid geteuid getgid getloadavg getpgid getuid killpg "
    "mkfifo openpty pread sched_getaffinity setsid sysconf uname wait waitid"
)
OF_SIGNAL = "SIGALRM SIGCHLD SIGHUP SIGKILL SIGQUIT SIGUSR1 SIGUSR2 pthread_sigmask setitimer sigwait"
ON_UNIX_ALONE = (
    "toolkit.platforms.local.",
    "toolkit.training.",
    "toolkit.engines.vllm.forking_cpu",
    "toolkit.engines.vllm.states_on_cpu",
    "toolkit.__main__",
)


def imitate() -> None:
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names.split():
            delattr(module, name)


def not_imported() -> list[str]:
    import toolkit

    failed = []
    for module in pkgutil.walk_packages(toolkit.__path__, "toolkit."):
        if not module.name.startswith(ON_UNIX_ALONE):
            try:
                import_module(module.name)
            except ImportError as error:
                failed.append(f"{module.name}: {error}")
    return failed


if __name__ == "__main__":
    imitate()
    if sys.argv[1:]:
        from toolkit.cli.main import run

        sys.exit(run(sys.argv[1:]))
    print(*not_imported(), sep="\n")
