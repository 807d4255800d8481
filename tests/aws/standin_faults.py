"""What goes wrong between a client and AWS, on demand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, Literal, NoReturn

import boto3
from boto3.s3.transfer import TransferConfig
from standin_http import Call

When = Literal["before", "after"]


@dataclass
class Fault:
    """What happens to the next `times` calls of an operation: an error, or a connection that is cut.

    `when` says whether the call took effect. `code` is "" when the connection is cut.
    """

    operation: str
    code: str
    message: str
    status: int
    when: When
    times: int


class Bucket:
    """A token bucket for each service: `rate` requests a second, and as many at once after a second of rest."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self._tokens: dict[str, tuple[float, float]] = {}

    def is_empty(self, service: str) -> bool:
        """Take a token, if there is one."""
        now = self._clock()
        tokens, then = self._tokens.get(service, (self._rate, now))
        tokens = min(self._rate, tokens + (now - then) * self._rate)
        self._tokens[service] = (tokens - 1 if tokens >= 1 else tokens), now
        return tokens < 1


class Faults:
    """Faults to come. An operation is "CreateModel", "sagemaker:CreateModel", or "*" for every one."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self._storm: Fault | None = None
        self._met: Counter[str] = Counter()
        self._bucket: Bucket | None = None

    def limit(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """From now on each service takes `rate` requests a second."""
        self._bucket = Bucket(rate, clock)

    def storm(self, code: str, *, status: int = 400, when: When = "before", times: int = 1) -> None:
        """From now on every call meets that error `times` times before it gets through; "" cuts the connection."""
        self._storm = Fault("*", code, f"{code} by order of the test", status, when, times)

    def throttle(self, operation: str, times: int = 1) -> None:
        """ThrottlingException, which botocore tries again."""
        self.fail(operation, "ThrottlingException", "Rate exceeded", times=times)

    def fail(
        self, operation: str, code: str, message: str = "", *, status: int = 400, when: When = "before", times: int = 1
    ) -> None:
        """Any error, such as `fail("CreateModel", "InternalFailure", status=500)`."""
        self._waiting.append(Fault(operation, code, message or f"{code} by order of the test", status, when, times))

    def expire_token(self, operation: str = "*", times: int = 1_000_000) -> None:
        """The credentials have expired: from now on, unless `times` says otherwise."""
        message = "The security token included in the request is expired"
        self.fail(operation, "ExpiredTokenException", message, times=times)

    def drop(self, operation: str, *, when: When, times: int = 1) -> None:
        """Cut the connection without an answer, before or after the call took effect."""
        self._waiting.append(Fault(operation, "", "", 0, when, times))

    def clear(self) -> None:
        """All is well again."""
        self._waiting.clear()
        self._met.clear()
        self._storm = self._bucket = None

    def take(self, call: Call) -> Fault | None:
        """The fault that this call meets."""
        for fault in self._waiting:
            if fault.operation in ("*", call.operation, str(call)) and fault.times > 0:
                fault.times -= 1
                return fault
        if self._bucket and self._bucket.is_empty(call.service):
            return Fault("*", "ThrottlingException", "Rate exceeded", 400, "before", 1)
        return self._in_storm(call) if self._storm else None

    def _in_storm(self, call: Call) -> Fault | None:
        assert self._storm
        self._met[repr(call)] += 1
        return self._storm if self._met[repr(call)] % (self._storm.times + 1) else None


class Crash(BaseException):
    """The process dies here: nothing of the product may handle it."""


def _raise(text: str) -> NoReturn:
    raise Crash(text)


class CrashPoint:
    """Counts a session's API calls and dies at one of them, and at every later one: the dead make no calls.

    `calls` tells how many there were, so that a test can first count and then crash at each.
    """

    def __init__(self, at: int, when: When, die: Callable[[str], NoReturn]) -> None:
        self.calls = 0
        self._at, self._when, self._die = at, when, die

    def before_call(self, context: dict[str, Any], **_: Any) -> None:
        """botocore's `before-call`: once per API call, before its first attempt."""
        self.calls += 1
        context["standin_call"] = self.calls
        if self.calls > self._at or (self.calls == self._at and self._when == "before"):
            self._die(f"at call {self.calls}")

    def after_call(self, context: dict[str, Any], **_: Any) -> None:
        """botocore's `after-call`: when the answer has been read."""
        if context.get("standin_call") == self._at and self._when == "after":
            self._die(f"after call {self._at}")


def crash_at(session: boto3.Session, n: int, when: When, die: Callable[[str], NoReturn] = _raise) -> CrashPoint:
    """Let the session's n-th API call raise Crash, or `die`, before or after it takes effect. `n` 0 crashes never.

    To be called before the session makes clients. Uploads then use no threads: s3transfer's would keep the Crash.
    """
    point = CrashPoint(n or 1_000_000_000, when, die)
    session.events.register("before-call", point.before_call)
    session.events.register("after-call", point.after_call)
    session.events.register_last("creating-client-class.s3", _upload_without_threads)
    return point


def _upload_without_threads(class_attributes: dict[str, Any], **_: Any) -> None:
    for name in ("upload_file", "upload_fileobj"):
        class_attributes[name] = partialmethod(class_attributes[name], Config=TransferConfig(use_threads=False))
