"""What a container writes, in moto's CloudWatch Logs, where SageMaker would put it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from moto.logs.exceptions import ResourceAlreadyExistsException, ResourceNotFoundException
from moto.logs.models import LogsBackend, logs_backends

from toolkit.platforms.local.aws import ACCOUNT, HOME, log_group

_LINE_END = re.compile(rb"[\r\n]+")  # progress bars end their lines with \r
_LONGEST_LINE = 256 * 1024  # CloudWatch's limit for one event


class LogStream:
    """A log stream of an endpoint's log group; bytes go in, one event per line comes out.

    It is made with its first line: made earlier, it would seem to be older than its endpoint, and of another one.
    It writes to moto in this process: through HTTP each write would cost some milliseconds of the CPU that the model
    decodes on.
    """

    def __init__(self, endpoint: str, name: str) -> None:
        self.arn = HOME.log_stream_arn(endpoint, name)
        self._group, self._name = log_group(endpoint), name
        self._backend: LogsBackend = logs_backends[ACCOUNT][HOME.name]
        self._unfinished = b""

    def write(self, text: bytes) -> None:
        """Add the complete lines of `text`; an unfinished last line waits for its end."""
        *lines, self._unfinished = _LINE_END.split(self._unfinished + text)
        if len(self._unfinished) >= _LONGEST_LINE:
            lines.append(self._unfinished)
            self._unfinished = b""
        now_ms = int(time.time() * 1000)
        events = [{"timestamp": now_ms, "message": line.decode(errors="replace")} for line in lines if line]
        if events:
            self._put(events)

    def close(self) -> None:
        """Write the line that was never ended, if there is one."""
        self.write(b"\n")

    def _put(self, events: list[dict[str, Any]]) -> None:
        try:
            self._backend.put_log_events(self._group, self._name, events)
        except ResourceNotFoundException:  # the first line, or the user has deleted it; SageMaker makes it again
            self._create()
            self._backend.put_log_events(self._group, self._name, events)

    def _create(self) -> None:
        with suppress(ResourceAlreadyExistsException):
            self._backend.create_log_group(self._group, {})
        with suppress(ResourceAlreadyExistsException):
            self._backend.create_log_stream(self._group, self._name)
