"""A request that got an error for an answer. What a platform in front of the container answers is the platform's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolkit import documents
from toolkit.errors import InvocationError

ASKED_AGAIN = "Asked four times. See: toolkit status"


@dataclass(frozen=True)
class ErrorAnswer:
    """An HTTP answer with an error; names of headers are in small letters."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


def by_container(endpoint: str, status: int, text: str) -> InvocationError:
    """The container answered with an error, and would again. `status` 0: it gave none."""
    hint = f"The container's log: toolkit logs {endpoint.partition('/')[0]}"
    if 400 <= status < 500:
        hint = "Change the request: the model's server does not take it as it is."
    answered = f"answered {status}: " if status else ""
    return InvocationError(f"{endpoint}: {answered}{message_in(text)}", hint=hint)


def of_container(endpoint: str, answer: ErrorAnswer) -> InvocationError:
    """An error that the container answered with."""
    return by_container(endpoint, answer.status, answer.text)


def unreachable(endpoint: str, error: Exception) -> InvocationError:
    """There was no connection, or it ended before there was an answer."""
    return InvocationError(f"{endpoint}: {error}", hint=ASKED_AGAIN, transient=True)


def message_in(text: str) -> str:
    """The message of an OpenAI-style error document; text that is none, as it is."""
    try:
        document = documents.decode(text)
    except documents.Unfit:
        return text
    error = document.get("error", document) if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else text
