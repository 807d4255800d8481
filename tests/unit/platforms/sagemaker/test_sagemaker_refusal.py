"""Errors of SageMaker in front of a container: which kind, and what helps."""

from __future__ import annotations

import pytest

from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.sagemaker.runtime import by_sagemaker


def test_sagemaker_may_be_asked_again_when_it_is_busy() -> None:
    error = by_sagemaker("chat", "Rate exceeded", transient=True)
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
    error = by_sagemaker("chat/part", message, transient=False)
    assert isinstance(error, EndpointNotFound)
    assert str(error) == "there is no endpoint chat/part in service\n  See: toolkit status"


def test_a_variant_that_is_not_there_is_no_missing_endpoint() -> None:
    error = by_sagemaker("chat", "Variant other of endpoint chat not found.", transient=False)
    assert isinstance(error, InvocationError)


def test_an_endpoint_scaled_to_zero_is_waking_up() -> None:
    """SageMaker's own words, as others saw them in 2026-08."""
    words = (
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress (if "
        "configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
    )
    error = by_sagemaker("chat/part", words, transient=False)
    assert isinstance(error, InvocationError)
    assert error.hint == "It is scaled to zero. This request makes it scale up: try again in a few minutes."
