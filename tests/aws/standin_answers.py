"""What a container behind the stand-in answers, where the text does not matter."""

from __future__ import annotations

import json

from fakes import answer_events, event_stream
from standin import Invocation, Reply


def three_tokens(invocation: Invocation) -> Reply:
    """Three tokens, which the speculative arm took one step for."""
    if invocation.body.get("stream"):
        histogram = None if invocation.endpoint.endswith("-baseline") else [0, 0, 1]
        return Reply((event_stream(answer_events([7, 8, 9], histogram)),), content_type="text/event-stream")
    choice = {"index": 0, "message": {"role": "assistant", "content": "<7><8><9>"}, "finish_reason": "stop"}
    return Reply((json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode(),))
