"""One change at a time: who changes an endpoint holds an object in the toolkit's bucket, and renews it meanwhile."""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.errors import PlatformError
from toolkit.planning.names import LEASES_PREFIX
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing

_SECONDS = 300.0
_RENEWAL_SECONDS = 60.0
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, until when (seconds since 1970)."""

    user: str
    host: str
    pid: int
    since: float
    until: float


def this_process(now: float) -> Holder:
    """Us, for the next minutes."""
    return Holder(getpass.getuser(), socket.gethostname(), os.getpid(), now, now + _SECONDS)


@contextmanager
def lease(clients: Clients, bucket: str, endpoint: str, clock: Callable[[], float] = time.time) -> Iterator[None]:
    """Hold the endpoint's lease, in a bucket that exists. Raises PlatformError when somebody else holds it.

    A lease ends by itself five minutes after its holder was last alive; that of a dead process of this machine at once.
    """
    key, mine = f"{LEASES_PREFIX}{endpoint}", this_process(clock())
    _acquire(clients, bucket, key, mine, clock)
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(clients, bucket, key, mine, clock, over), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        with suppress(ClientError, BotoCoreError):  # it ends by itself; the bucket may be gone
            clients.s3.delete_object(Bucket=bucket, Key=key)


def _acquire(clients: Clients, bucket: str, key: str, mine: Holder, clock: Callable[[], float]) -> None:
    try:
        clients.s3.put_object(Bucket=bucket, Key=key, Body=_text(mine), IfNoneMatch="*")
    except ClientError as error:
        if error.response["Error"]["Code"] not in _TAKEN:
            raise
        theirs = _read(clients, bucket, key)
        if theirs and _holds(theirs, mine, clock()):
            name, minutes = key.removeprefix(LEASES_PREFIX), (clock() - theirs.since) / 60
            raise PlatformError(
                f"{name} is being changed by {theirs.user} on {theirs.host} (process {theirs.pid}), "
                f"since {minutes:.0f} minutes",
                hint="Wait until that is done. If it is dead already, its claim ends within five minutes.",
            ) from error
        clients.s3.put_object(Bucket=bucket, Key=key, Body=_text(mine))


def _read(clients: Clients, bucket: str, key: str) -> Holder | None:
    """None when it has just been released, or is no lease at all."""
    try:
        return Holder(**json.loads(clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read()))
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    except (ValueError, TypeError):
        return None


def _holds(theirs: Holder, mine: Holder, now: float) -> bool:
    if theirs.until < now:
        return False
    if theirs.host != mine.host:
        return True
    try:
        os.kill(theirs.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _renew(
    clients: Clients, bucket: str, key: str, mine: Holder, clock: Callable[[], float], over: threading.Event
) -> None:
    while not over.wait(_RENEWAL_SECONDS):
        holder = Holder(mine.user, mine.host, mine.pid, mine.since, clock() + _SECONDS)
        with suppress(ClientError, BotoCoreError):  # there are four more attempts
            clients.s3.put_object(Bucket=bucket, Key=key, Body=_text(holder))


def _text(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()
