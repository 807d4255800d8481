"""Every call that a session makes and what AWS answers, as lines of JSON without secrets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
from botocore.model import OperationModel

from tools.live_day.secrets import Secrets

_REFUSED = 300
_ASKED = "toolkit-live-day"
BYTES = "<bytes>"
"""The key of what stands for a body: how long it is, or null."""


@dataclass(frozen=True)
class Recorded:
    """A call of the recording. `error` has code and message if it was refused; `answer` is empty then.

    `before` are the errors of attempts that botocore repeated. `status` is 0 if no answer came.
    """

    step: str
    region: str
    service: str
    operation: str
    request: Mapping[str, Any]
    status: int
    answer: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[Mapping[str, Any]] = ()

    def __str__(self) -> str:
        return f"{self.service}:{self.operation}"


def read(path: Path) -> Iterator[Recorded]:
    """The calls of a recording, in their order. Raises OSError, or ValueError for what is no recording."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield Recorded(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: this line is no call of a recording: {error}") from error


@dataclass
class _Asked:
    """What is being asked: kept in botocore's context of the call. `refused` are its attempts that met an error."""

    model: OperationModel
    request: Any
    refused: list[dict[str, Any]] = field(default_factory=list)


class Recorder:
    """Appends to a file what the sessions that it is attached to ask and are answered. `step` is what they do."""

    def __init__(self, path: Path) -> None:
        self.step = ""
        self._path = path
        self._secrets = Secrets()
        self._lock = threading.Lock()

    def attach(self, session: boto3.Session) -> None:
        """Record the calls of all clients that the session makes from now on."""
        self._secrets.know_credentials(session)
        session.events.register_first("before-parameter-build", self._asked)
        session.events.register("needs-retry", self._tried)
        session.events.register("after-call", self._answered)
        session.events.register("after-call-error", self._lost)

    def know_caller(self, identity: Mapping[str, Any]) -> None:
        """Leave out who calls; `identity` is the answer of GetCallerIdentity."""
        self._secrets.know_caller(identity)

    def _asked(self, params: Mapping[str, Any], model: OperationModel, context: dict[str, Any], **_: Any) -> None:
        context[_ASKED] = _Asked(model, _plain(params))

    def _tried(self, response: Any, request_dict: Mapping[str, Any], **_: Any) -> None:
        """After each attempt: what is answered to the last one comes to `_answered` too."""
        if response is not None and response[0].status_code >= _REFUSED:
            refused = {"status": response[0].status_code, **_error(response[1])}
            request_dict["context"][_ASKED].refused.append(refused)

    def _answered(self, http_response: Any, parsed: Mapping[str, Any], context: Mapping[str, Any], **_: Any) -> None:
        asked, status = context[_ASKED], http_response.status_code
        if status < _REFUSED:
            answer = {key: value for key, value in parsed.items() if key != "ResponseMetadata"}
            self._write(context, status, before=asked.refused, answer=_plain(answer))
        else:
            self._write(context, status, before=asked.refused[:-1], error=_error(parsed))

    def _lost(self, exception: Exception, context: Mapping[str, Any], **_: Any) -> None:
        """No answer came; `status` is 0."""
        error = {"code": type(exception).__name__, "message": str(exception)}
        self._write(context, 0, before=context[_ASKED].refused, error=error)

    def _write(
        self,
        context: Mapping[str, Any],
        status: int,
        before: list[dict[str, Any]],
        answer: Any = None,
        error: Any = None,
    ) -> None:
        asked, clean = context[_ASKED], self._secrets.cleaned
        recorded = Recorded(
            self.step,
            context["client_region"],
            asked.model.service_model.service_name,
            asked.model.name,
            clean(asked.request, asked.model.input_shape),
            status,
            clean(answer or {}, asked.model.output_shape),
            clean(error or {}),
            clean(before),
        )
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(recorded)) + "\n")


def _error(parsed: Mapping[str, Any]) -> dict[str, str]:
    error = parsed.get("Error", {})
    return {"code": str(error.get("Code", "")), "message": str(error.get("Message", ""))}


def _plain(value: Any) -> Any:
    """As JSON has it. Of bodies there is only how long they are, where that is known."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return {BYTES: len(value)}
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if isinstance(value, datetime) else {BYTES: None}
