"""Requests and answers that SageMaker's data capture recorded, one JSON object a line.

https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-endpoint.html
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any

from toolkit import documents

MEASURED = "toolkit-measurement"
"""`user` of what measurements ask: an endpoint captures that, too, and it is nobody's traffic."""

_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d(?=:)")
_PLAIN = {
    "messages", "model", "user", "seed", "stream", "stream_options", "max_tokens", "max_completion_tokens",
    "temperature", "top_p", "top_k", "min_p", "logprobs", "top_logprobs", "return_token_ids",
}  # fmt: skip
"""Keys of a request that put no words into the answer, as `echo`, a grammar or a bias on tokens do."""


@dataclass(frozen=True)
class _Payload:
    data: str
    encoding: str = "JSON"


@dataclass(frozen=True)
class _Data:
    endpointInput: _Payload  # noqa: N815 - AWS's name
    endpointOutput: _Payload | None = None  # noqa: N815 - AWS's name


@dataclass(frozen=True)
class _Event:
    inferenceTime: str = ""  # noqa: N815 - AWS's name


@dataclass(frozen=True)
class _Record:
    captureData: _Data  # noqa: N815 - AWS's name
    eventMetadata: _Event = _Event()  # noqa: N815 - AWS's name


@dataclass(frozen=True)
class Captured:
    """The JSON values of one request and its answer; `answer` is None where only requests are captured.

    `time` is when SageMaker took the request, such as `2026-11-22T10:05:59Z`; empty where the record does not say. Who
    asked is in no record, but as a caller's own word.
    """

    request: Any
    answer: Any = None
    time: str = ""

    @property
    def hour(self) -> str:
        """Such as `2026-11-22T10`; empty where the record does not say."""
        found = _HOUR.match(self.time)
        return found.group() if found else ""

    @property
    def words_are_the_models(self) -> bool:
        """Whether nothing in the request can have put words into the answer."""
        return isinstance(self.request, dict) and self.request.keys() <= _PLAIN

    @property
    def is_measurement(self) -> bool:
        """Whether a measurement of the toolkit asked it. Who pretends that is not learned from, and loses nothing."""
        return isinstance(self.request, dict) and self.request.get("user") == MEASURED


def is_captured(row: Any) -> bool:
    """Whether a row is a record of data capture."""
    return isinstance(row, dict) and "captureData" in row


def read_capture(record: Any) -> Captured:
    """The request of a record, and its answer if that is JSON. Raises ValueError where the request is not JSON."""
    read = documents.fit(_Record, record)
    data = read.captureData
    try:
        answer = documents.decode(_content(data.endpointOutput)) if data.endpointOutput else None
    except ValueError:  # a stream of events, or an error page
        answer = None
    return Captured(documents.decode(_content(data.endpointInput)), answer, read.eventMetadata.inferenceTime)


def _content(payload: _Payload) -> bytes | str:
    return base64.b64decode(payload.data, validate=True) if payload.encoding == "BASE64" else payload.data
