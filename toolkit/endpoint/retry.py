"""Retry requests that the model has not begun to process."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from toolkit.errors import InvocationError

_RETRIES = 3
_FIRST_PAUSE_SECONDS = 0.5

T = TypeVar("T")


def retried(send: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """The result of `send`, retried up to three times if the error is transient. Raises InvocationError."""
    for pause in _pauses():
        try:
            return send()
        except InvocationError as error:
            if not error.transient:
                raise
        sleep(pause)
    return send()


async def retried_async(send: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[None]]) -> T:
    """`retried` for event loops."""
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
    for retry in range(_RETRIES):
        yield _FIRST_PAUSE_SECONDS * 2**retry * random.uniform(0.5, 1)  # noqa: S311
