"""The words for a request that was refused, and what kind of error it is."""

from __future__ import annotations

import json

import pytest

from toolkit.endpoint import refusal
from toolkit.errors import EndpointNotFound, InvocationError


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
        "chat: answered 400: max_tokens is too large\n"
        "  Change the request: the model's server does not take it as it is."
    )
    assert not error.transient


def test_a_failure_of_the_container_is_explained_by_its_log() -> None:
    error = refusal.by_container("chat/part", 500, "EngineDeadError")
    assert str(error) == "chat/part: answered 500: EngineDeadError\n  The container's log: toolkit logs chat"


def test_a_busy_container_is_asked_no_second_time() -> None:
    assert not refusal.by_container("chat", 503, "overloaded").transient


def test_sagemaker_may_be_asked_again_when_it_is_busy() -> None:
    error = refusal.by_sagemaker("chat", "Rate exceeded", transient=True)
    assert isinstance(error, InvocationError)
    assert error.transient
    assert str(error) == "chat: Rate exceeded\n  Asked four times. See: toolkit status"


@pytest.mark.parametrize(
    "message",
    [
        "Endpoint chat of account 123456789012 not found.",
        "Inference Component part of account 123456789012 not found.",
    ],
)
def test_an_endpoint_that_is_not_there(message: str) -> None:
    error = refusal.by_sagemaker("chat/part", message, transient=False)
    assert isinstance(error, EndpointNotFound)
    assert str(error) == "there is no endpoint chat/part in service\n  See: toolkit status"


def test_a_variant_that_is_not_there_is_no_missing_endpoint() -> None:
    error = refusal.by_sagemaker("chat", "Variant other of endpoint chat not found.", transient=False)
    assert isinstance(error, InvocationError)


def test_an_endpoint_scaled_to_zero_is_waking_up() -> None:
    """SageMaker's own words, as others saw them in 2026-08."""
    words = (
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress (if "
        "configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
    )
    error = refusal.by_sagemaker("chat/part", words, transient=False)
    assert isinstance(error, InvocationError)
    assert error.hint == "It is scaled to zero. This request makes it scale up: ask again in some minutes."
