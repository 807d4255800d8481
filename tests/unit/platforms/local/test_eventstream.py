"""Frames of the event stream, read back by botocore's own parser."""

from __future__ import annotations

import json

from botocore.eventstream import EventStreamBuffer, EventStreamMessage
from hypothesis import given
from hypothesis import strategies as st

from toolkit.platforms.local import eventstream


def read(frames: bytes) -> list[EventStreamMessage]:
    buffer = EventStreamBuffer()
    buffer.add_data(frames)
    return list(buffer)


@given(st.lists(st.binary(max_size=300)))
def test_botocore_reads_what_is_written(payloads: list[bytes]) -> None:
    messages = read(b"".join(map(eventstream.payload_part, payloads)))
    assert [message.payload for message in messages] == payloads
    assert all(message.headers[":event-type"] == "PayloadPart" for message in messages)


def test_an_exception_carries_its_kind_message_and_code() -> None:
    (message,) = read(eventstream.exception("ModelStreamError", "it broke", "StreamBroken"))
    assert message.headers[":message-type"] == "exception"
    assert message.headers[":exception-type"] == "ModelStreamError"
    assert json.loads(message.payload) == {"Message": "it broke", "ErrorCode": "StreamBroken"}


@given(st.lists(st.sampled_from([b"data: {}\n\n", b'data: {"a"', b": 1}\n\n", b"."])))
def test_a_part_holds_one_event_and_nothing_is_lost(arrived: list[bytes]) -> None:
    payloads = [message.payload for message in read(eventstream.payload_parts(b"".join(arrived)))]
    assert b"".join(payloads) == b"".join(arrived)
    assert all(payload.count(b"\n\n") <= 1 and payload for payload in payloads)
    assert all(payload.endswith(b"\n\n") for payload in payloads[:-1])
