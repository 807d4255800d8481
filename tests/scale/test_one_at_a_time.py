"""Processes with wrong clocks deploy one endpoint, and are stopped and resumed: never two at once.

Three of them six times, or as many as $TOOLKIT_DEPLOYERS says: `make test-exhaustive` has 10x500. The stand-in writes
down who held the lease when, and each call that changes something is held against that. A process is stopped as soon as
a call of its arrives, by chance, for up to ten minutes of the store's clock, which goes faster than ours.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto.s3.models import s3_backends
from pairs import HUB_RECIPE, write_hub_pair
from standin import ACCOUNT, StandIn
from standin_http import Call, HttpAnswer
from standin_user import User

import toolkit
from toolkit.apply.progress import Silent

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

PROCESSES, DEPLOYMENTS = map(int, os.environ.get("TOOLKIT_DEPLOYERS", "3x6").split("x"))
TOLD_EVERY = 25
SPEED = 100.0
LONGEST_STOP = 600.0
LATE_RENEWAL = 150.0  # a call of the holder waited for it
CALLS = 40  # of an update
BUCKET, LEASE = f"toolkit-{ACCOUNT}-us-west-2", "leases/hub"
GENERATED = re.compile(r"-[0-9a-f]{8}\b")
READING = ("Describe", "List", "Get", "Head", "BatchGet", "BatchCheck")
PROGRAM = Path(__file__).with_name("wrong_clock.py")


class Watched(StandIn):
    """A stand-in with a fast clock of its own that knows who held the lease when, and stops who calls it."""

    def __init__(self) -> None:
        self.arriving = threading.local()
        self.held: list[tuple[float, int]] = [(0.0, 0)]
        self.intruders: list[str] = []
        self.late: list[str] = []
        self.due = 0
        self.stops: Counter[str] = Counter()
        self.stopped: dict[int, threading.Timer] = {}
        self.drawn = random.Random("stops")
        super().__init__()
        handler = self._server.RequestHandlerClass
        fast = {"date_time_string": lambda *_: format_datetime(datetime.fromtimestamp(self.now(), UTC), usegmt=True)}
        self._server.RequestHandlerClass = type("OfTheFastClock", (handler,), fast)

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) * SPEED

    def _application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.arriving.sender = environ.get("HTTP_X_DEPLOYER")
        return super()._application(environ, start_response)

    def _answer(self, call: Call, environ: WSGIEnvironment) -> HttpAnswer:
        if sender := self.arriving.sender:
            pid, sent = sender.split()
            self._check(call, int(pid), float(sent))
        answer = super()._answer(call, environ)
        if call.request.get("Key") == LEASE and call.operation in ("PutObject", "DeleteObject"):
            self._lease_changed(call, answer)
        if sender:
            self._may_stop(int(pid))
        return answer

    def _check(self, call: Call, pid: int, sent: float) -> None:
        """Who held the lease when it was sent, and who when it arrives?"""
        if call.operation.startswith(READING) or call.request.get("Key") == LEASE:
            return
        if call.operation in ("CreateBucket", "PutPublicAccessBlock", "PutBucketEncryption"):
            return  # the lease lies in it
        holder = self.held[bisect_right(self.held, sent, key=lambda item: item[0]) - 1][1]
        said = f"{call} by {pid}, while {holder} held the lease"
        if holder != pid:
            self.intruders.append(said)
        elif self.held[-1][1] != pid:
            self.late.append(said)

    def _lease_changed(self, call: Call, answer: HttpAnswer) -> None:
        bucket = s3_backends[ACCOUNT]["aws"].buckets.get(BUCKET)
        stored = bucket.keys.get(LEASE) if bucket else None
        if stored and call.operation == "PutObject" and answer.status.startswith("200"):
            stored.last_modified = datetime.fromtimestamp(self.now(), UTC).replace(tzinfo=None)
        holder = json.loads(stored.value)["pid"] if stored else 0
        since, before = self.held[-1]
        if holder != before:
            self.due = self.drawn.randint(1, CALLS) if self.stops["of a holder"] else CALLS // 4
        elif self.now() - since > LATE_RENEWAL:
            self.due = 1
        self.held.append((self.now(), holder))

    def _may_stop(self, pid: int) -> None:
        """Who holds the lease at some call of its, the first one for longer than a lease lasts; others now and then.

        And at each renewal that a call of its waits for: the answer came, and the lease was over before it was read.
        """
        holds = self.held[-1][1] == pid
        self.due -= holds
        if pid in self.stopped or (self.due != 0 if holds else self.drawn.random() > 0.01):
            return
        os.kill(pid, signal.SIGSTOP)
        is_first = holds and not self.stops["longer than a lease"]
        seconds = LONGEST_STOP if is_first else self.drawn.uniform(0, LONGEST_STOP)
        self.stops["of a holder" if holds else "of another"] += 1
        self.stops["longer than a lease"] += seconds > 300 and holds
        self.stopped[pid] = threading.Timer(seconds / SPEED, self._resume, (pid,))
        self.stopped[pid].start()

    def _resume(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self.stopped.pop(pid, None)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with Watched() as standin:
        for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.1"}.items():
            monkeypatch.setenv(name, value)
        yield standin


@pytest.fixture
def recipe(standin: Watched, tmp_path: Path) -> Path:
    """Weights that lie in S3, with a role that exists."""
    user, target = User(standin), "s3://weights-us-west-2/target/"
    s3: Any = user.session.client("s3")
    s3.put_object(Bucket="weights-us-west-2", Key="target/drafter/config.json", Body=b"{}")
    text = HUB_RECIPE.replace("platform: {", f"platform: {{role: {user.role}, ")
    text = text.replace("org/target", target).replace("org/drafter", f"{target}drafter/")
    models = ({"model": uri, "revision": ""} for uri in (target, f"{target}drafter/"))
    return write_hub_pair(tmp_path, text, **dict(zip(("target", "drafter"), models, strict=True)))


@pytest.mark.timeout(600 + 60 * DEPLOYMENTS)
def test_never_two_at_once(standin: Watched, recipe: Path, tmp_path: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())
    came, deployed = Counter[str](), threading.Semaphore(0)
    running = [start(recipe, tmp_path / str(number), number) for number in range(PROCESSES)]

    def read(one: subprocess.Popen[str]) -> None:
        assert one.stdout
        for line in one.stdout:
            came[GENERATED.sub("-…", line.strip())] += 1
            if line.startswith("deployed"):
                deployed.release()

    readers = [threading.Thread(target=read, args=(one,)) for one in running]
    for reader in readers:
        reader.start()
    began = time.monotonic()
    for number in range(1, DEPLOYMENTS + 1):
        if not deployed.acquire(timeout=600):
            break
        if number % TOLD_EVERY == 0:
            told = f"{number} in {time.monotonic() - began:.0f} s, {dict(came)}, stopped {dict(standin.stops)}"
            print(f"{told}, late {len(standin.late)}, intruders {standin.intruders}", flush=True)
    for one in running:
        one.kill()
    for one, reader in zip(running, readers, strict=True):
        with one:
            reader.join()
    print(f"\n{came['deployed']} deployments by {PROCESSES} processes in {time.monotonic() - began:.0f} s")
    print(f"{dict(came)}; stopped: {dict(standin.stops)}; arrived late: {standin.late}; intruders: {standin.intruders}")
    assert standin.intruders == []
    assert standin.stops["longer than a lease"]
    assert came["deployed"] >= DEPLOYMENTS


def start(recipe: Path, folder: Path, seed: int) -> subprocess.Popen[str]:
    """A process with a copy of the recipe and a home of its own, as on another machine."""
    folder.mkdir()
    mine = Path(shutil.copy(recipe, folder))
    shutil.copy(recipe.with_suffix(".lock.json"), folder)
    environment = {**os.environ, "TOOLKIT_HOME": str(folder)}
    command = [sys.executable, str(PROGRAM), str(mine), str(seed), str(SPEED)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
