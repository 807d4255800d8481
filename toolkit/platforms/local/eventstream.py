"""Frames of `application/vnd.amazon.eventstream`, in which InvokeEndpointWithResponseStream answers.

A frame is: total length, length of its headers, CRC of these eight bytes, headers, payload, CRC of all before.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping

_STRING = 7  # header type
_END_OF_EVENT = b"\n\n"
_AROUND = 16  # bytes of a frame that are neither headers nor payload


def _encode(headers: Mapping[str, str]) -> bytes:
    return b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _STRING, len(value)) + value.encode()
        for name, value in headers.items()
    )


_PAYLOAD_PART = _encode(
    {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"}
)


def payload_part(payload: bytes) -> bytes:
    """The frame that carries a piece of the container's answer."""
    return _frame(_PAYLOAD_PART, payload)


def payload_parts(piece: bytes) -> bytes:
    """Frames for what arrived from the container at once: one for each server-sent event in it.

    SageMaker documents no rule, but LiteLLM's `sagemaker_chat` (llms/sagemaker/common_utils.py) drops all text as soon
    as a part holds two events.
    """
    *events, rest = piece.split(_END_OF_EVENT)
    parts = [event + _END_OF_EVENT for event in events] + ([rest] if rest else [])
    return b"".join(map(payload_part, parts))


def exception(kind: str, message: str, error_code: str) -> bytes:
    """The frame that ends a stream with an error; `kind` is ModelStreamError or InternalStreamFailure."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return _frame(_encode(headers), json.dumps({"Message": message, "ErrorCode": error_code}).encode())


def _frame(headers: bytes, payload: bytes) -> bytes:
    lengths = struct.pack("!II", _AROUND + len(headers) + len(payload), len(headers))
    prelude = lengths + struct.pack("!I", zlib.crc32(lengths))
    checksum = zlib.crc32(payload, zlib.crc32(headers, zlib.crc32(prelude)))
    return b"".join((prelude, headers, payload, struct.pack("!I", checksum)))
