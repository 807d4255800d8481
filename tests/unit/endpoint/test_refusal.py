"""The words for a request that was refused, and what kind of error it is."""

from __future__ import annotations

import json

import pytest

from toolkit.endpoint import refusal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": {"message": "too long", "code": 400}}', "too long"),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"error": "too long"}', "too long"),
        ('{"detail": "too long"}', '{"detail": "too long"}'),
        ('["too long"]', '["too long"]'),
        ("Internal Server Error", "Internal Server Error"),
    ],
)
def test_the_message_is_taken_out_of_an_openai_error(text: str, message: str) -> None:
    assert refusal.message_in(text) == message


def test_a_mistake_in_the_request_is_the_callers_to_mend() -> None:
    error = refusal.by_container("chat", 400, json.dumps({"error": {"message": "max_tokens is too large"}}))
    assert str(error) == (
        "chat: answered 400: max_tokens is too large\n  Correct the request: the model's server does not accept it."
    )
    assert not error.transient


def test_a_failure_of_the_container_is_explained_by_its_log() -> None:
    error = refusal.by_container("chat/part", 500, "EngineDeadError")
    assert str(error) == "chat/part: answered 500: EngineDeadError\n  The container's log: toolkit logs chat"


def test_a_busy_container_is_asked_no_second_time() -> None:
    assert not refusal.by_container("chat", 503, "overloaded").transient
