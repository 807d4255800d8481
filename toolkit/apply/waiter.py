"""Wait until endpoints are in service, show their progress, and report why one failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeVar

from toolkit.apply.diagnose import diagnose, last_error
from toolkit.apply.progress import Progress
from toolkit.apply.stages import STARTING, Start
from toolkit.display import minutes
from toolkit.errors import Cause, EndpointFailed, EndpointNotFound, PlatformError, Unavailable, WaitTimeout
from toolkit.planning.resources import UNDER_WAY
from toolkit.text import without_colours

_LAST_LINES = 15
# What loggers write before their message: the process, the level, the time, the file.
_LOGGER = re.compile(r"^(\(\w[^)]*\) )?((INFO|WARNING|ERROR|DEBUG) [\d-]+ [\d:]+ \[[^\]]*\] )?")
_LONGEST_SHOWN = 100
# If no container is restarted, its endpoint fails by itself within this time after the container died.
_GRACE_SECONDS = 10.0
_SILENT_SECONDS = 900.0
_AGAIN = "Run the same command again."
_PATIENCE_SECONDS = 300.0
_ENDED = {
    "Failed": "failed",
    "OutOfService": "is out of service",
    "UpdateRollbackFailed": "could not be rolled back: it serves with the old and the new configuration",
}


_Answer = TypeVar("_Answer")


class Patience:
    """Lets a platform be silent for up to five minutes.

    They count from the first look without an answer: the last answer may be hours old where this machine has slept.
    """

    def __init__(self) -> None:
        self.silent_since: float | None = None

    def ask(self, question: Callable[[], _Answer], now: float) -> _Answer | Unavailable:
        """The answer, or why there is none yet. Raises Unavailable once the five minutes are over."""
        try:
            answer = question()
        except Unavailable as error:
            if self.silent_since is None:
                self.silent_since = now
            if now - self.silent_since > _PATIENCE_SECONDS:
                raise
            return error
        self.silent_since = None
        return answer


@dataclass(frozen=True)
class EndpointStatus:
    """Status of an endpoint (InService, Creating, Updating, RollingBack, Failed, Deleting …) and its configuration.

    `began` is when the current operation began, in seconds since 1970; 0 if there is none, or it is unknown. The
    platform supplies two sentences: `no_log_reason` says why containers may have written nothing for a long time,
    `hopeless` what happens now to an endpoint whose containers cannot start, and what the user can do.
    """

    name: str
    status: str
    config: str
    failure_reason: str = ""
    began: float = 0.0
    no_log_reason: str = ""
    hopeless: str = ""


@dataclass(frozen=True)
class LogLine:
    """One line that a container wrote. `stream` is `<variant>/<instance>`, `time` seconds since 1970."""

    stream: str
    time: float
    text: str


class Waitable(Protocol):
    """What waiting for endpoints needs of a platform."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    @property
    def poll_seconds(self) -> float:
        """The interval between two polls of an endpoint."""

    def status(self, endpoint: str) -> EndpointStatus:
        """The endpoint's current status. Raises EndpointNotFound."""

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        """The log lines of the endpoint's containers since it was created, the newest container last.

        With `since`, the beginning of an operation, only of containers whose log begins then or later. `bookmarks` says
        how far each stream was read, and is updated: called again with the same mapping, it returns only new lines.
        Lines from before `written_since` need not be read.
        """


def wait_in_service(
    platform: Waitable,
    configs: Mapping[str, str],
    progress: Progress,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    *,
    expected: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, dict[str, float]]:
    """Return when every endpoint is InService with its EndpointConfig. `configs` maps endpoints to configs.

    Returns, for each endpoint, how many seconds the stages of its start took, as far as its log tells.

    `expected` are the expected seconds of stages (names of stages.STAGES). Raises EndpointFailed, with cause and last
    lines, as soon as one has failed, was rolled back, or cannot start however often it is tried; WaitTimeout after
    `timeout` seconds; EndpointNotFound if one disappears; Unavailable if the platform does not answer for five minutes.
    """
    deadline = clock() + timeout
    every = [_Watch(platform, endpoint, config, progress, clock()) for endpoint, config in configs.items()]
    watches = every
    answering: list[str] = []
    while watches := [watch for watch in watches if not watch.in_service(clock())]:
        if not answering and len(watches) < len(configs):
            answering = [endpoint for endpoint in configs if endpoint not in [watch.endpoint for watch in watches]]
            progress.say(f"it answers already, in another terminal: toolkit invoke {answering[0]} Hello")
        now = clock()
        if now > deadline:
            raise _timed_out(watches, timeout)
        progress.update(", ".join(watch.describe(now, expected) for watch in watches), watches[0].last_line)
        sleep(platform.poll_seconds)
    return {watch.endpoint: watch.took for watch in every}


def wait_settled(
    platform: Waitable,
    endpoint: str,
    timeout: float,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until the endpoint can be changed, which AWS refuses during another operation. Returns whether it exists.

    Raises WaitTimeout, and Unavailable if the platform does not answer for five minutes.
    """
    deadline = clock() + timeout
    try:
        while (status := _ask(platform, endpoint, clock, sleep).status) in (*UNDER_WAY, "Deleting"):
            if clock() > deadline:
                raise WaitTimeout(f"{endpoint} is still {status} after {timeout:.0f} s", hint=_AGAIN)
            progress.update(f"{endpoint} is {status.lower()}; waiting until it can be changed")
            sleep(platform.poll_seconds)
    except EndpointNotFound:
        return False
    return True


def wait_deleted(
    platform: Waitable,
    endpoint: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the endpoint is deleted. Raises WaitTimeout after `timeout` seconds, Unavailable as above."""
    deadline = clock() + timeout
    try:
        while clock() <= deadline:
            _ask(platform, endpoint, clock, sleep)
            sleep(platform.poll_seconds)
    except EndpointNotFound:
        return
    raise WaitTimeout(f"{endpoint} is still being deleted after {timeout:.0f} s", hint=_AGAIN)


def _ask(
    platform: Waitable, endpoint: str, clock: Callable[[], float], sleep: Callable[[float], None]
) -> EndpointStatus:
    """The endpoint's status, asked again while the platform does not answer. Raises EndpointNotFound, Unavailable."""
    patience = Patience()
    while isinstance(status := patience.ask(lambda: platform.status(endpoint), clock()), Unavailable):
        sleep(platform.poll_seconds)
    return status


@dataclass
class _Container:
    """The log of one container so far, and the stage of its start."""

    start: Start
    lines: list[str] = field(default_factory=list)


class _Watch:
    """One endpoint that is waited for, and its state so far."""

    def __init__(self, platform: Waitable, endpoint: str, config: str, progress: Progress, now: float) -> None:
        self.endpoint = endpoint
        self._platform, self._config, self._progress = platform, config, progress
        self._waiting_since = now
        self._status = EndpointStatus(endpoint, "", "")
        self._began = 0.0
        self._patience = Patience()
        self._bookmarks: dict[str, str] = {}
        self._containers: dict[str, _Container] = {}
        self._is_readable = True
        self._certain: Cause | None = None
        self._certain_since = 0.0
        self._said: set[str] = set()
        self.took: dict[str, float] = {}

    def in_service(self, now: float) -> bool:
        """Poll it and report what is new. Raises EndpointFailed, EndpointNotFound or Unavailable."""
        status = self._patience.ask(lambda: self._platform.status(self.endpoint), now)
        if isinstance(status, Unavailable):
            self._say_once(f"still waiting: {status.message}")
            return False
        self._status, self._began = status, status.began or self._began
        if status.status == "InService" and status.config == self._config:
            self._progress.say(f"{self.endpoint} is in service")
            if first := next(iter(self._containers.values()), None):
                self.took = first.start.took_until(now)
            return True
        news = self._read(now)
        if ended := _ENDED.get(status.status):
            raise self._failure(ended, status.failure_reason)
        if status.status == "InService":
            raise self._failure(f"was rolled back and still runs {status.config}", status.failure_reason)
        if news:
            self._diagnose(now)
        if self._certain and now - self._certain_since >= _GRACE_SECONDS:
            hint = f"{self._certain.hint}\n  {self._status.hopeless}"
            raise self._error(f"{self.endpoint} cannot start: {self._certain.line}", hint, self._certain)
        return False

    @property
    def stage(self) -> str:
        return "rolling back" if self._status.status == "RollingBack" else self._newest.start.stage

    @property
    def last_line(self) -> str:
        """The newest line of its log, without the logger's prefix."""
        container = self._newest
        line = without_colours(container.lines[-1]) if container.lines else ""
        return _LOGGER.sub("", line).strip()[:_LONGEST_SHOWN]

    def describe(self, now: float, expected: Mapping[str, float]) -> str:
        start = self._newest.start
        if not self._containers and now - self._waiting_since > _SILENT_SECONDS:
            silent = f"no container has written a line for {_SILENT_SECONDS / 60:.0f} minutes"
            self._say_once(f"{silent}: {self._status.no_log_reason}")
        doing = self.stage if self._status.status == "RollingBack" else start.describe(now, expected.get(start.stage))
        return f"{self.endpoint}: {doing}"

    @property
    def _newest(self) -> _Container:
        return next(reversed(self._containers.values()), _Container(Start(entered=self._waiting_since)))

    def _read(self, now: float) -> bool:
        """Read new log lines. Returns whether there are any."""
        news: list[LogLine] = []
        try:
            for line in self._platform.logs(self.endpoint, self._began, self._bookmarks):
                news.append(line)  # one by one: lines before an error are taken and have moved their bookmark
            self._is_readable = True
        except EndpointNotFound:
            raise
        except PlatformError as error:  # a user who may deploy may lack the permission to read logs
            self._is_readable = False
            self._say_once(f"cannot read its log, so its stages are not shown: {error.message}")
        latest = max((line.time for line in news), default=0.0)
        for line in news:
            self._take(line, now - (latest - line.time))
        return bool(news)

    def _take(self, line: LogLine, at: float) -> None:
        instance = line.stream.removesuffix("/data-log")
        if instance not in self._containers:
            begin = Start(STARTING, at) if self._containers else Start(entered=self._waiting_since)
            self._containers[instance] = _Container(begin)
        container = self._containers[instance]
        container.lines.append(line.text)
        if (said := container.start.read(line.text, at)) and container is self._newest:
            self._progress.say(f"{self.endpoint}: {said}")

    def _diagnose(self, now: float) -> None:
        causes = (diagnose(container.lines, platform=self._platform.name) for container in self._containers.values())
        certain = next((cause for cause in causes if cause and cause.fatal), None)
        if certain and not self._certain:
            self._certain_since = now
        self._certain = certain  # none, where the server began to serve all the same

    def _failure(self, ended: str, reason: str) -> EndpointFailed:
        lines = self._newest.lines
        cause = diagnose(lines, reason, self._platform.name) or self._certain
        if cause and (self._is_readable or cause.code != "no-log"):
            return self._error(f"{self.endpoint} {ended}: {cause.line}", cause.hint, cause)
        why = last_error(lines) or reason or "no reason was given"
        hint = f"This is not a cause that the toolkit knows. For the whole log, run: toolkit logs {self.endpoint}"
        return self._error(f"{self.endpoint} {ended}: {why}", hint, None)

    def _error(self, message: str, hint: str, cause: Cause | None) -> EndpointFailed:
        return EndpointFailed(message, hint=hint, logs=self._newest.lines[-_LAST_LINES:], cause=cause)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._progress.say(f"{self.endpoint}: {text}")
        self._said.add(text)


def _timed_out(watches: Sequence[_Watch], timeout: float) -> WaitTimeout:
    still = ", ".join(f"{watch.endpoint} (still {watch.stage})" for watch in watches)
    first = watches[0].endpoint
    either = f"Run the same command again to go on waiting, or give up: toolkit destroy {first}"
    hint = f"See: toolkit logs {first}. {either}"
    return WaitTimeout(f"not in service after {minutes(timeout)} minutes: {still}", hint=hint)
