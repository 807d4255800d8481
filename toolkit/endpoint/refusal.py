"""Error responses of a container as exceptions, and requests sent again that no model has begun to process.

Platforms translate the errors of their own APIs.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from toolkit import documents
from toolkit.errors import InvocationError, reason

_NOTHING_ANSWERS = "Nothing answers there: start it, or correct its address. Your endpoints: toolkit status"
ASKED_AGAIN = "Asked four times. See: toolkit status"


@dataclass(frozen=True)
class ErrorAnswer:
    """An HTTP error response; header names are in lower case."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


def not_reached(error: Exception) -> str:
    """The hint for a server with which there is no connection."""
    return documents.connection_hint(error, _NOTHING_ANSWERS)


def by_container(endpoint: str, status: int, text: str) -> InvocationError:
    """The exception for an error that the container sent. `status` is 0 if it sent none."""
    hint = _log_of(endpoint)
    if 400 <= status < 500:
        hint = "Correct the request: the model's server does not accept it."
    answered = f"answered {status}: " if status else ""
    return InvocationError(f"{endpoint}: {answered}{message_in(text)}", hint=hint)


def of_container(endpoint: str, answer: ErrorAnswer) -> InvocationError:
    """`by_container` for an HTTP response."""
    return by_container(endpoint, answer.status, answer.text)


def broken_off(endpoint: str, error: Exception) -> InvocationError:
    """The exception for an answer that ended too early."""
    hint = f"Send the request again. {_log_of(endpoint)}"
    return InvocationError(f"{endpoint}: the answer broke off: {reason(error)}", hint=hint)


def unusable(endpoint: str, error: documents.Unfit) -> InvocationError:
    """The exception for an answer that is no JSON object, or too large."""
    hint = _log_of(endpoint)
    return InvocationError(f"{endpoint}: the answer cannot be used: {error}", hint=hint)


def _log_of(endpoint: str) -> str:
    """Where its log is. A server that is known by its URL alone has one elsewhere."""
    if "://" in endpoint:
        return "What answers there may be something else, such as a proxy; a server's own log tells more."
    return f"The container's log: toolkit logs {endpoint.partition('/')[0]}"


def parse_answer(endpoint: str, content: bytes) -> dict[str, Any]:
    """A container's whole answer. Raises InvocationError."""
    try:
        return documents.parse(dict[str, Any], content)
    except documents.Unfit as error:
        raise unusable(endpoint, error) from error


def message_in(text: str) -> str:
    """The message of an OpenAI-style error document; any other text unchanged."""
    try:
        document = documents.decode(text)
    except documents.Unfit:
        return text
    error = document.get("error", document) if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else text


_RETRIES = 3
_FIRST_PAUSE_SECONDS = 0.5

T = TypeVar("T")


def retry(send: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """The result of `send`, tried again up to three times if the error is transient. Raises InvocationError."""
    for pause in _pauses():
        try:
            return send()
        except InvocationError as error:
            if not error.transient:
                raise
        sleep(pause)
    return send()


async def retry_async(send: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[None]]) -> T:
    """`retry` for event loops."""
    for pause in _pauses():
        try:
            return await send()
        except InvocationError as error:
            if not error.transient:
                raise
        await sleep(pause)
    return await send()


def _pauses() -> Iterator[float]:
    """Exponential backoff with jitter, so that callers throttled together do not return together."""
    for attempt in range(_RETRIES):
        yield _FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1)  # noqa: S311
