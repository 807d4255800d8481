"""One change at a time: who changes an endpoint holds an object in the toolkit's bucket, and renews it meanwhile."""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.rules.aws_errors import is_missing

_SECONDS = 300.0
_RENEWAL_SECONDS = 60.0
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
_ATTEMPTS = 5


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, until when (seconds since 1970). `machine` is where `pid` means something."""

    user: str
    host: str
    machine: str
    pid: int
    since: float
    until: float


def this_process(now: float) -> Holder:
    """Us, for the next minutes."""
    return Holder(getpass.getuser(), socket.gethostname(), _machine(), os.getpid(), now, now + _SECONDS)


def _machine() -> str:
    """This machine since it was started, or this container. Host names do not tell: containers may share one."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{uuid.getnode():x}"


@contextmanager
def lease(clients: Clients, bucket: str, endpoint: str, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """Hold the endpoint's lease. Raises PlatformError when somebody else holds it, ClientError without the bucket.

    A lease ends by itself five minutes after its holder was last alive; that of a dead process of this machine at once,
    and so does one that this process could not give back.
    """
    claim = _Claim(clients, bucket, f"{LEASES_PREFIX}{endpoint}", this_process(clock()), clock)
    with _alone_in_this_process(claim):
        claim.acquire()
        over = threading.Event()
        renewing = threading.Thread(target=claim.renew_until, args=(over,), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()
            claim.release()


@dataclass
class _Claim:
    """Ours on one lease. Every write names the version that it replaces: of two that come at once, one is refused.

    `version` is that of our last write; "" where its answer was lost, and S3 has to be asked.
    """

    clients: Clients
    bucket: str
    key: str
    mine: Holder
    clock: Callable[[], float]
    version: str = ""

    def acquire(self) -> None:
        """Write the lease. Raises PlatformError when somebody holds it."""
        condition: dict[str, Any] = {"IfNoneMatch": "*"}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._write(self.mine, condition)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _CHANGED or attempt == _ATTEMPTS:
                    raise
                version, theirs = self._read()
                if theirs == self.mine:  # the answer to an earlier try was lost
                    self.version = version
                    return
                if theirs and self._is_alive(theirs):
                    raise self.refused(theirs) from error
                condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
            else:
                return

    def renew_until(self, over: threading.Event) -> None:
        """Keep it alive."""
        while not over.wait(_RENEWAL_SECONDS):
            with suppress(ClientError, BotoCoreError):  # there are four more attempts
                if version := self._own_version():
                    self._write(replace(self.mine, until=self.clock() + _SECONDS), {"IfMatch": version})

    def release(self) -> None:
        """Give it back, if it is still ours."""
        with suppress(ClientError, BotoCoreError):  # it ends by itself; the bucket may be gone
            if version := self.version or self._own_version():
                self.clients.s3.delete_object(Bucket=self.bucket, Key=self.key, IfMatch=version)

    def refused(self, theirs: Holder) -> PlatformError:
        """The error for a lease that they hold."""
        name, minutes = self.key.removeprefix(LEASES_PREFIX), (self.clock() - theirs.since) / 60
        return PlatformError(
            f"{name} is being changed by {theirs.user} on {theirs.host} (process {theirs.pid}), "
            f"since {minutes:.0f} minutes",
            hint="Wait until that is done. If it is dead already, its claim ends within five minutes.",
        )

    def _write(self, holder: Holder, condition: Any) -> None:
        body = json.dumps(asdict(holder)).encode()
        self.version = ""
        # The bucket's name can be guessed: weights shall not go to one that somebody else made.
        owner = self.clients.account_id
        written = self.clients.s3.put_object(
            Bucket=self.bucket, Key=self.key, Body=body, ExpectedBucketOwner=owner, **condition
        )
        self.version = written["ETag"]

    def _read(self) -> tuple[str, Holder | None]:
        """Version and holder; "" when it has just been given back, None when that is no lease at all."""
        try:
            found = self.clients.s3.get_object(Bucket=self.bucket, Key=self.key)
        except ClientError as error:
            if is_missing(error):
                return "", None
            raise
        try:
            return found["ETag"], Holder(**json.loads(found["Body"].read()))
        except (ValueError, TypeError):
            return found["ETag"], None

    def _own_version(self) -> str | None:
        version, holder = self._read()
        return version if holder and replace(holder, until=self.mine.until) == self.mine else None

    def _is_alive(self, theirs: Holder) -> bool:
        if theirs.until < self.clock():
            return False
        if theirs.machine != self.mine.machine:
            return True
        if theirs.pid == self.mine.pid:
            return False  # this process holds no other: see _alone_in_this_process
        try:
            os.kill(theirs.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


_held: dict[tuple[str, str], Holder] = {}
_held_lock = threading.Lock()


@contextmanager
def _alone_in_this_process(claim: _Claim) -> Iterator[None]:
    """Raise PlatformError when another thread holds that lease."""
    place = claim.bucket, claim.key
    with _held_lock:
        if place in _held:
            raise claim.refused(_held[place])
        _held[place] = claim.mine
    try:
        yield
    finally:
        del _held[place]
