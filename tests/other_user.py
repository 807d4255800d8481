"""What another user of this machine can do: code that runs as `nobody`."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - loaded now: `nobody` may not read the interpreter's files
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import pytest

T = TypeVar("T")


def as_nobody(work: Callable[..., T], *arguments: object) -> T:
    """What the function gives, or raises, in a process of the user `nobody`."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can become another user")
    with ProcessPoolExecutor(1, get_context("fork"), _become_nobody) as pool:
        return pool.submit(work, *arguments).result()


def _become_nobody() -> None:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
