"""Error responses of a container as exceptions. Platforms translate the errors of their own APIs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit import documents
from toolkit.errors import InvocationError

ASKED_AGAIN = "Asked four times. See: toolkit status"


@dataclass(frozen=True)
class ErrorAnswer:
    """An HTTP error response; header names are in lower case."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


def by_container(endpoint: str, status: int, text: str) -> InvocationError:
    """The exception for an error that the container sent. `status` is 0 if it sent none."""
    hint = f"The container's log: toolkit logs {endpoint.partition('/')[0]}"
    if 400 <= status < 500:
        hint = "Correct the request: the model's server does not accept it."
    answered = f"answered {status}: " if status else ""
    return InvocationError(f"{endpoint}: {answered}{message_in(text)}", hint=hint)


def of_container(endpoint: str, answer: ErrorAnswer) -> InvocationError:
    """`by_container` for an HTTP response."""
    return by_container(endpoint, answer.status, answer.text)


def broken_off(endpoint: str, error: Exception) -> InvocationError:
    """The exception for an answer that ended too early."""
    hint = f"Send the request again. The container's log: toolkit logs {endpoint.partition('/')[0]}"
    return InvocationError(f"{endpoint}: the answer broke off: {error}", hint=hint)


def parse_answer(endpoint: str, content: bytes) -> dict[str, Any]:
    """A container's whole answer. Raises InvocationError."""
    try:
        return documents.parse(dict[str, Any], content)
    except documents.Unfit as error:
        raise InvocationError(f"{endpoint}: the answer cannot be used: {error}") from error


def message_in(text: str) -> str:
    """The message of an OpenAI-style error document; any other text unchanged."""
    try:
        document = documents.decode(text)
    except documents.Unfit:
        return text
    error = document.get("error", document) if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else text
