"""A request that was refused: by the container of the model, or by SageMaker in front of it."""

from __future__ import annotations

import json
import re

from toolkit.errors import EndpointNotFound, InvocationError

_NOT_FOUND = re.compile(r"(Endpoint|Inference [Cc]omponent) \S+ .*not found")


def by_container(endpoint: str, status: int, text: str) -> InvocationError:
    """The container answered with an error, and would again. `status` 0: it gave none."""
    hint = f"The container's log: toolkit logs {endpoint.partition('/')[0]}"
    if 400 <= status < 500:
        hint = "Change the request: the model's server does not take it as it is."
    answered = f"answered {status}: " if status else ""
    return InvocationError(f"{endpoint}: {answered}{message_in(text)}", hint=hint)


def by_sagemaker(endpoint: str, message: str, *, transient: bool, hint: str = "") -> InvocationError | EndpointNotFound:
    """SageMaker did not pass the request on. `transient` when it may yet, `hint` when there is a better one."""
    if _NOT_FOUND.match(message):
        return EndpointNotFound(f"there is no endpoint {endpoint} in service", hint="See: toolkit status")
    if "has no capacity" in message:
        hint = "It is scaled to zero. This request makes it scale up: ask again in some minutes."
    elif transient:
        hint = "Asked four times. See: toolkit status"
    return InvocationError(f"{endpoint}: {message}", hint=hint, transient=transient)


def message_in(text: str) -> str:
    """The message of an OpenAI-style error document; text that is none, as it is."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    error = document.get("error", document) if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else text
