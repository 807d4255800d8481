"""Leases, so that only one process changes an endpoint at a time. The holder renews its lease in a shared store.

A process that was stopped for longer than its lease lasts learns of it before it changes anything: see `confirm`.
"""

from __future__ import annotations

import getpass
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError

_ATTEMPTS = 5
_SURE_SHARE = 0.5  # of a lease's time after a write of it, in which nobody can have taken it over


def _elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()


class LeaseHeld(PlatformError):
    """Somebody else holds it."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lease. `since` is by its own clock, in seconds since 1970; `machine` is where `pid` is valid."""

    user: str
    host: str
    machine: str
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    since: Annotated[float, Field(allow_inf_nan=False)]

    def __str__(self) -> str:
        minutes = (time.time() - self.since) / 60
        return f"{self.user} on {self.host} (process {self.pid}), since {minutes:.0f} minutes"


def read_holder(text: str | bytes) -> Holder:
    """The holder that a stored lease names. Raises ValueError where it names none."""
    return documents.parse(Holder, text)


@dataclass(frozen=True)
class Entry:
    """A lease as it is stored, which lasts for `seconds` without a renewal.

    `holder` is a name where a program of another kind holds it, and None where what is stored is no lease or, by the
    store's own clock, one that is over.
    """

    version: str
    holder: Holder | str | None
    seconds: float


@dataclass(frozen=True)
class Rules:
    """How long a lease lasts in a store. A dead holder keeps others out for `seconds`; a live one renews meanwhile.

    With `poll_seconds`, the pause between two looks at another's lease, no clock but our own counts, as in client-go's
    leader election: a lease that nobody changes for its time is over. Without, it is over when the store sees that
    nobody has renewed it for its time; no clock of a holder counts.
    """

    seconds: float
    renewal_seconds: float
    poll_seconds: float | None


class LeaseStore(Protocol):
    """Where one lease is kept. Every write names the version that it replaces: of two at once, one is refused."""

    @property
    def key(self) -> str:
        """Names this lease among those of all stores."""

    @property
    def rules(self) -> Rules:
        """How long the lease lasts."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a call raises that does not get through."""

    def create(self, holder: Holder) -> str:
        """The new lease's version; empty when there is one already."""

    def read(self) -> Entry | None:
        """The lease. Raises PlatformError when its name is taken by something else."""

    def replace(self, holder: Holder, version: str) -> str:
        """The new version; empty when `version` is not the present one."""

    def delete(self, version: str) -> bool:
        """Whether `version` was the present one."""


@contextmanager
def lease(
    endpoint: str,
    store: LeaseStore,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    elapsed: Callable[[], float] = _elapsed,
) -> Iterator[Callable[[], None]]:
    """Hold the endpoint's lease. Raises PlatformError when somebody else holds it, and what the store raises.

    That of a dead process of this machine ends at once, and so does one that this process could not give back. Gives
    `confirm`, to be called before each change: it raises PlatformError where the lease is no longer ours. `elapsed` is
    a clock in seconds that goes on while the process, or the machine, is stopped.
    """
    claim = _Claim(endpoint, store, this_process(), clock, sleep, elapsed)
    with _alone_in_this_process(claim):
        claim.acquire()
        over = threading.Event()
        renewing = threading.Thread(target=claim.renew_until, args=(over,), daemon=True)
        renewing.start()
        try:
            yield claim.confirm
        finally:
            over.set()
            renewing.join()
            claim.release()


@contextmanager
def turn(what: str, store: LeaseStore, progress: Progress, pause: Callable[[], None]) -> Iterator[None]:
    """Hold a lease as soon as nobody else does; until then it is said who does. Raises what the store raises."""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lease(what, store))
                break
            except LeaseHeld as error:
                progress.update(f"waiting: {error.message}")
                pause()
        yield


@dataclass(frozen=True)
class Fenced:
    """What sends requests, and asks before each that changes something whether the lease is still held.

    An action makes several requests and may wait for minutes between them, and the process be stopped meanwhile.
    """

    _confirms: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False, compare=False)

    @contextmanager
    def confirmed(self, confirm: Callable[[], None]) -> Iterator[None]:
        """Ask `confirm` before each such request is sent, and before it is sent again."""
        self._confirms.append(confirm)
        try:
            yield
        finally:
            self._confirms.remove(confirm)

    def confirm(self) -> None:
        """Raises what the lease raises that is no longer held."""
        for confirm in self._confirms:
            confirm()


def this_process() -> Holder:
    return Holder(_user(), socket.gethostname(), _machine(), os.getpid(), time.time())


def _user() -> str:
    """The name that we run under; a number where there is none, as containers and pods run with any."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError: Python 3.13 and later
        return f"uid {os.getuid()}"


def _machine() -> str:
    """This machine since it was started, or this container. Host names do not tell: containers may share one."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{uuid.getnode():x}"


@dataclass
class _Claim:
    """Our claim on one lease. `version` is that of our last write; "" if its answer was lost."""

    endpoint: str
    store: LeaseStore
    mine: Holder
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    elapsed: Callable[[], float]
    version: str = ""
    written: float = -math.inf
    writing: threading.Lock = field(default_factory=threading.Lock)

    def acquire(self) -> None:
        """Write the lease. Raises PlatformError when somebody holds it."""
        before = self.elapsed()
        self._acquire()
        self.written = before

    def _acquire(self) -> None:
        for _ in range(_ATTEMPTS):
            if version := self.store.create(self.mine):
                self.version = version
                return
            entry = self.store.read()
            if entry is None:  # it has just been given back
                continue
            if self._is_mine(entry):  # the answer to an earlier try was lost
                self.version = entry.version
                return
            self._await_end(entry)
            if version := self.store.replace(self.mine, entry.version):
                self.version = version
                return
        raise self.refused("another process that was faster")

    def renew_until(self, over: threading.Event) -> None:
        """Keep it alive."""
        while not over.wait(self.store.rules.renewal_seconds):
            with suppress(*self.store.errors):  # there are more attempts before it ends
                self._renew()

    def confirm(self) -> None:
        """Raise PlatformError where it is no longer ours, and what the store raises where that cannot be told.

        The clock is looked at last: the process may have been stopped as the answer to its renewal came.
        """
        while self.elapsed() - self.written >= _SURE_SHARE * self.store.rules.seconds:
            if not self._renew():
                entry = self.store.read()
                gone = "somebody else since: this process was stopped for too long"
                raise self.refused((entry and entry.holder) or gone)

    def _renew(self) -> bool:
        """Whether it was ours until now, and is again. It may have been over, as long as nobody has written since."""
        with self.writing:
            before, entry = self.elapsed(), self.store.read()
            if entry is None or not (self._is_mine(entry) or entry.version == self.version):
                return False
            self.version = ""
            self.version = self.store.replace(self.mine, entry.version)
            if self.version:
                self.written = before
            return bool(self.version)

    def release(self) -> None:
        """Give it back, if it is still ours."""
        with suppress(*self.store.errors):  # it ends by itself; the store may be gone
            if self.version and self.store.delete(self.version):
                return
            if version := self._own_version():
                self.store.delete(version)

    def refused(self, who: object) -> LeaseHeld:
        """The error for a lease that they hold."""
        within = f"{self.store.rules.seconds:.0f} seconds"
        hint = f"Wait until it is done. If that process is dead, its lease expires within {within}."
        return LeaseHeld(f"{self.endpoint} is being changed by {who}", hint=hint)

    def _await_end(self, entry: Entry) -> None:
        """Return when nobody holds that lease. Raises PlatformError when somebody does."""
        if entry.holder is None or _is_dead(entry.holder, self.mine):
            return
        if self.store.rules.poll_seconds is None:
            raise self.refused(entry.holder)
        since = self.clock()
        while self.clock() - since <= entry.seconds:
            self.sleep(self.store.rules.poll_seconds)
            now = self.store.read()
            if now is None:
                return
            if now.version != entry.version:
                raise self.refused(now.holder)

    def _own_version(self) -> str:
        entry = self.store.read()
        return entry.version if entry and self._is_mine(entry) else ""

    def _is_mine(self, entry: Entry) -> bool:
        return entry.holder == self.mine


def _is_dead(theirs: Holder | str, mine: Holder) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    if isinstance(theirs, str) or theirs.machine != mine.machine:
        return False
    if theirs.pid == mine.pid:
        return True  # this process holds no other: see _alone_in_this_process
    if os.name == "nt":
        return False  # there os.kill does not ask: it ends the process
    try:
        os.kill(theirs.pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has such a number
        return True
    except PermissionError:
        return False
    return False


_held: dict[str, Holder] = {}
_held_lock = threading.Lock()


@contextmanager
def _alone_in_this_process(claim: _Claim) -> Iterator[None]:
    """Raise PlatformError when another thread holds that lease."""
    key = claim.store.key
    with _held_lock:
        if key in _held:
            raise claim.refused(_held[key])
        _held[key] = claim.mine
    try:
        yield
    finally:
        del _held[key]
