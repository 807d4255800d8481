"""Send a request again when the model never began on it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from toolkit.errors import InvocationError

_RETRIES = 3
_FIRST_PAUSE_SECONDS = 0.5

T = TypeVar("T")


def retried(send: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """What `send` returns. Raises InvocationError when it still fails after three more tries, or need not be tried."""
    for pause in _pauses():
        try:
            return send()
        except InvocationError as error:
            if not error.transient:
                raise
        sleep(pause)
    return send()


async def retried_async(send: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[None]]) -> T:
    """The same in an event loop."""
    for pause in _pauses():
        try:
            return await send()
        except InvocationError as error:
            if not error.transient:
                raise
        await sleep(pause)
    return await send()


def _pauses() -> Iterator[float]:
    """Each twice the one before, less up to half: callers that were throttled together do not come back together."""
    for retry in range(_RETRIES):
        yield _FIRST_PAUSE_SECONDS * 2**retry * random.uniform(0.5, 1)  # noqa: S311
