"""Requests and answers that SageMaker's data capture recorded, one JSON object a line.

https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-endpoint.html
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from toolkit import documents


@dataclass(frozen=True)
class _Payload:
    data: str
    encoding: str = "JSON"


@dataclass(frozen=True)
class _Data:
    endpointInput: _Payload  # noqa: N815 - AWS's name
    endpointOutput: _Payload | None = None  # noqa: N815 - AWS's name


@dataclass(frozen=True)
class _Record:
    captureData: _Data  # noqa: N815 - AWS's name


@dataclass(frozen=True)
class Captured:
    """The JSON values of one request and its answer; `answer` is None where only requests are captured."""

    request: Any
    answer: Any = None


def is_captured(row: Any) -> bool:
    """Whether a row is a record of data capture."""
    return isinstance(row, dict) and "captureData" in row


def read_capture(record: Any) -> Captured:
    """The request of a record, and its answer if that is JSON. Raises ValueError where the request is not JSON."""
    data = documents.fit(_Record, record).captureData
    try:
        answer = documents.decode(_content(data.endpointOutput)) if data.endpointOutput else None
    except ValueError:  # a stream of events, or an error page
        answer = None
    return Captured(documents.decode(_content(data.endpointInput)), answer)


def _content(payload: _Payload) -> bytes | str:
    return base64.b64decode(payload.data, validate=True) if payload.encoding == "BASE64" else payload.data
